package conversion

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/model/llamacpp"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// GGUFOptions are the options of a .gguf file.
type GGUFOptions struct {
	// Pre is llama.cpp's name of the pre-tokenizer. Default (""): found by the tokenizer's ids of
	// llama.cpp's test text.
	Pre string
	// Split is the greatest size of a file in bytes: a larger model is divided into shards. Default
	// (0): one file.
	Split int64
}

// ggufOutput makes a .gguf file, or shards: the tensors of llama.cpp, whose rows come from the items.
type ggufOutput struct {
	*Plan
	from   modelSource // the plan's input
	opts   GGUFOptions
	config []byte
	model  *llamacpp.Model
	vocab  *llamacpp.Vocabulary
	card   []gguf.Pair // general.name and the facts of a model card
	// types are the types of the model's tensors.
	types []gguf.TensorType
	// regions are the places of an item's rows, by the item's index and slice. An item without a
	// region is left out of the file.
	regions [][][]region
}

// region is a range of the rows of an item's slice, which are rows of one tensor of the model.
type region struct {
	tensor int   // index in the model's tensors
	row    int64 // of the tensor, the first
	*llamacpp.Part
}

func (o *ggufOutput) noun() string { return "the .gguf file" }

func (o *ggufOutput) paths(path string) ([]string, error) {
	if o.opts.Split == 0 {
		return []string{path}, nil
	}
	t, err := o.target(&CalibratedCodes{}, nil)
	if err != nil {
		return nil, err
	}
	return t.paths(path), nil
}

func (o *ggufOutput) home(path string) string { return filepath.Dir(path) }

// begin asks how llama.cpp stores the model.
func (o *ggufOutput) begin(pl *planner, sources []llamacpp.Source) (err error) {
	if o.config == nil {
		return fmt.Errorf("%s: there is no config.json, which says what the model is: a .gguf file cannot be made without it", o.from.root())
	}
	if !pl.opts.Recipe.ForGGUF() && pl.ck != nil {
		return quantizer.Requestf("a .gguf file holds schemes of target gguf only: state the target")
	}
	if o.model, err = llamacpp.Describe(o.config, sources); err != nil {
		return fmt.Errorf("%s: %w", o.from.root(), err)
	}
	for _, note := range o.model.Notes {
		pl.warn("%s", note)
	}
	return nil
}

// store chooses the type of a draft. FP8 scales are multiplied into unquantized weights too: a
// .gguf file has no place for them.
func (o *ggufOutput) store(pl *planner, d *draft) error {
	if !d.quantize {
		return pl.findBlockScale(d)
	}
	return o.choose(d)
}

// choose sets the type of a quantized draft.
func (o *ggufOutput) choose(d *draft) (err error) {
	if d.kind, err = quantizer.GGUFType(d.scheme); err != nil {
		return quantizer.Requestf("tensor %q: %w", d.src.Name, err)
	}
	d.line.Type, d.line.Layouts = d.kind.String(), typeNames(d.kind)
	return nil
}

// typeNames is the type as a plan shows it in place of layouts.
func typeNames(t gguf.TensorType) []string { return []string{t.String()} }

// take keeps the codes of a file's tensor.
func (o *ggufOutput) take(_ *planner, in *fileInput, d *draft, t gqf.Tensor, h packing.Header) (err error) {
	if d.kind, err = exactType(h); err != nil {
		return quantizer.Requestf("%s: tensor %q (%s): %w", in.path, t.Name, d.scheme, err)
	}
	d.line.Type, d.line.Layouts = d.kind.String(), typeNames(d.kind)
	return nil
}

