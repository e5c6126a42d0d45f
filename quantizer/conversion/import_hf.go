package conversion

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// takeQuantized makes the items of a quantized checkpoint.
func (pl *planner) takeQuantized(f *Foreign, dequantize bool) (err error) {
	in := &hfInput{imported: imported{pl.Plan, f}, ck: f.ck}
	pl.in, pl.ck, pl.config = in, f.ck, f.quantized.Config
	if pl.config != nil {
		if pl.cfg, err = arch.ParseConfig(pl.config); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(f.ck.Dir(), "config.json"), err)
		}
	}
	if pl.rules, err = quantizer.NewRuleSet(pl.opts.Recipe, nil); err != nil { // tie asks for rules
		return err
	}
	weights, err := pl.draftWeights(in)
	if err != nil {
		return err
	}
	if err := pl.leaveOutBiases(weights); err != nil {
		return err
	}
	for _, t := range f.ck.Tensors() {
		if _, part := f.quantized.Parts[t.Name]; part || pl.leftOut[t.Name] {
			continue
		}
		d, err := pl.draftUnquantized(t)
		if err != nil {
			return err
		}
		pl.drafts = append(pl.drafts, d)
	}
	slices.SortFunc(pl.drafts, func(a, b *draft) int { return compareNatural(a.src.Name, b.src.Name) })
	if err := pl.tie(); err != nil {
		return err
	}
	facts, err := in.scanAll(pl, weights)
	if err != nil {
		return err
	}
	for _, d := range pl.drafts {
		var w *hfWeight
		if w = weights[d.src.Name]; w != nil {
			if err := pl.takeWeight(d, w, facts[w.index], dequantize); err != nil {
				return err
			}
		}
		pl.imported = append(pl.imported, in.describe(d, w))
		in.weights = append(in.weights, w)
	}
	pl.settle()
	return nil
}

// hfWeight is a quantized weight that a plan imports.
type hfWeight struct {
	*hfquant.Weight
	index int   // in the checkpoint's list
	bytes int64 // of its parts
	file  int   // with its codes
	// group is the number of weights that share a scale in the item, which divides the checkpoint's: scales are repeated.
	group int64
}

// draftWeights makes drafts of the quantized weights, and returns the weights by name.
func (pl *planner) draftWeights(in *hfInput) (map[string]*hfWeight, error) {
	q := in.src.quantized
	list := make([]hfWeight, len(q.Weights))
	for i := range q.Weights {
		list[i] = hfWeight{Weight: &q.Weights[i], index: i, file: -1}
	}
	largest := make([]int64, len(list))
	for name, i := range q.Parts {
		t, _ := pl.ck.Lookup(name)
		list[i].bytes += t.Size
		if t.Size > largest[i] || t.Size == largest[i] && t.File < list[i].file {
			largest[i], list[i].file = t.Size, t.File
		}
	}
	weights := make(map[string]*hfWeight, len(list))
	for i := range list {
		w := &list[i]
		if t, ok := pl.ck.Lookup(w.Name); ok {
			if _, part := q.Parts[w.Name]; !part {
				return nil, fmt.Errorf("%s: tensor %q is there beside the parts of the quantized weight of this name", pl.ck.Files()[t.File].Name, w.Name)
			}
		}
		weights[w.Name] = w
		n, k := w.Shape[0], w.Shape[1]
		src := &safetensors.Tensor{Name: w.Name, Shape: w.Shape, File: w.file}
		class := arch.Classify(pl.cfg, w.Name, w.Shape)
		// The checkpoint that was quantized had it in x out, and dequantized weights are to have it so again.
		if turned := arch.Classify(pl.cfg, w.Name, []int64{k, n}); turned.Transposed {
			class, src.Shape = turned, []int64{k, n}
		}
		line := &PlanTensor{Name: w.Name, Role: class.Role, Shape: src.Shape}
		d := &draft{entry: entry{src: src, line: line, role: class.Role}, slices: 1, transposed: class.Transposed}
		d.setDtype(packing.F32)
		d.quantize = true // for tie
		src.Size = max(w.bytes/n, 1) * n
		pl.SourceBytes += w.bytes
		pl.drafts = append(pl.drafts, d)
	}
	return weights, nil
}

