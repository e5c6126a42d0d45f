// Package togguf stores the items of a plan in a .gguf file, and compares the file with its source
// before it appears.
package togguf

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Options are the options of a .gguf file.
type Options struct {
	// Pre is llama.cpp's name of the pre-tokenizer. Default (""): found by the tokenizer's ids of
	// llama.cpp's test text.
	Pre string
	// Split is the greatest size of a file in bytes: a larger model is divided into shards. Default
	// (0): one file.
	Split int64
}

// Source is the input of a .gguf file.
type Source interface {
	write.Model
	// OpenModel opens the model, to compare the file with it.
	OpenModel(opts forward.Options) (*forward.Model, error)
}

// Output makes a .gguf file, or shards: the tensors of llama.cpp, whose rows come from the items.
type Output struct {
	*plan.Plan
	from  Source
	root  string // of the input
	opts  Options
	Model *llamacpp.Model
	vocab *llamacpp.Vocabulary
	card  []gguf.Pair // general.name and the facts of a model card
	// columns are parts with other columns than their source, by source: in another order, or rows.
	columns map[string]*llamacpp.Part
	// types are the types of the model's tensors.
	types []gguf.TensorType
	// Regions are the places of an item's rows, by the item's index and slice. An item without a
	// region is left out of the file.
	Regions [][][]Region
}

// New returns the output of an input.
func New(from Source, opts Options) *Output {
	return &Output{from: from, root: from.Facts().Root, opts: opts}
}

// Whole is the output as one file.
func (o *Output) Whole() *Output {
	one := *o
	one.opts.Split = 0
	return &one
}

// Region is a range of the rows of an item's slice, which are rows of one tensor of the model.
type Region struct {
	Tensor int   // index in the model's tensors
	row    int64 // of the tensor, the first
	*llamacpp.Part
}

func (o *Output) Noun() string            { return "the .gguf file" }
func (o *Output) Home(path string) string { return filepath.Dir(path) }

// Begin asks how llama.cpp stores the model.
func (o *Output) Begin(pl *plan.Planner, list func() ([]llamacpp.Source, error)) error {
	o.Plan = pl.Plan
	if o.Config == nil {
		return fmt.Errorf("%s: there is no config.json, which says what the model is: a .gguf file cannot be made without it", o.root)
	}
	sources, err := list()
	if err != nil {
		return err
	}
	if o.Model, err = llamacpp.Describe(o.Config, sources); err != nil {
		return fmt.Errorf("%s: %w", o.root, err)
	}
	for _, note := range o.Model.Notes {
		pl.Warn("%s", note)
	}
	o.columns = map[string]*llamacpp.Part{}
	for _, t := range o.Model.Tensors {
		for i := range t.Parts {
			if p := &t.Parts[i]; p.Turned > 0 || p.Columns.Head != 0 {
				o.columns[p.Source] = p
			}
		}
	}
	return nil
}

// Store chooses the type of a draft. FP8 scales are multiplied into unquantized weights too: a
// .gguf file has no place for them.
func (o *Output) Store(pl *plan.Planner, d *plan.Draft) (err error) {
	p := o.columns[d.Src.Name]
	if d.Quantize && p != nil && p.Turned > 0 {
		d.Leave("llama.cpp transposes parts of it, and codes go along rows")
	}
	if !d.Quantize {
		return pl.FindBlockScale(d)
	}
	if d.Kind, err = rounding.GGUFType(d.Scheme); err != nil {
		return quantizer.Requestf("tensor %q: %w", d.Src.Name, err)
	}
	if p != nil && p.Columns.Block%d.Kind.BlockWeights() != 0 {
		if err := pl.FitBlocks(d, "heads", int64(p.Columns.Block)); err != nil || !d.Quantize {
			return err
		}
		d.Kind, _ = rounding.GGUFType(d.Scheme)
	}
	show(d.Line, d.Kind)
	return nil
}

// show has a plan show the type, also in place of layouts.
func show(line *plan.Tensor, t gguf.TensorType) {
	line.Type, line.Layouts = t.String(), []string{t.String()}
}

