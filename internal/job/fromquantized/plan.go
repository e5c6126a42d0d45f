// Package fromquantized takes the codes of a checkpoint over that another library quantized.
package fromquantized

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/imports"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

func (in *input) Import(out write.Output, recipe quantizer.Recipe, threads int, dequantize bool) (*imports.Import, error) {
	f := in.from
	pl := plan.NewPlanner(out, recipe, threads)
	in.Imported = imports.Imported{Src: f, Pl: pl}
	pl.Ck, pl.Config = f.ck, f.quantized.Config
	var err error
	if pl.Config != nil {
		if pl.Cfg, err = arch.ParseConfig(pl.Config); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(f.ck.Dir(), assets.ConfigName), err)
		}
	}
	rules, err := quantizer.NewRuleSet(recipe, nil)
	if err != nil {
		return nil, err
	}
	if err := out.Begin(pl, nil); err != nil {
		return nil, err
	}
	weights, err := in.draftWeights()
	if err != nil {
		return nil, err
	}
	if err := in.leaveOutBiases(weights); err != nil {
		return nil, err
	}
	for _, t := range f.ck.Tensors() {
		if _, part := f.quantized.Parts[t.Name]; part || pl.LeftOut[t.Name] {
			continue
		}
		d, err := in.draftUnquantized(t)
		if err != nil {
			return nil, err
		}
		pl.Drafts = append(pl.Drafts, d)
	}
	slices.SortFunc(pl.Drafts, func(a, b *plan.Draft) int { return plan.CompareNatural(a.Src.Name, b.Src.Name) })
	same := func(a, b *plan.Draft) (bool, error) { // codes and scales, or bytes of unquantized weights
		if a.Quantize && b.Quantize {
			return in.sameCodes(a.Src.Name, b.Src.Name)
		}
		if a.Quantize != b.Quantize {
			return false, nil
		}
		return fromcheckpoint.SameContent(in.ck, *a.Src, *b.Src)
	}
	if err := (&fromcheckpoint.TensorPlanner{Planner: pl, Rules: rules, Same: same}).Tie(); err != nil {
		return nil, err
	}
	facts, err := in.scanAll(weights)
	if err != nil {
		return nil, err
	}
	for _, d := range pl.Drafts {
		t := imports.ImportedTensor{Name: d.Src.Name, Type: d.Src.DtypeName, Bits: d.Src.Dtype.Bits(), Group: 1, Bytes: d.Src.Size, File: d.Src.File}
		w := weights[d.Src.Name]
		if w != nil {
			if err := in.takeWeight(d, w, facts[w.index], dequantize); err != nil {
				return nil, err
			}
			t.Type, t.Quantized, t.Bits, t.Group, t.Bytes = fmt.Sprintf("%s: %s", in.from.quantized.Format.Library(), w.Scheme), true, w.Scheme.Bits, int(w.Scheme.Group), w.bytes
		}
		in.Tensors = append(in.Tensors, t)
		in.weights = append(in.weights, w)
	}
	pl.Settle()
	return in.Job(in, out)
}

// draftWeights makes drafts of the quantized weights, and returns the weights by name.
func (in *input) draftWeights() (map[string]*weight, error) {
	q, pl := in.from.quantized, in.Pl
	list := make([]weight, len(q.Weights))
	for i := range q.Weights {
		list[i] = weight{Weight: &q.Weights[i], index: i, file: -1}
	}
	largest := make([]int64, len(list))
	for name, i := range q.Parts {
		t, _ := pl.Ck.Lookup(name)
		list[i].bytes += t.Size
		if t.Size > largest[i] || t.Size == largest[i] && t.File < list[i].file {
			largest[i], list[i].file = t.Size, t.File
		}
	}
	weights := make(map[string]*weight, len(list))
	for i := range list {
		w := &list[i]
		if t, ok := pl.Ck.Lookup(w.Name); ok {
			if _, part := q.Parts[w.Name]; !part {
				return nil, fmt.Errorf("%s: tensor %q is there beside the parts of the quantized weight of this name", pl.Ck.Files()[t.File].Name, w.Name)
			}
		}
		weights[w.Name] = w
		n, k := w.Shape[0], w.Shape[1]
		src := &safetensors.Tensor{Name: w.Name, Shape: w.Shape, File: w.file}
		class := arch.Classify(pl.Cfg, w.Name, w.Shape)
		// The checkpoint that was quantized had it in x out, and dequantized weights are to have it so
		// again.
		if turned := arch.Classify(pl.Cfg, w.Name, []int64{k, n}); turned.Transposed {
			class, src.Shape = turned, []int64{k, n}
		}
		line := plan.NewLine(w.Name, class.Role, src.Shape, "")
		d := &plan.Draft{Entry: plan.Entry{Src: src, Line: line, Role: class.Role}, Form: plan.Form{Slices: 1, Transposed: class.Transposed}}
		d.SetDtype(packing.F32)
		d.Quantize = true // for tie
		src.Size = max(w.bytes/n, 1) * n
		pl.SourceBytes += w.bytes
		pl.Drafts = append(pl.Drafts, d)
	}
	return weights, nil
}

