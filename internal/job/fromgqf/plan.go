// Package fromgqf takes the codes of a .gqf file over, for a repack or for another program's
// format.
package fromgqf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"unique"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Repack lays out the job of putting the tensors of the file into other layouts, without the
// checkpoint and without changing a code, scale, zero point or bias. Scales may be stored wider
// (BF16 as F32, exactly), never narrower.
func (in *Input) Repack(out write.Output, recipe quantizer.Recipe, threads int) (*write.Job, error) {
	in.pl = plan.NewPlanner(out, recipe, threads)
	return in.plan(out, nil)
}

// Export lays out the job of writing the model in the file as another output with the same codes
// and scales. what names the output in messages. It fails with a *quantizer.RequestError for a
// tensor that the output cannot hold exactly. gguf tells that the output is a .gguf file.
func (in *Input) Export(out write.Output, what string, gguf bool, threads int) (*write.Job, error) {
	in.pl = plan.NewPlanner(out, quantizer.Recipe{}, threads)
	var err error
	if in.pl.Config, err = in.gqf.Asset(assets.ConfigName); err != nil {
		return nil, fmt.Errorf("%s holds no config.json, which says what the model is: quantize the checkpoint again, with its config.json", in.path)
	}
	sources, err := in.sources(what)
	if err != nil {
		return nil, err
	}
	if gguf {
		return in.plan(out, sources, in.findUnfit)
	}
	return in.plan(out, sources)
}

// Dequantize lays out the job of writing all weights as floating-point numbers. as is the dtype of
// an unquantized tensor in the output; DtypeNone: the tensor keeps its bytes.
func (in *Input) Dequantize(out write.Output, threads int, as func(name string) packing.Dtype) (j *write.Job, err error) {
	in.as = as
	in.pl = plan.NewPlanner(out, quantizer.Recipe{}, threads)
	if in.gqf.HasAsset(assets.ConfigName) {
		if in.pl.Config, err = in.gqf.Asset(assets.ConfigName); err != nil {
			return nil, err
		}
	}
	return in.plan(out, nil)
}

// plan makes the items of the file's tensors. then are called with the items.
func (in *Input) plan(out write.Output, sources []llamacpp.Source, then ...func() error) (*write.Job, error) {
	pl, n := in.pl, in.gqf.Len()
	if err := out.Begin(pl, func() ([]llamacpp.Source, error) { return sources, nil }); err != nil {
		return nil, err
	}
	pl.Items, pl.Tensors = make([]plan.Item, 0, n), make([]*plan.Tensor, 0, n)
	for i := range n {
		it, err := in.item(in.gqf.Tensor(i))
		if err != nil {
			return nil, err
		}
		pl.Items = append(pl.Items, it)
	}
	for _, do := range then {
		if err := do(); err != nil {
			return nil, err
		}
	}
	if err := pl.LayOut(); err != nil {
		return nil, err
	}
	return write.New(pl.Plan, in, out)
}

