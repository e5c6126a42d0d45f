package fromgqf

import (
	"encoding/json"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

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

// matchAny returns the rule for any name of an item.
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
