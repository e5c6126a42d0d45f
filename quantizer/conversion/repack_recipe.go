package conversion

import (
	"encoding/json"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// repackedRecipe is the recipe of the file with the layouts that the plan has.
func (in *fileInput) repackedRecipe(pl *planner, name string) (gqf.PackedAsset, error) {
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
	r.Layouts, r.Targets, r.Tile = in.recipe.Layouts, in.recipe.Targets, in.recipe.Tile
	var first []quantizer.Rule
	if len(old.Targets) > 0 { // they chose schemes, which a repack keeps
		if r, first, err = pl.restate(r, old.CheckpointFormat() != ""); err != nil {
			return gqf.PackedAsset{}, err
		}
	}
	if data, err = r.JSON(first); err != nil {
		return gqf.PackedAsset{}, err
	}
	return gqf.PackAsset(gqf.AssetSpec{Kind: gqf.AssetRecipe, Name: name, Data: data})
}

// repackedProvenance is the provenance of the file without the version of its calibration: calibration
// for other layouts may choose other codes, since it knows the smallest scale that they hold.
func (in *fileInput) repackedProvenance(name string) (gqf.PackedAsset, error) {
	data, err := in.gqf.Asset(name)
	if err != nil {
		return gqf.PackedAsset{}, err
	}
	var prov Provenance
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
	group := s.Group
	if group == 0 {
		group = quantizer.PerChannel
	}
	return stated{s.Bits, group, s.Mapping, s.ScaleDtype}
}

// restate makes a recipe state the schemes that the plan's tensors have: the most frequent one, the
// embedding's, and rules, which precede its own, for tensors that have others. skip tells that an
// unquantized embedding or lm_head needs a rule too.
func (pl *planner) restate(r quantizer.Recipe, skip bool) (quantizer.Recipe, []quantizer.Rule, error) {
	count, usual := map[stated]int{}, stated{}
	var embedding *quantized
	for it := range pl.quantized() {
		if it.role == gqf.RoleEmbedding {
			embedding = it
			continue
		}
		s := stateOf(it.scheme)
		if count[s]++; count[s] > count[usual] {
			usual = s
		}
	}
	if usual.bits != 0 {
		r.Bits, r.Group, r.Mapping, r.ScaleDtype = usual.bits, usual.group, usual.mapping, usual.scales
	}
	if embedding != nil {
		s := stateOf(embedding.scheme)
		r.EmbeddingBits, r.EmbeddingGroup = s.bits, s.group
	}
	set, err := quantizer.NewRuleSet(r, nil)
	if err != nil {
		return r, nil, err
	}
	var first []quantizer.Rule
	for _, it := range pl.items {
		e := it.common()
		rule, matched := pl.matchAny(set, e)
		q, ok := it.(*quantized)
		if !ok {
			if unserved := e.role == gqf.RoleEmbedding || e.role == gqf.RoleHead; skip && unserved && !(matched && rule.Skip) {
				first = append(first, quantizer.Rule{Match: e.name(), Skip: true})
			}
			continue
		}
		s, err := quantizer.AdaptToTargets(r.Scheme(e.role, rule), q.cols, r.Targets, r.ScaleStated(rule))
		if have := stateOf(q.scheme); err != nil || stateOf(s) != have {
			exact := quantizer.Rule{}
			if matched {
				exact = *rule
			}
			exact.Match, exact.Bits, exact.Group, exact.Mapping, exact.ScaleDtype = e.name(), have.bits, have.group, have.mapping, have.scales
			first = append(first, exact)
		}
	}
	return r, first, nil
}

// matchAny returns the rule for any name of an item.
func (pl *planner) matchAny(set *quantizer.RuleSet, e *entry) (*quantizer.Rule, bool) {
	for _, name := range pl.in.names(e) {
		if rule, ok := set.Match(name); ok {
			return rule, true
		}
	}
	return nil, false
}