func (in *Input) item(t gqf.Tensor) (plan.Item, error) {
	pl := in.pl
	v, ok := t.Payload(0, 0, gqf.KindWeights)
	if !ok {
		return nil, t.Usable()
	}
	h := v.Header
	// In one piece, because the allocator rounds each piece up.
	parts := &struct {
		src  safetensors.Tensor
		line plan.Tensor
	}{}
	parts.src = safetensors.Tensor{Name: t.Name, Dtype: t.Dtype, DtypeName: t.Dtype.String(), Shape: t.Shape, Size: v.Length - packing.HeaderSize}
	parts.line = plan.Tensor{Name: t.Name, Role: t.Role, Shape: t.Shape, Dtype: parts.src.DtypeName, Action: plan.ActionUnquantized, Scheme: new(plan.Scheme)}
	e := plan.Entry{Src: &parts.src, Line: &parts.line, Role: t.Role, BiasLink: int32(t.Bias + 1)}
	pl.SourceBytes += int64(t.Experts) * e.Src.Size
	names := t.Names()
	for _, name := range names[1:] {
		pl.Share(&e, plan.NameRef{Src: safetensors.Tensor{Name: name}, Absent: true}, "")
	}
	if h.Layout == packing.LayoutPlain {
		e.Src.Size *= int64(t.Experts)
		u := &plan.Unquantized{Entry: e, Head: unique.Make(packing.PlainHeader(t.Dtype, uint64(t.Experts)*h.Rows, h.Cols))}
		u.Slices, u.Rows, u.Cols = plan.SliceShape(t.Shape, false)
		if in.as != nil {
			u.As = in.as(t.Name)
		}
		return u, nil
	}
	it := &plan.Draft{
		Entry: e, Quantize: true,
		Form: plan.Form{Slices: t.Experts, Transposed: t.Transposed, Shared: len(names) > 1, Rows: int64(h.Rows), Cols: int64(h.Cols)},
	}
	it.Src.Size = int64(t.Experts) * it.Rows * it.Cols // as the codes that are read
	it.Scheme = rounding.Scheme{
		Bits: int(h.Bits), Group: int(h.Group), Mapping: t.Mapping, ScaleDtype: h.ScaleDtype,
		PositiveScales: h.Flags&packing.FlagPositiveScales != 0, Fractions: h.ZeroKind == packing.ZeroFraction,
	}
	// A tensor's mapping only informs; the grid is a fact.
	if h.Grid == packing.GridHalfStep {
		it.Scheme.Mapping = gqf.MappingHalfStep
	} else if t.Mapping == gqf.MappingHalfStep {
		it.Scheme.Mapping = gqf.MappingNone
	}
	it.Scheme.NegativeScales = it.Scheme.Mapping == gqf.MappingAsymmetric && !it.Scheme.PositiveScales
	it.Smallest = it.Scheme.ScaleDtype.Smallest()
	it.Line.SetScheme(it.Scheme, t.Algorithm)
	if err := pl.Out.Take(pl, it, plan.FileTensor{Tensor: t, Header: h, File: in.gqf, Path: in.path}); err != nil {
		return nil, err
	}
	return pl.Item(it), nil
}

