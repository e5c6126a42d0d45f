package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/quantizer"
)

// Reuse names the tensors of a plan whose payloads are copied from an older .gqf file, see
// [Plan.Reuse].
type Reuse struct {
	file   *gqf.File
	items  []*oldTensor // by the items' index; nil: the tensor is made
	result ReuseReport
}

// oldTensor is a tensor of the older file.
type oldTensor struct {
	tensor   gqf.Tensor
	crc      uint32 // of the source's bytes
	scaleCRC uint32 // of its block scales
}

// ReuseReport counts the tensors that were copied from an older file.
type ReuseReport struct {
	File    string `json:"file"`
	Tensors int    `json:"tensors"` // that were copied
	Bytes   int64  `json:"bytes"`   // of these tensors, in the new file
	Made    int    `json:"made"`    // quantized tensors that were made
	// Reasons says why tensors were made, the most frequent reason first.
	Reasons []ReuseReason `json:"reasons"`
	// Layers says which calibrated layers were copied; nil: the job does not calibrate layer by layer.
	Layers *ReusedLayers `json:"layers,omitempty"`
}

// ReuseReason is a reason why tensors were not copied.
type ReuseReason struct {
	Reason  string `json:"reason"`
	Tensors int    `json:"tensors"`
	First   string `json:"first_tensor"`
}

// of is the tensor that an item's payloads are copied from; nil: the item is made.
func (r *Reuse) of(it item) *oldTensor {
	if r == nil {
		return nil
	}
	return r.items[it.common().index]
}

// found puts the checksums of copied tensors, whose source was summed before, into results.
func (r *Reuse) found(results []itemResult) {
	if r == nil {
		return
	}
	for i, old := range r.items {
		if old != nil {
			results[i].crc, results[i].scaleCRC = old.crc, old.scaleCRC
		}
	}
}

func (r *Reuse) report() *ReuseReport {
	if r == nil {
		return nil
	}
	return &r.result
}

// String describes the copied tensors in a line.
func (r *ReuseReport) String() string {
	s := fmt.Sprintf("%d tensors copied from %s, %d made", r.Tensors, r.File, r.Made)
	for i, reason := range r.Reasons {
		s += []string{": ", "; "}[min(i, 1)] + reason.Reason + fmt.Sprintf(" (%q%s)", reason.First, andMore(reason.Tensors-1))
	}
	if r.Layers != nil {
		s += "; " + r.Layers.String()
	}
	return s
}

// The reasons why a tensor is made.
const (
	reuseAbsent     = "not in the file"
	reuseScheme     = "another scheme, algorithm or layout"
	reuseCalibrated = "chosen with calibration"
	reuseHeader     = "another shape, dtype or header of the checkpoint's file"
	reuseBytes      = "other weights"
)

// reasons returns the most frequent reasons first, given the reason of each item; "": copied, or
// unquantized.
func (p *Plan) reasons(of []string) (list []ReuseReason) {
	for i, reason := range of {
		if reason == "" {
			continue
		}
		k := slices.IndexFunc(list, func(r ReuseReason) bool { return r.Reason == reason })
		if k < 0 {
			k, list = len(list), append(list, ReuseReason{Reason: reason, First: p.items[i].common().name()})
		}
		list[k].Tensors++
	}
	slices.SortStableFunc(list, func(a, b ReuseReason) int { return b.Tensors - a.Tensors })
	return list
}

// oldFile is an older .gqf file and its provenance.
type oldFile struct {
	*gqf.File
	sources     []Source
	calibration *Calibration // nil: none
	config      []byte       // config.json; nil: none
	scaleBlock  [2]int
	was         map[string]*quantized // items of the plan with the file's recipe, by name
}

// openOld reads the file's provenance. nothing is the reason why no tensor of it can be copied; "":
// they can.
func (p *Plan) openOld(f *gqf.File) (old *oldFile, nothing string, err error) {
	f.CheckSums()
	old = &oldFile{File: f, was: map[string]*quantized{}}
	list := map[string][]byte{}
	for _, name := range []string{gqf.ProvenanceName, gqf.RecipeName, configName} {
		data, err := f.Asset(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		list[name] = data
	}
	if list[gqf.ProvenanceName] == nil || list[gqf.RecipeName] == nil {
		return old, "it does not say how it was made", nil
	}
	var prov Provenance
	if err := json.Unmarshal(list[gqf.ProvenanceName], &prov); err != nil {
		return nil, "", fmt.Errorf("%s: %w", gqf.ProvenanceName, err)
	}
	old.sources, old.calibration, old.config = prov.Sources, prov.Calibration, list[configName]
	if data := old.config; data != nil {
		c, err := arch.ParseConfig(data)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", configName, err)
		}
		old.scaleBlock = c.WeightBlockSize
	}
	switch {
	case prov.Tuning != nil:
		return old, "its scales and codes were tuned", nil
	case prov.Quantized != nil:
		return old, "its codes are of a quantized checkpoint", nil
	}
	nothing, err = p.replan(old, list[gqf.RecipeName])
	return old, nothing, err
}

// replan makes the plan of the checkpoint with the file's recipe, which has every property of a scheme
// that decides bytes.
func (p *Plan) replan(old *oldFile, data []byte) (nothing string, err error) {
	opts := p.opts
	opts.Rules, opts.Progress = nil, nil
	if opts.Recipe, err = quantizer.ParseRecipe(gqf.RecipeName, data); err != nil {
		return "", err
	}
	was, err := NewPlan(p.ck, p.config, opts)
	if err != nil {
		return fmt.Sprintf("its recipe does not fit this checkpoint (%v)", err), nil
	}
	for it := range was.quantized() {
		old.was[it.name()] = it
	}
	return "", nil
}