// Take keeps the codes of a file's tensor.
func (o *Output) Take(_ *plan.Planner, d *plan.Draft, from plan.FileTensor) (err error) {
	if d.Kind, err = exactType(from.Header); err != nil {
		return quantizer.Requestf("%s: tensor %q (%s): %w", from.Path, from.Name, d.Scheme, err)
	}
	if p := o.columns[from.Name]; p != nil && (p.Turned > 0 || p.Columns.Block%d.Kind.BlockWeights() != 0) {
		return quantizer.Requestf("%s: tensor %q: llama.cpp has the columns in another order, but %s has blocks of %d of them: quantize the checkpoint again with --rule '%s=skip'", from.Path, from.Name, d.Kind, d.Kind.BlockWeights(), from.Name)
	}
	show(d.Line, d.Kind)
	return nil
}

// exactType is the type that holds every code and scale of a payload with this packed header, if
// its scales are F16 numbers. A type's groups are not larger: a group may be several blocks.
func exactType(h packing.Header) (gguf.TensorType, error) {
	kind, err := rounding.GGUFCodes(h)
	if err != nil {
		return 0, err
	}
	block, group := uint64(kind.BlockWeights()), h.Group
	group = cmp.Or(group, h.Cols)
	switch {
	case h.Cols%block != 0:
		return 0, fmt.Errorf("rows of %d weights are no whole number of %s's blocks of %d: quantize the checkpoint again with --target gguf, which leaves such tensors unquantized", h.Cols, kind, block)
	case group%block != 0 || h.Cols%group != 0:
		return 0, fmt.Errorf("groups of %d in rows of %d weights are no whole number of %s's blocks of %d: quantize the checkpoint again with --target gguf", group, h.Cols, kind, block)
	}
	return kind, nil
}

func (o *Output) DataBytes(it plan.Item) (int64, error) {
	switch it := it.(type) {
	case *plan.Quantized:
		return int64(it.Slices) * it.Rows * it.Kind.Size(it.Cols), nil
	case *plan.Unquantized:
		return int64(it.Slices) * it.Rows * o.typeOf(it).Size(it.Cols), nil
	}
	return 0, nil
}

// typeOf is the type of the tensor that an unquantized item's rows go to.
func (o *Output) typeOf(it *plan.Unquantized) gguf.TensorType {
	for _, slice := range o.Regions[it.Index] {
		for _, r := range slice {
			return o.types[r.Tensor]
		}
	}
	return gguf.F32
}

// settle finds the places of all rows and the types of the tensors.
func (o *Output) settle(pl *plan.Planner) error {
	byName := map[string]plan.Item{}
	o.Regions = make([][][]Region, len(pl.Items))
	for i, it := range pl.Items {
		e := it.Common()
		e.Index = i
		if err := o.limitUnfit(it); err != nil {
			return err
		}
		byName[e.Name()] = it
		for _, n := range e.Aliases {
			byName[n.Src.Name] = it
		}
	}
	o.types = make([]gguf.TensorType, len(o.Model.Tensors))
	for i := range o.Model.Tensors {
		t := &o.Model.Tensors[i]
		row := int64(0)
		for j := range t.Parts {
			p := &t.Parts[j]
			it, ok := byName[p.Source]
			if !ok {
				return fmt.Errorf("tensor %q of llama.cpp: the model has no %q", t.Name, p.Source)
			}
			at := &o.Regions[it.Common().Index]
			for len(*at) <= p.Slice {
				*at = append(*at, nil)
			}
			(*at)[p.Slice] = append((*at)[p.Slice], Region{Tensor: i, row: row, Part: p})
			row += int64(p.Height())
			if u, ok := it.(*plan.Unquantized); ok && p.Elements {
				u.Rows, u.Cols = u.Rows*u.Cols, 1
			}
		}
		if err := o.setType(i, byName); err != nil {
			return err
		}
	}
	for q := range o.Quantized() {
		if err := o.multiply(q); err != nil {
			return err
		}
	}
	o.leaveOut(pl)
	return nil
}

// limitUnfit reads an item without a GGUF type. A weight that F16 does not hold leaves the item in
// F32.
func (o *Output) limitUnfit(it plan.Item) error {
	u, ok := it.(*plan.Unquantized)
	if !ok || !u.Unfit || u.Src.Dtype == packing.F16 || u.Src.Dtype == packing.BF16 || o.from.Facts().Remote {
		return nil
	}
	read, err := o.from.Rows(u)
	if err != nil {
		return err
	}
	x := make([]float32, u.Cols)
	return o.from.Guard(func() error {
		for i := range int64(u.Slices) * u.Rows {
			read(x, int(i/u.Rows), i%u.Rows, 1)
			for _, v := range x {
				if !floats.Finite(floats.RoundF16(v)) {
					u.Unfit = false
					u.Line.Reason += fmt.Sprintf("; row %d holds %g, beyond F16's range of 65504: stored as F32", i, v)
					return nil
				}
			}
		}
		u.Line.Reason += ": rounded to F16, as llama-quantize does"
		return nil
	})
}