// exactType is the type that holds every code and scale of a payload with this packed header, if
// its scales are F16 numbers. A type's groups are not larger: a group may be several blocks.
func exactType(h packing.Header) (gguf.TensorType, error) {
	kind, err := quantizer.GGUFCodes(h)
	if err != nil {
		return 0, err
	}
	block, group := uint64(kind.BlockWeights()), h.Group
	if group == 0 {
		group = h.Cols
	}
	switch {
	case h.Cols%block != 0:
		return 0, fmt.Errorf("rows of %d weights are no whole number of %s's blocks of %d: quantize the checkpoint again with --target gguf, which leaves such tensors unquantized", h.Cols, kind, block)
	case group%block != 0 || h.Cols%group != 0:
		return 0, fmt.Errorf("groups of %d in rows of %d weights are no whole number of %s's blocks of %d: quantize the checkpoint again with --target gguf", group, h.Cols, kind, block)
	}
	return kind, nil
}

func (o *ggufOutput) dataBytes(it item) (int64, error) {
	switch it := it.(type) {
	case *quantized:
		return int64(it.slices) * it.rows * it.kind.Size(it.cols), nil
	case *unquantized:
		return int64(it.slices) * it.rows * o.typeOf(it).Size(it.cols), nil
	}
	return 0, nil
}

// typeOf is the type of the tensor that an unquantized item's rows go to.
func (o *ggufOutput) typeOf(it *unquantized) gguf.TensorType {
	for _, slice := range o.regions[it.index] {
		for _, r := range slice {
			return o.types[r.tensor]
		}
	}
	return gguf.F32
}

// settle finds the places of all rows and the types of the tensors.
func (o *ggufOutput) settle(pl *planner) error {
	byName := map[string]item{}
	o.regions = make([][][]region, len(pl.items))
	for i, it := range pl.items {
		e := it.common()
		e.index = i
		byName[e.name()] = it
		for _, n := range e.aliases {
			byName[n.src.Name] = it
		}
	}
	o.types = make([]gguf.TensorType, len(o.model.Tensors))
	for i := range o.model.Tensors {
		t := &o.model.Tensors[i]
		row := int64(0)
		for j := range t.Parts {
			p := &t.Parts[j]
			it, ok := byName[p.Source]
			if !ok {
				return fmt.Errorf("tensor %q of llama.cpp: the model has no %q", t.Name, p.Source)
			}
			at := &o.regions[it.common().index]
			for len(*at) <= p.Slice {
				*at = append(*at, nil)
			}
			(*at)[p.Slice] = append((*at)[p.Slice], region{tensor: i, row: row, Part: p})
			row += int64(p.Rows)
		}
		if err := o.setType(i, byName); err != nil {
			return err
		}
	}
	o.leaveOut(pl)
	return nil
}

// setType finds the one type of a tensor, which all of its parts share.
func (o *ggufOutput) setType(i int, byName map[string]item) error {
	t := &o.model.Tensors[i]
	if len(t.Parts) == 0 {
		o.types[i] = gguf.F32
		return nil
	}
	for _, p := range t.Parts {
		e := byName[p.Source].common()
		if !e.src.Dtype.IsFloat() {
			return quantizer.Requestf("tensor %q has dtype %s, but llama.cpp's %q holds floating-point weights: take a checkpoint that is not quantized", e.name(), e.src.DtypeName, t.Name)
		}
	}
	first := byName[t.Parts[0].Source]
	kind := o.kindOf(first, t)
	for _, p := range t.Parts[1:] {
		it := byName[p.Source]
		other := o.kindOf(it, t)
		_, codes := it.(*quantized)
		_, alsoCodes := first.(*quantized)
		switch {
		case other == kind:
		case codes || alsoCodes:
			return quantizer.Requestf("%q has type %s and %q type %s, but llama.cpp stores both in the tensor %q: give them the same bits with one --rule", t.Parts[0].Source, kind, p.Source, other, t.Name)
		default:
			kind = gguf.F32 // which holds both exactly
		}
	}
	if q, ok := first.(*quantized); ok && t.F32 {
		return quantizer.Requestf("tensor %q has %d bits, but llama.cpp wants %q as float32: leave it unquantized with --rule '%s=skip'", q.name(), q.scheme.Bits, t.Name, q.name())
	}
	o.types[i] = kind
	return nil
}

