package conversion

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// Older is an older .gqf file of the same checkpoint, from which a job with calibration takes layers.
type Older struct {
	File *gqf.File // must stay open until the new file is written
	Name string    // in reports and errors
	// Begin is called when the bytes of the checkpoint that are compared are known, as in Plan.Reuse.
	Begin func(bytes int64) (add func(n int64), end func())
}

// ModelLayers describes the layers that calibration goes through. The lm_head counts as the last one.
type ModelLayers struct {
	// Linears are the names of the linear layers of each layer, see Matrix.Name.
	Linears [][]string
	// Of is the layer that a tensor of the checkpoint belongs to; -1: none, all layers may depend on it.
	Of func(tensor string) int
}

// OlderLayers are the calibrated layers of an older file that a job would make again. nil has none.
type OlderLayers struct {
	layers []OlderLayer
	reused ReusedLayers
	took   map[*quantized]bool
}

// OlderLayer is a layer of an older file.
type OlderLayer struct {
	Matrices  []OlderMatrix
	Fallbacks int // as in Calibration
}

// OlderMatrix is a calibrated matrix of an older file.
type OlderMatrix struct {
	Matrix
	Codes RowReader
}

// ReusedLayers says which calibrated layers were copied from an older file.
type ReusedLayers struct {
	Layers int `json:"layers"` // that were copied
	Of     int `json:"of"`     // layers with calibrated matrices; the lm_head counts as one
	// Reason says why the next layer was not copied, and First names a tensor that differs, if there is
	// one. "": no layer differs.
	Reason string `json:"reason,omitempty"`
	First  string `json:"first_tensor,omitempty"`
}

// String describes the copied layers.
func (r *ReusedLayers) String() string {
	s := fmt.Sprintf("%d of %d calibrated layers copied", r.Layers, r.Of)
	if r.Reason != "" {
		s += ": " + r.Reason
	}
	if r.First != "" {
		s += fmt.Sprintf(" (%q)", r.First)
	}
	return s
}

// Len is the number of layers, from the first on.
func (l *OlderLayers) Len() int {
	if l == nil {
		return 0
	}
	return len(l.layers)
}

// Take returns a layer, whose codes go into the new file.
func (l *OlderLayers) Take(layer int) OlderLayer {
	list := l.layers[layer]
	for _, m := range list.Matrices {
		l.took[m.item] = true
	}
	if len(list.Matrices) > 0 {
		l.reused.Layers++
	}
	return list
}

// Drop takes all layers back.
func (l *OlderLayers) Drop(reason string) {
	l.layers, l.took = nil, nil
	l.reused.Layers, l.reused.Reason, l.reused.First = 0, reason, ""
}

// has reports whether the codes of an item were taken.
func (l *OlderLayers) has(it *quantized) bool { return l != nil && l.took[it] }

func (l *OlderLayers) report() *ReusedLayers {
	if l == nil {
		return nil
	}
	return &l.reused
}

// OlderLayers finds the layers, from the first on, whose codes calibration would choose again. c
// describes the calibration of the plan.
//
// What a layer's codes depend on must be the same, and the older file must say so: the version of the
// algorithm, its parameters, the token ids, config.json, and of this layer, all layers before it and the
// embedding the schemes, the algorithms and the CRC32C of all tensors of the checkpoint.
func (p *Plan) OlderLayers(ctx context.Context, o Older, c *Calibration, m ModelLayers) (*OlderLayers, error) {
	l := &OlderLayers{took: map[*quantized]bool{}}
	old, reason, err := p.openOld(o.File)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Name, err)
	}
	if reason == "" {
		reason = p.sameCalibration(old, c, len(m.Linears))
	}
	items, was := p.linears(), map[string]Matrix{}
	for _, it := range old.was {
		it.addLinears(was)
	}
	first := ""
	for layer, names := range m.Linears {
		list := OlderLayer{}
		if old.calibration != nil && len(old.calibration.LayerFallbacks) > layer {
			list.Fallbacks = old.calibration.LayerFallbacks[layer]
		}
		calibrated := false
		for _, name := range names {
			is, before := items[name], was[name]
			calibrated = calibrated || is.Scheme.Algorithm.ByLayers()
			if reason != "" || !is.Scheme.Algorithm.ByLayers() && !before.Scheme.Algorithm.ByLayers() {
				continue // the layer's inputs are multiplied with the checkpoint's weights
			}
			var rows RowReader
			if rows, reason, err = is.rowsIn(old, before); err != nil {
				return nil, err
			}
			first = name
			list.Matrices = append(list.Matrices, OlderMatrix{is, rows})
		}
		if calibrated {
			l.reused.Of++
		}
		if reason == "" {
			l.layers, first = append(l.layers, list), ""
		}
	}
	if len(l.layers) > 0 {
		differs, why, name, err := p.sameLayers(ctx, o, old, len(l.layers), m.Of)
		if err != nil {
			return nil, err
		}
		if why != "" {
			l.layers, reason, first = l.layers[:differs], why, name
		}
	}
	left := l.reused.Of
	for _, layer := range l.layers {
		if len(layer.Matrices) > 0 {
			left--
		}
	}
	if left > 0 {
		l.reused.Reason, l.reused.First = reason, first
	}
	return l, nil
}