// findUnfit finds the tensors that the file's recipe, of target gguf, left unquantized because of
// their rows.
func (in *Input) findUnfit() error {
	pl := in.pl
	data, err := in.Asset(gqf.RecipeName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	r, err := quantizer.ParseRecipe(gqf.RecipeName, data)
	if err != nil || !r.ForGGUF() {
		return err
	}
	set, err := quantizer.NewRuleSet(r, nil)
	if err != nil {
		return err
	}
	cfg, err := arch.ParseConfig(pl.Config)
	if err != nil {
		return err
	}
	for _, it := range pl.Items {
		u, ok := it.(*plan.Unquantized)
		if !ok || !arch.Classify(cfg, u.Name(), u.Src.Shape).Quantize {
			continue
		}
		if rule, ok := matchAny(set, &u.Entry); !ok || !rule.Skip {
			pl.MarkUnfit(&u.Entry, "rows", u.Cols)
		}
	}
	return nil
}

// sources lists the tensors of the file, for llama.cpp's description of the model. what names the
// output in errors: "a .gguf file".
func (in *Input) sources(what string) (list []llamacpp.Source, err error) {
	for i := range in.gqf.Len() {
		t := in.gqf.Tensor(i)
		if weight, ok := arch.ScaleOf(t.Name); ok {
			if w, ok := in.gqf.Lookup(weight); ok {
				return nil, fmt.Errorf("%s: tensor %q is unquantized with scales of its own, which %s has no place for: quantize the checkpoint to it with gq quantize --target", in.path, w.Name, what)
			}
		}
		shape := plan.LogicalShape(t.Shape, t.Transposed)
		for j, name := range t.Names() {
			s := llamacpp.Source{Name: name, Shape: shape}
			if j > 0 {
				s.Same = t.Name
			}
			list = append(list, s)
		}
	}
	return list, nil
}

// repackedRecipe is the recipe of the file with the layouts that the plan has.
func (in *Input) repackedRecipe(name string) (gqf.PackedAsset, error) {
	data, err := in.gqf.Asset(name)
	if err != nil {
		return gqf.PackedAsset{}, err
	}
	r, err := quantizer.ParseRecipe(name, data)
	if err != nil {
		return gqf.PackedAsset{}, err
	}
	if r.Algorithm == gqf.AlgorithmNone { // of a file made before there were others
		r.Algorithm = gqf.AlgorithmRTN
	}
	old := r
	r.Layouts, r.Targets = in.pl.Recipe.Layouts, in.pl.Recipe.Targets
	var first []quantizer.Rule
	if len(old.Targets) > 0 { // they chose schemes, which a repack keeps
		if r, first, err = restate(in.pl, r, old.CheckpointFormat() != ""); err != nil {
			return gqf.PackedAsset{}, err
		}
	}
	if data, err = r.JSON(first); err != nil {
		return gqf.PackedAsset{}, err
	}
	return gqf.PackAsset(gqf.AssetSpec{Kind: gqf.AssetRecipe, Name: name, Data: data})
}

// repackedProvenance is the provenance of the file without the version of its calibration:
// calibration for other layouts may choose other codes, since it knows the smallest scale that they
// hold.
func (in *Input) repackedProvenance(name string) (gqf.PackedAsset, error) {
	data, err := in.gqf.Asset(name)
	if err != nil {
		return gqf.PackedAsset{}, err
	}
	var prov provenance.Provenance
	if json.Unmarshal(data, &prov) != nil || prov.Calibration == nil || prov.Calibration.Version == 0 {
		return in.gqf.PackedAsset(name)
	}
	prov.Calibration.Version = 0
	if data, err = json.MarshalIndent(prov, "", "  "); err != nil {
		return gqf.PackedAsset{}, err
	}
	return gqf.PackAsset(gqf.AssetSpec{Kind: gqf.AssetProvenance, Name: name, Data: data})
}

// stated is the part of a scheme that a recipe states.
type stated struct {
	bits, group int
	mapping     gqf.Mapping
	scales      packing.ScaleDtype
}

func stateOf(s rounding.Scheme) stated {
	return stated{s.Bits, s.Group, s.Mapping, s.ScaleDtype}
}

// restate makes a recipe state the schemes that the plan's tensors have: the most frequent one, the
// embedding's, and rules, which precede its own, for tensors that have others. skip tells that an
// unquantized embedding or lm_head needs a rule too.
func restate(pl *plan.Planner, r quantizer.Recipe, skip bool) (quantizer.Recipe, []quantizer.Rule, error) {
	count, usual := map[stated]int{}, stated{}
	var embedding *plan.Quantized
	for it := range pl.Quantized() {
		if it.Role == gqf.RoleEmbedding {
			embedding = it
			continue
		}
		s := stateOf(it.Scheme)
		if count[s]++; count[s] > count[usual] {
			usual = s
		}
	}
	if usual.bits != 0 {
		r.Bits, r.Group, r.Mapping, r.ScaleDtype = usual.bits, &usual.group, usual.mapping, usual.scales
	}
	if embedding != nil {
		s := stateOf(embedding.Scheme)
		r.EmbeddingBits, r.EmbeddingGroup = s.bits, &s.group
	}
	set, err := quantizer.NewRuleSet(r, nil)
	if err != nil {
		return r, nil, err
	}
	var first []quantizer.Rule
	for _, it := range pl.Items {
		e := it.Common()
		rule, matched := matchAny(set, e)
		q, ok := it.(*plan.Quantized)
		if !ok {
			if unserved := e.Role == gqf.RoleEmbedding || e.Role == gqf.RoleHead; skip && unserved && !(matched && rule.Skip) {
				first = append(first, quantizer.Rule{Match: e.Name(), Skip: true})
			}
			continue
		}
		s, err := r.AdaptToTargets(r.Scheme(e.Role, rule), q.Cols, rule)
		if have := stateOf(q.Scheme); err != nil || stateOf(s) != have {
			exact := quantizer.Rule{}
			if matched {
				exact = *rule
			}
			exact.Match, exact.Bits, exact.Group, exact.Mapping, exact.ScaleDtype = e.Name(), have.bits, &have.group, have.mapping, have.scales
			first = append(first, exact)
		}
	}
	return r, first, nil
}

func matchAny(set *quantizer.RuleSet, e *plan.Entry) (*quantizer.Rule, bool) {
	for _, name := range e.Names() {
		if rule, ok := set.Match(name); ok {
			return rule, true
		}
	}
	return nil, false
}

// FileAssets takes over all assets; the recipe states the layout of the new file.
func (in *Input) FileAssets() (list []gqf.PackedAsset, err error) {
	for _, a := range in.gqf.Assets() {
		if !a.Kind.Known() {
			in.pl.Warn("asset %q is of a kind that this version does not know, and is left out: use a newer gq", a.Name)
			continue
		}
		get := in.gqf.PackedAsset
		switch a.Kind {
		case gqf.AssetRecipe:
			get = in.repackedRecipe
		case gqf.AssetProvenance:
			get = in.repackedProvenance
		}
		packed, err := get(a.Name)
		if err != nil {
			return nil, err
		}
		list = append(list, packed)
	}
	return list, nil
}