// setType finds the one type of a tensor, which all of its parts share.
func (o *Output) setType(i int, byName map[string]plan.Item) error {
	t := &o.Model.Tensors[i]
	if len(t.Parts) == 0 {
		o.types[i] = gguf.F32
		return nil
	}
	for _, p := range t.Parts {
		e := byName[p.Source].Common()
		if !e.Src.Dtype.IsFloat() {
			return quantizer.Requestf("tensor %q has dtype %s, but llama.cpp's %q holds floating-point weights: take a checkpoint that is not quantized", e.Name(), e.Src.DtypeName, t.Name)
		}
	}
	first := byName[t.Parts[0].Source]
	kind := o.kindOf(first, t)
	for _, p := range t.Parts[1:] {
		it := byName[p.Source]
		other := o.kindOf(it, t)
		_, codes := it.(*plan.Quantized)
		_, alsoCodes := first.(*plan.Quantized)
		switch {
		case other == kind:
		case codes || alsoCodes:
			return quantizer.Requestf("%q has type %s and %q type %s, but llama.cpp stores both in the tensor %q: give them the same bits with one --rule", t.Parts[0].Source, kind, p.Source, other, t.Name)
		default:
			kind = gguf.F32 // which holds both exactly
		}
	}
	if q, ok := first.(*plan.Quantized); ok && t.F32 && t.Parts[0].Factor == 0 {
		return quantizer.Requestf("tensor %q has %d bits, but llama.cpp wants %q as float32: leave it unquantized with --rule '%s=skip'", q.Name(), q.Scheme.Bits, t.Name, q.Name())
	}
	o.types[i] = kind
	return nil
}

// multiply gives the weights of an item the factors of its places. Rounding comes afterwards.
func (o *Output) multiply(q *plan.Quantized) error {
	var list plan.RowFactors
	multiplied, differs := false, false
	for _, r := range o.Regions[q.Index][0] {
		f := plan.RowFactor{From: r.From, Rows: r.Rows, Factor: cmp.Or(r.Factor, 1)}
		multiplied = multiplied || f.Factor != 1
		differs = differs || slices.ContainsFunc(list, func(other plan.RowFactor) bool { return other.From == f.From && other.Factor != f.Factor })
		list = append(list, f)
	}
	if !multiplied {
		return nil
	}
	switch {
	case differs:
		return quantizer.Requestf("tensor %q has %d bits, but is embedding and lm_head, and llama.cpp's %s wants a factor of its own for each: leave it unquantized with --rule '%s=skip'", q.Name(), q.Scheme.Bits, o.Model.Architecture, q.Src.Name)
	case !o.from.Facts().Weights:
		return quantizer.Requestf("tensor %q has %d bits, but llama.cpp's %s wants its weights multiplied by factors of config.json: quantize the checkpoint again, to a path that ends in .gguf", q.Name(), q.Scheme.Bits, o.Model.Architecture)
	}
	if o.Factors == nil {
		o.Factors = map[string]plan.RowFactors{}
	}
	o.Factors[q.Src.Name] = list
	return nil
}

// kindOf is the type of an item's rows in tensor t, as far as the item alone decides it.
func (o *Output) kindOf(it plan.Item, t *llamacpp.Tensor) gguf.TensorType {
	e := it.Common()
	switch q, ok := it.(*plan.Quantized); {
	case ok:
		return q.Kind
	case t.F32:
		return gguf.F32
	case e.Src.Dtype == packing.BF16, e.Src.MXFP4(): // BF16 holds these weights
		return gguf.BF16
	case e.Src.Dtype == packing.F16, e.Unfit, e.Src.Dtype.Bits() == 8 && !e.Absorbs():
		// All values of FP8 are F16 numbers.
		return gguf.F16
	}
	return gguf.F32
}