// linears are the plan's matrices by name.
func (p *Plan) linears() map[string]Matrix {
	list := map[string]Matrix{}
	for it := range p.quantized() {
		it.addLinears(list)
	}
	return list
}

func (it *quantized) addLinears(list map[string]Matrix) {
	for s := range it.slices {
		m := it.matrix(s)
		list[m.Name()] = m
	}
}

// sameCalibration compares everything that all layers depend on, except for the checkpoint's bytes.
func (p *Plan) sameCalibration(old *oldFile, c *Calibration, layers int) string {
	was := old.calibration
	if was == nil {
		return "it was not calibrated"
	}
	parameters, err := json.Marshal(c.Parameters)
	before, e := json.Marshal(was.Parameters)
	n := len(was.LayerFallbacks)
	switch {
	case was.Version == 0:
		return "it does not say which version of the algorithm calibrated it"
	case was.Version != c.Version:
		return "another version of the algorithm calibrated it"
	case was.SequencesSHA256 != c.SequencesSHA256:
		return "another text calibrated it"
	case err != nil || e != nil || !bytes.Equal(parameters, before):
		return "it was calibrated with other parameters"
	case !bytes.Equal(old.config, p.config):
		return "another config.json"
	case n > 0 && n != layers:
		return fmt.Sprintf("its provenance describes %d layers, the model has %d", n, layers)
	}
	for _, pair := range [][2]map[string]*quantized{{p.embeddings(), old.embeddings()}, {old.embeddings(), p.embeddings()}} {
		for name, it := range pair[0] {
			if other := pair[1][name]; other == nil || !it.sameChoice(other) {
				return "another scheme of the embedding"
			}
		}
	}
	return ""
}

// embeddings are the quantized embeddings, whose rows are the inputs of the first layer.
func (p *Plan) embeddings() map[string]*quantized {
	list := map[string]*quantized{}
	for it := range p.quantized() {
		if it.role == gqf.RoleEmbedding {
			list[it.name()] = it
		}
	}
	return list
}

func (old *oldFile) embeddings() map[string]*quantized {
	list := map[string]*quantized{}
	for name, it := range old.was {
		if it.role == gqf.RoleEmbedding {
			list[name] = it
		}
	}
	return list
}

// rowsIn returns the codes of a matrix in the older file, where its recipe says before, or the reason why
// they are not what calibration would choose.
func (m Matrix) rowsIn(old *oldFile, before Matrix) (RowReader, string, error) {
	if !m.Scheme.Algorithm.ByLayers() || !before.Scheme.Algorithm.ByLayers() || !m.item.sameChoice(before.item) {
		return nil, reuseScheme, nil
	}
	it := m.item
	t, ok := old.Lookup(it.name())
	switch {
	case !ok || t.Name != it.name():
		return nil, reuseAbsent, nil
	case t.Algorithm != it.scheme.Algorithm || t.Mapping != it.scheme.Mapping || !sameHeaders(before.item, t):
		return nil, reuseScheme, nil
	case t.Role != it.role || t.Dtype != it.src.Dtype || t.Transposed != it.transposed || t.Experts != it.slices || !slices.Equal(t.Shape, it.src.Shape):
		return nil, reuseHeader, nil
	}
	variant := slices.IndexFunc(before.item.variants, func(v variant) bool { return v.header().ZeroKind != packing.ZeroF32 })
	if variant < 0 {
		return nil, "its layouts have floating-point zero points", nil
	}
	rows, err := t.Rows(variant, m.Slice)
	return &olderRows{old.File, rows}, "", err
}

// olderRows reads codes of an older file.
type olderRows struct {
	file *gqf.File
	rows *gqf.Rows
}

func (r *olderRows) ReadRow(row int, dst rounding.Row) error {
	return r.file.Guard(func() error {
		r.rows.Codes(dst.Codes, dst.Scales, dst.Zeros, row)
		return nil
	})
}

// sameLayers compares the checkpoint's bytes with the checksums in the older file: of the first n layers,
// and of the tensors that belong to none. differs is the first layer that differs, and name one of its
// tensors; why is "" if none does.
func (p *Plan) sameLayers(ctx context.Context, o Older, old *oldFile, n int, of func(string) int) (differs int, why, name string, err error) {
	c := p.newComparison(nil)
	differs = n
	differ := func(t *safetensors.Tensor, reason string) {
		if layer := max(of(t.Name), 0); reason != "" && layer < differs {
			differs, why, name = layer, reason, t.Name
		}
	}
	var list []*safetensors.Tensor
	sums := map[string]uint32{}
	all := p.ck.Tensors()
	for i := range all {
		t := &all[i]
		if of(t.Name) >= n {
			continue
		}
		found, reason := p.sameSource(old, t)
		differ(t, reason)
		list, sums[t.Name] = append(list, t), found.SourceCRC
	}
	list = slices.DeleteFunc(list, func(t *safetensors.Tensor) bool { return of(t.Name) >= differs || differs == 0 })
	if err := c.sumTensors(ctx, list, o.Begin); err != nil {
		return 0, "", "", err
	}
	for _, t := range list {
		if c.sum(t) != sums[t.Name] {
			differ(t, reuseBytes)
		}
	}
	return differs, why, name, p.in.unchanged()
}