// leaveOutBiases leaves out biases of zeros that the model does not have, beside quantized weights:
// AutoGPTQ stored one for every layer for some time.
func (pl *planner) leaveOutBiases(weights map[string]*hfWeight) error {
	model, err := arch.ParseForward(pl.config)
	if err != nil {
		return nil // an unknown model may have them
	}
	pl.leftOut = map[string]bool{}
	err = pl.ck.Guard(func() error {
		for name, w := range weights {
			b, ok := pl.ck.Lookup(biasName(name))
			if !ok || model.HasBias(name) || b.Numel() != w.Shape[0] {
				continue
			}
			view, err := pl.ck.Bytes(b)
			if err != nil {
				return err
			}
			if bytes.Count(view, []byte{0}) == len(view) {
				pl.leftOut[b.Name] = true
			}
		}
		return nil
	})
	if n := len(pl.leftOut); n > 0 {
		pl.warn("biases of zeros: %d, left out: the model that config.json describes has none there", n)
	}
	return err
}

// draftUnquantized makes the draft of a tensor that is stored as it is.
func (pl *planner) draftUnquantized(t safetensors.Tensor) (*draft, error) {
	if t.Dtype == packing.DtypeNone {
		return nil, pl.unknownDtype(&t)
	}
	class := arch.Classify(pl.cfg, t.Name, t.Shape)
	d := &draft{entry: entry{src: &t, role: class.Role, line: &PlanTensor{Name: t.Name, Role: class.Role, Shape: t.Shape, Dtype: t.DtypeName}}, slices: class.Slices(), transposed: class.Transposed}
	reason := class.Reason
	if class.Quantize {
		reason = "not quantized in the checkpoint"
	}
	d.leave(reason)
	pl.SourceBytes += t.Size
	return d, nil
}

// takeWeight settles the layouts of a weight, or stores it in float32 if no layout holds it and
// dequantize says so.
func (pl *planner) takeWeight(d *draft, w *hfWeight, facts *scaleFacts, dequantize bool) error {
	if facts.notFinite != nil {
		return fmt.Errorf("%s: tensor %q (%s): %w", pl.ck.Files()[w.file].Name, w.Name, w.Scheme, facts.notFinite)
	}
	why := pl.fitWeight(d, w, facts)
	if why == nil {
		return nil
	}
	if !dequantize {
		return quantizer.Requestf("%s: tensor %q (%s): %w; --dequantize stores such tensors in float32", pl.ck.Files()[w.file].Name, w.Name, w.Scheme, why)
	}
	if d.transposed {
		return fmt.Errorf("%s: tensor %q (%s): %w, and the model has it in x out, which cannot be dequantized here", pl.ck.Files()[w.file].Name, w.Name, w.Scheme, why)
	}
	d.leave(dequantized(w.Scheme.String(), why.Error()))
	d.setDtype(packing.F32)
	return nil
}