// sameChoice reports whether codes of two items of one checkpoint are chosen in the same way.
func (it *quantized) sameChoice(o *quantized) bool {
	return it.src.Name == o.src.Name && it.scheme == o.scheme && it.slices == o.slices && it.rows == o.rows && it.cols == o.cols &&
		it.transposed == o.transposed && it.zeros == o.zeros && it.smallest == o.smallest
}

// sameCodes reports whether two items of one checkpoint get the same codes in the same layouts.
func (it *quantized) sameCodes(o *quantized) bool {
	biasOf := func(b *safetensors.Tensor) string {
		if b == nil {
			return ""
		}
		return b.Name
	}
	return it.sameChoice(o) && biasOf(it.bias) == biasOf(o.bias) &&
		slices.EqualFunc(it.variants, o.variants, func(a, b variant) bool { return a.head == b.head })
}

// candidate returns the older file's tensor for an item if all but the weights themselves is the same;
// else the reason why it is not.
func (p *Plan) candidate(old *oldFile, it *quantized) (*oldTensor, string) {
	t, ok := old.Lookup(it.name())
	was := old.was[it.name()]
	algorithm := p.in.algorithm(it, &CalibratedCodes{})
	switch {
	case !ok || t.Name != it.name():
		return nil, reuseAbsent
	case it.scheme.Algorithm.Calibrated() || t.Algorithm.Calibrated():
		return nil, reuseCalibrated
	case was == nil || !it.sameCodes(was) || t.Algorithm != algorithm || t.Mapping != it.scheme.Mapping || !sameHeaders(it, t):
		return nil, reuseScheme
	case t.Role != it.role || t.Dtype != it.src.Dtype || t.Transposed != it.transposed || t.Experts != it.slices || !slices.Equal(t.Shape, it.src.Shape):
		return nil, reuseHeader
	case it.absorbs() && old.scaleBlock != p.scaleBlock:
		return nil, reuseHeader
	}
	name, reason := p.sameSource(old, it.src)
	return &oldTensor{tensor: t, crc: name.SourceCRC}, reason
}

// sameHeaders reports whether the tensor has exactly the payloads that the item gets.
func sameHeaders(it *quantized, t gqf.Tensor) bool {
	n := 0
	for i := range it.variants {
		v := &it.variants[i]
		for s := range it.slices {
			list := append([]companion{{gqf.KindWeights, v.header()}}, companions(v.header())...)
			for _, c := range list {
				if have, ok := t.Payload(i, s, c.kind); !ok || have.Header != c.header {
					return false
				}
			}
			n += len(list)
		}
	}
	return n == len(t.Payloads())
}

// sameSource compares the older file's record of a source tensor with the checkpoint: the
// size, and the size and the header of its file. The checkpoint's bytes are not read.
func (p *Plan) sameSource(old *oldFile, src *safetensors.Tensor) (gqf.Name, string) {
	name, ok := old.FindName(src.Name)
	if !ok || !name.InCheckpoint {
		return name, reuseAbsent
	}
	sources := p.sources()
	file := p.nameSpec(0, *src).SourceFile
	same := func(a, b Source) bool { return a.Size == b.Size && a.HeaderSHA256 == b.HeaderSHA256 }
	switch {
	case name.SourceBytes != src.Size || (file < 0) != (name.SourceFile < 0):
		return name, reuseHeader
	case file < 0: // of another file, or of a folded checkpoint
		if !slices.EqualFunc(sources, old.sources, same) {
			return name, reuseHeader
		}
	case file >= len(sources) || name.SourceFile >= len(old.sources) || !same(sources[file], old.sources[name.SourceFile]):
		return name, reuseHeader
	}
	return name, ""
}

// other is a small tensor of the checkpoint that is in an item's payloads beside its weights.
type other struct {
	src   *safetensors.Tensor
	scale bool // block scales
}

func (it *quantized) others() (list []other) {
	if it.bias != nil {
		list = append(list, other{src: it.bias})
	}
	for i := range it.aliases {
		if n := &it.aliases[i]; n.absorbed {
			list = append(list, other{&n.src, true})
		}
	}
	return list
}

// takeOver copies the payloads of a unit from the older file.
func (w *worker) takeOver(it *quantized, u unit, old *oldTensor) error {
	if u.sum { // it was summed before
		return nil
	}
	if err := w.fit(it); err != nil {
		return err
	}
	for i, s := range w.sinks {
		p := s.(*layoutPacking)
		spans, err := p.spans(it, u)
		if err != nil {
			return err
		}
		for _, s := range spans {
			payload, _ := old.tensor.Payload(i, u.slice, s.kind)
			for done := int64(0); done < s.n; done += int64(len(w.piece)) {
				to := p.offset(u, s) + done
				if err := w.copier.Read(buffer.Grow(&w.piece, int(min(s.n-done, pieceBytes))), payload, s.off+done, p.image, to); err != nil {
					return err
				}
				if err := w.put(0, w.piece, to); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// data is the bytes of a span in the older file, which may be damaged.
func (r *Reuse) data(old *oldTensor, variant, slice int, s span) ([]byte, error) {
	payload, _ := old.tensor.Payload(variant, slice, s.kind)
	return r.file.UncheckedRange(payload, s.off, s.n)
}

// check fails if the bytes of a span are damaged.
func (r *Reuse) check(old *oldTensor, variant, slice int, s span) error {
	payload, _ := old.tensor.Payload(variant, slice, s.kind)
	_, err := r.file.DataRange(payload, s.off, s.n)
	return err
}

// copier reads the copied bytes; nil: no tensor is copied.
func (r *Reuse) copier() *gqf.Copier {
	if r == nil || r.result.Tensors == 0 {
		return nil
	}
	return r.file.NewCopier()
}