// leaveOutBiases leaves out biases of zeros that the model does not have, beside quantized weights:
// AutoGPTQ stored one for every layer for some time.
func (in *input) leaveOutBiases(weights map[string]*weight) error {
	pl := in.Pl
	model, err := arch.ParseForward(pl.Config)
	if err != nil {
		return nil // an unknown model may have them
	}
	pl.LeftOut = map[string]bool{}
	err = pl.Ck.Guard(func() error {
		for name, w := range weights {
			b, ok := pl.Ck.Lookup(arch.BiasName(name))
			if !ok || model.HasBias(name) || b.Numel() != w.Shape[0] {
				continue
			}
			view, err := pl.Ck.Bytes(b)
			if err != nil {
				return err
			}
			if bytes.Count(view, []byte{0}) == len(view) {
				pl.LeftOut[b.Name] = true
			}
		}
		return nil
	})
	if n := len(pl.LeftOut); n > 0 {
		pl.Warn("biases of zeros: %d, left out: the model that config.json describes has none there", n)
	}
	return err
}

// draftUnquantized makes the draft of a tensor that is stored as it is.
func (in *input) draftUnquantized(t safetensors.Tensor) (*plan.Draft, error) {
	pl := in.Pl
	if t.Dtype == packing.DtypeNone {
		return nil, fromcheckpoint.UnknownDtype(pl.Ck, &t)
	}
	class := arch.Classify(pl.Cfg, t.Name, t.Shape)
	d := &plan.Draft{Entry: plan.Entry{Src: &t, Role: class.Role, Line: plan.NewLine(t.Name, class.Role, t.Shape, t.DtypeName)}, Form: plan.Form{Slices: class.Slices(), Transposed: class.Transposed}}
	reason := class.Reason
	if class.Quantize {
		reason = "not quantized in the checkpoint"
	}
	d.Leave(reason)
	pl.SourceBytes += t.Size
	return d, nil
}

// takeWeight settles the layouts of a weight, or stores it in float32 if no layout holds it and
// dequantize says so.
func (in *input) takeWeight(d *plan.Draft, w *weight, facts *scaleFacts, dequantize bool) error {
	if facts.notFinite != nil {
		return fmt.Errorf("%s: tensor %q (%s): %w", in.ck.Files()[w.file].Name, w.Name, w.Scheme, facts.notFinite)
	}
	why := in.fitWeight(d, w, facts)
	if why == nil {
		return nil
	}
	if !dequantize {
		return quantizer.Requestf("%s: tensor %q (%s): %w; --dequantize stores such tensors in float32", in.ck.Files()[w.file].Name, w.Name, w.Scheme, why)
	}
	if d.Transposed {
		return fmt.Errorf("%s: tensor %q (%s): %w, and the model has it in x out, which cannot be dequantized here", in.ck.Files()[w.file].Name, w.Name, w.Scheme, why)
	}
	d.Leave(plan.Dequantized(w.Scheme.String(), why.Error()))
	d.SetDtype(packing.F32)
	return nil
}