// fitWeight gives the draft a scheme and layouts that hold the weight exactly. It fails if there are
// none.
func (pl *planner) fitWeight(d *draft, w *hfWeight, facts *scaleFacts) error {
	s, err := schemeOf(w, facts)
	if err != nil {
		return err
	}
	w.group = int64(s.Group)
	if s.Group == 0 || int64(s.Group) >= w.Shape[1] {
		s.Group, w.group = 0, w.Shape[1]
	}
	if narrow := pl.narrowGroup(s, w.Shape[1]); narrow != 0 {
		s.Group, w.group = narrow, int64(narrow)
	}
	d.takeOver(s)
	if facts.zeros == floatZeros {
		if d.rule = floatZeroLayouts(pl.opts.Recipe); d.rule != nil {
			d.line.Reason = "not lowbit, which holds no floating-point zero points"
		}
	}
	if err := pl.chooseLayouts(d, true); err != nil {
		return err
	}
	switch {
	case facts.zeros == floatZeros && !floatZerosOnly(d.variants):
		return fmt.Errorf("its offsets are no multiples of the scales, which layout %s cannot hold: only qai4c32p of --layout kleidiai can%s", d.line.Layouts[0], because(d.line.Reason))
	case facts.zeros == floatZeros:
		d.zeros, d.line.ZeroPoints = packing.ZeroF32, rounding.FloatZeros
	case facts.zeros == integerZeros && facts.long && slices.ContainsFunc(d.variants, func(v variant) bool { return v.header().ZeroKind == packing.ZeroF32 }):
		return fmt.Errorf("layout %s holds zero points times scales, which round for scales of more than 16 significant bits: use layout lowbit", d.line.Layouts[0])
	case facts.zeros == integerZeros:
		d.zeros, d.line.ZeroPoints = packing.ZeroInt8, rounding.IntegerZeros
	}
	if e := facts.unfit(s.ScaleDtype, d.smallest, holdsZeroScales(d.variants)); e != nil {
		return e
	}
	if d.bias == nil {
		d.bias = pl.findBias(d)
	}
	if d.bias != nil {
		d.holdBias()
	}
	return nil
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// schemeOf is the scheme with exactly the codes, scales and zero points of a weight.
func schemeOf(w *hfWeight, facts *scaleFacts) (rounding.Scheme, error) {
	s := rounding.Scheme{Bits: w.Scheme.Bits, Mapping: gqf.MappingFullRange, ScaleDtype: scaleDtype(w.Scheme.Scales), PositiveScales: facts.positive()}
	if facts.zeros != noZeros {
		s.Mapping, s.PositiveScales, s.NegativeScales = gqf.MappingAsymmetric, false, !facts.positive()
	}
	if k := w.Shape[1]; w.Scheme.Group > 0 && w.Scheme.Group < k {
		if w.Scheme.Group%16 != 0 {
			return s, fmt.Errorf("groups of %d weights: a .gqf file has groups of a multiple of 16, or per channel", w.Scheme.Group)
		}
		s.Group = int(w.Scheme.Group)
	}
	return s, nil
}

// floatZeroLayouts makes a draft with floating-point zero points get the only layout that holds them,
// if the recipe states none.
func floatZeroLayouts(r quantizer.Recipe) *quantizer.Rule {
	if len(r.Layouts) > 0 || len(r.Targets) > 0 {
		return nil
	}
	return &quantizer.Rule{Layouts: []quantizer.LayoutRequest{{Family: quantizer.FamilyKleidiAI}}}
}

// narrowGroup is a smaller group than the scheme's with which every target has a layout, if the
// targets have none with the scheme's own group; else 0. Repeating a scale changes no weight.
func (pl *planner) narrowGroup(s rounding.Scheme, k int64) int {
	const narrow = 32
	wide := int64(s.Group)
	if wide == 0 {
		wide = k
	}
	if wide <= narrow || wide%narrow != 0 || len(pl.opts.Recipe.Targets) == 0 {
		return 0
	}
	for _, t := range pl.opts.Recipe.Targets {
		if _, err := t.Layout(widened(s, k, t), k); err == nil {
			return 0
		}
		small := s
		small.Group = narrow
		if _, err := t.Layout(widened(small, k, t), k); err != nil {
			return 0
		}
	}
	return narrow
}

// describe says how the checkpoint stores the tensor of a draft. w is nil if it is not quantized.
func (in *hfInput) describe(d *draft, w *hfWeight) ImportedTensor {
	t := ImportedTensor{Name: d.src.Name, Type: d.src.DtypeName, Bits: d.src.Dtype.Bits(), Group: 1, Bytes: d.src.Size, file: d.src.File}
	if w != nil {
		t.Type, t.Quantized, t.Bits, t.Group, t.Bytes = fmt.Sprintf("%s: %s", in.src.quantized.Format.Library(), w.Scheme), true, w.Scheme.Bits, int(w.Scheme.Group), w.bytes
	}
	return t
}

// sameCodes compares two quantized weights.
func (in *hfInput) sameCodes(a, b string) (same bool, err error) {
	x, y := in.find(a), in.find(b)
	if x == nil || y == nil || x.Scheme != y.Scheme || !slices.Equal(x.Shape, y.Shape) {
		return false, nil
	}
	var p, q hfquant.Row
	same = true
	err = in.guard(func() error {
		for n := int64(0); n < x.Shape[0] && same; n++ {
			if err := x.Read(&p, n); err != nil {
				return err
			}
			if err := y.Read(&q, n); err != nil {
				return err
			}
			same = slices.Equal(p.Codes, q.Codes) && slices.Equal(p.Scales, q.Scales) && slices.Equal(p.Zeros, q.Zeros) && slices.Equal(p.Offsets, q.Offsets)
		}
		return nil
	})
	return same, err
}

// find is the quantized weight called name; nil if there is none.
func (in *hfInput) find(name string) *hfquant.Weight {
	list := in.src.quantized.Weights
	i, ok := slices.BinarySearchFunc(list, name, func(w hfquant.Weight, name string) int { return strings.Compare(w.Name, name) })
	if !ok {
		return nil
	}
	return &list[i]
}