// leaveOut takes items out of the plan that the model has no place for: buffers, and towers for
// images.
func (o *Output) leaveOut(pl *plan.Planner) {
	items, regions := pl.Items[:0], o.Regions[:0]
	for i, it := range pl.Items {
		e := it.Common()
		if len(o.Regions[i]) == 0 {
			e.Line.Action, e.Line.Reason = plan.ActionOmit, "not a part of the language model as llama.cpp stores it"
			e.Line.ClearScheme()
			pl.Tensors = append(pl.Tensors, e.Line)
			continue
		}
		e.Index = len(items)
		items, regions = append(items, it), append(regions, o.Regions[i])
	}
	clear(pl.Items[len(items):])
	pl.Items, o.Regions = items, regions
	for _, it := range items {
		if u, ok := it.(*plan.Unquantized); ok {
			u.Line.ClearScheme() // which may be shared
			show(u.Line, o.typeOf(u))
		}
	}
}

// LayOut finds the places of all rows, and the tokenizer's metadata.
func (o *Output) LayOut(pl *plan.Planner) (err error) {
	if err := o.settle(pl); err != nil {
		return err
	}
	rows := 0
	for _, t := range o.Model.Tensors {
		if t.Name == llamacpp.Embedding {
			rows = int(t.Shape[1])
		}
	}
	if o.vocab, err = llamacpp.Tokenizer(o.from.Asset, rows, llamacpp.TokenizerOptions{Pre: o.opts.Pre}); err != nil {
		return fmt.Errorf("%s: %w", o.root, err)
	}
	card, err := o.from.Asset(llamacpp.CardFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var notes []string
	o.card, notes = o.Model.Card(assets.NameOf(o.Config), card)
	if o.from.Facts().Weights { // quantized anew
		o.card = slices.DeleteFunc(o.card, func(p gguf.Pair) bool { return strings.HasPrefix(p.Key, llamacpp.QuantizePrefix) })
	}
	for _, note := range append(o.vocab.Notes, notes...) {
		pl.Warn("%s", note)
	}
	return nil
}

// fileTypes are the values of general.file_type (enum llama_ftype) of files whose weights are
// mostly of a type. Of K types it is the file type with only that type, where there is one.
var fileTypes = map[string]uint32{
	"F32": 0, "F16": 1, "BF16": 32,
	"Q1_0": 40, "Q2_0": 41, "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "Q8_0": 7,
	"Q2_K": 10, "Q3_K": 11, "Q4_K": 14, "Q5_K": 16, "Q6_K": 18,
	"IQ4_NL": 25, "IQ4_XS": 30, "TQ1_0": 36, "TQ2_0": 37, "MXFP4": 38, "IQ2_XXS": 19, "IQ2_XS": 20, "IQ2_S": 28, "IQ3_XXS": 23, "IQ3_S": 26,
}

// metadata are the key-value pairs of the file. hashes and found are as for Model.Provenance.
func (o *Output) metadata(c *plan.Codes, hashes []string, found []write.ItemResult) ([]gguf.Pair, error) {
	pairs := []gguf.Pair{
		{Key: gguf.KeyArchitecture, Value: o.Model.Architecture},
		{Key: "general.type", Value: "model"},
	}
	pairs = append(pairs, o.card...)
	pairs = append(pairs, o.Model.Metadata...)
	pairs = append(pairs,
		gguf.Pair{Key: "general.file_type", Value: fileTypes[o.mostType().String()]},
		gguf.Pair{Key: "general.quantization_version", Value: uint32(2)}, // GGML_QNT_VERSION
	)
	pairs = append(append(pairs, c.Facts...), o.vocab.Metadata...)
	recipe, origin, err := o.from.Provenance(c, hashes, found)
	if err != nil {
		return nil, err
	}
	for _, p := range []struct {
		key   string
		json  []byte
		short func([]byte) ([]byte, error)
	}{{provenance.GGUFRecipe, recipe, provenance.Compact}, {provenance.GGUFProvenance, origin, provenance.Short}} {
		if p.json == nil {
			continue
		}
		text, err := p.short(p.json)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", o.root, p.key, err)
		}
		pairs = append(pairs, gguf.Pair{Key: p.key, Value: string(text)})
	}
	return pairs, nil
}

func (o *Output) mostType() gguf.TensorType {
	counts := map[gguf.TensorType]int64{}
	for i, t := range o.Model.Tensors {
		if len(t.Shape) > 1 {
			counts[o.types[i]] += t.Elements()
		}
	}
	types := slices.Sorted(maps.Keys(counts))
	if len(types) == 0 {
		return gguf.F32
	}
	return slices.MaxFunc(types, func(a, b gguf.TensorType) int { return cmp.Compare(counts[a], counts[b]) })
}