// fitWeight gives the draft a scheme and layouts that hold the weight exactly. It fails if there
// are none.
func (in *input) fitWeight(d *plan.Draft, w *weight, facts *scaleFacts) error {
	pl := in.Pl
	s, err := schemeOf(w, facts)
	if err != nil {
		return err
	}
	w.group = int64(s.Group)
	if s.Group == 0 || int64(s.Group) >= w.Shape[1] {
		s.Group, w.group = 0, w.Shape[1]
	}
	if narrow := narrowGroup(pl.Recipe.Targets, s, w.Shape[1]); narrow != 0 {
		s.Group, w.group = narrow, int64(narrow)
	}
	d.TakeOver(s)
	if r := &pl.Recipe; facts.zeros == floatZeros && len(r.Layouts) == 0 && len(r.Targets) == 0 {
		d.Rule = &quantizer.Rule{Layouts: []quantizer.LayoutRequest{{Family: quantizer.FamilyKleidiAI}}}
		d.Line.Reason = "not lowbit, which holds no floating-point zero points"
	}
	if err := pl.ChooseLayouts(d, true); err != nil {
		return err
	}
	switch {
	case facts.zeros == floatZeros && !plan.FloatZerosOnly(d.Variants):
		because := ""
		if d.Line.Reason != "" {
			because = " (" + d.Line.Reason + ")"
		}
		return fmt.Errorf("its offsets are no multiples of the scales, which layout %s cannot hold: only qai4c32p of --layout kleidiai can%s", d.Line.Layouts[0], because)
	case facts.zeros == floatZeros:
		d.Zeros, d.Line.ZeroPoints = packing.ZeroF32, rounding.FloatZeros
	case facts.zeros == integerZeros && facts.long && slices.ContainsFunc(d.Variants, func(v plan.Variant) bool { return v.Header().ZeroKind == packing.ZeroF32 }):
		return fmt.Errorf("layout %s holds zero points times scales, which round for scales of more than 16 significant bits: use layout lowbit", d.Line.Layouts[0])
	case facts.zeros == integerZeros:
		d.Zeros, d.Line.ZeroPoints = packing.ZeroInt8, rounding.IntegerZeros
	}
	if e := facts.unfit(s.ScaleDtype, d.Smallest, plan.HoldsZeroScales(d.Variants)); e != nil {
		return e
	}
	if d.Bias == nil {
		d.Bias = pl.FindBias(d)
	}
	if d.Bias != nil {
		d.HoldBias()
	}
	return nil
}

// schemeOf is the scheme with exactly the codes, scales and zero points of a weight.
func schemeOf(w *weight, facts *scaleFacts) (rounding.Scheme, error) {
	s := rounding.Scheme{Bits: w.Scheme.Bits, Mapping: gqf.MappingFullRange, ScaleDtype: plan.ScaleDtype(w.Scheme.Scales), PositiveScales: facts.positive()}
	if facts.zeros != noZeros {
		s.Mapping, s.PositiveScales, s.NegativeScales = gqf.MappingAsymmetric, false, !facts.positive()
	}
	if k := w.Shape[1]; w.Scheme.Group > 0 && w.Scheme.Group < k {
		if w.Scheme.Group == 1 {
			return s, errors.New("the columns of its groups are not consecutive (activation order), and groups of a .gqf file are")
		}
		if w.Scheme.Group%16 != 0 {
			return s, fmt.Errorf("groups of %d weights: a .gqf file has groups of a multiple of 16, or per channel", w.Scheme.Group)
		}
		s.Group = int(w.Scheme.Group)
	}
	return s, nil
}

// narrowGroup is a smaller group than the scheme's with which every target has a layout, if the
// targets have none with the scheme's own group; else 0. Repeating a scale changes no weight.
func narrowGroup(targets []quantizer.Target, s rounding.Scheme, k int64) int {
	const narrow = 32
	wide := int64(s.Group)
	wide = cmp.Or(wide, k)
	if wide <= narrow || wide%narrow != 0 || len(targets) == 0 {
		return 0
	}
	for _, t := range targets {
		if _, err := t.Layout(plan.Widened(s, k, t), k); err == nil {
			return 0
		}
		small := s
		small.Group = narrow
		if _, err := t.Layout(plan.Widened(small, k, t), k); err != nil {
			return 0
		}
	}
	return narrow
}

// sameCodes compares two quantized weights.
func (in *input) sameCodes(a, b string) (same bool, err error) {
	x, y := in.from.quantized.Weight(a), in.from.quantized.Weight(b)
	if x == nil || y == nil || x.Scheme != y.Scheme || !slices.Equal(x.Shape, y.Shape) {
		return false, nil
	}
	var p, q hfquant.Row
	same = true
	err = in.Guard(func() error {
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

func (f *Checkpoint) Input() imports.Input { return &input{from: f, ck: f.ck} }