// kindOf is the type of an item's rows in tensor t, as far as the item alone decides it.
func (o *ggufOutput) kindOf(it item, t *llamacpp.Tensor) gguf.TensorType {
	e := it.common()
	switch q, ok := it.(*quantized); {
	case ok:
		return q.kind
	case t.F32:
		return gguf.F32
	case e.src.Dtype == packing.F16:
		return gguf.F16
	case e.src.Dtype == packing.BF16:
		return gguf.BF16
	case e.src.Dtype.Bits() == 8 && !e.absorbs(): // FP8: all values are F16 numbers
		return gguf.F16
	}
	return gguf.F32
}

// absorbs reports whether FP8 scales are multiplied into the item.
func (e *entry) absorbs() bool {
	for _, n := range e.aliases {
		if n.absorbed {
			return true
		}
	}
	return false
}

// leaveOut takes items out of the plan that the model has no place for: buffers, and towers for images.
func (o *ggufOutput) leaveOut(pl *planner) {
	items, regions := pl.items[:0], o.regions[:0]
	for i, it := range pl.items {
		e := it.common()
		if len(o.regions[i]) == 0 {
			e.line.Action, e.line.Reason = ActionOmit, "not a part of the language model as llama.cpp stores it"
			e.line.clearScheme()
			pl.Tensors = append(pl.Tensors, e.line)
			continue
		}
		e.index = len(items)
		items, regions = append(items, it), append(regions, o.regions[i])
	}
	clear(pl.items[len(items):])
	pl.items, o.regions = items, regions
	for _, it := range items {
		if u, ok := it.(*unquantized); ok {
			t := o.typeOf(u)
			u.line.Type, u.line.Layouts = t.String(), typeNames(t)
		}
	}
}

// layOut finds the places of all rows, and the tokenizer's metadata.
func (o *ggufOutput) layOut(pl *planner) (err error) {
	if err := o.settle(pl); err != nil {
		return err
	}
	rows := 0
	for _, it := range pl.items {
		if it.common().role == gqf.RoleEmbedding {
			rows = int(it.common().src.Shape[0])
		}
	}
	if o.vocab, err = llamacpp.Tokenizer(o.from.asset, rows, llamacpp.TokenizerOptions{Pre: o.opts.Pre}); err != nil {
		return fmt.Errorf("%s: %w", o.from.root(), err)
	}
	card, err := o.from.asset(llamacpp.CardFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var notes []string
	o.card, notes = o.model.Card(nameOf(o.config), card)
	for _, note := range append(o.vocab.Notes, notes...) {
		pl.warn("%s", note)
	}
	return nil
}

// check reads the file back. A model that this program cannot run is a warning.
func (o *ggufOutput) check(j *job, temps *temporaries, path string) error {
	start := time.Now()
	r, err := o.readBack(temps, j.target.paths(path), j.calibrated)
	j.seconds += time.Since(start)
	switch reason := notRun(err); {
	case reason != "":
		j.notes = append(j.notes, fmt.Sprintf("the .gguf file was not compared with %s: %s", o.from.root(), reason))
	case err != nil:
		return fmt.Errorf("%s was not written: read back, %w", path, err)
	}
	j.readBack = r
	return nil
}

// sourcesOf are the tensors of a checkpoint's drafts, for llama.cpp's description of the model.
func sourcesOf(drafts []*draft) (list []llamacpp.Source) {
	for _, d := range drafts {
		list = append(list, llamacpp.Source{Name: d.name(), Shape: logicalShape(d.src.Shape, d.transposed)})
		for _, n := range d.aliases {
			if !n.absorbed {
				list = append(list, llamacpp.Source{Name: n.src.Name, Shape: d.src.Shape, Same: d.name()})
			}
		}
	}
	return list
}

// logicalShape is the shape of a tensor with outputs before inputs.
func logicalShape(shape []int64, transposed bool) []int64 {
	n := len(shape)
	if !transposed || n < 2 {
		return shape
	}
	return append(shape[:n-2:n-2], shape[n-1], shape[n-2])
}
