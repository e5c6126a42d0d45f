package report

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/accuracy"
)

// place is the position of a tensor in the model: "model.layers.3.mlp.experts.7.down_proj.weight"
// is down_proj in layer 3.
type place struct {
	kind  string
	layer int // -1: in none
}

func placeOf(name string) place {
	p := place{layer: -1}
	for part := range strings.SplitSeq(name, ".") {
		if n, err := strconv.Atoi(part); err == nil {
			if p.layer < 0 {
				p.layer = n
			}
			continue
		}
		if part != "weight" {
			p.kind = part
		}
	}
	p.kind = cmp.Or(p.kind, name)
	return p
}

type kind struct {
	name    string
	tensors []*accuracy.TensorStats // the first variant of each
	totals  accuracy.Totals
	worst   *accuracy.TensorStats
	// output is the tensor with the worst outputs; nil if none were measured.
	output *accuracy.TensorStats
}

// kindsOf lists kinds in the order of a layer, then unusual kinds, then kinds outside of layers.
func kindsOf(r *accuracy.Report) []*kind {
	var kinds []*kind
	inLayers := map[string]bool{}
	for i := range r.Tensors {
		s := &r.Tensors[i]
		if s.Unquantized || s.Variant > 0 {
			continue
		}
		p := placeOf(s.Name)
		at := slices.IndexFunc(kinds, func(k *kind) bool { return k.name == p.kind })
		if at < 0 {
			at = len(kinds)
			kinds = append(kinds, &kind{name: p.kind})
		}
		k := kinds[at]
		inLayers[p.kind] = inLayers[p.kind] || p.layer >= 0
		k.tensors = append(k.tensors, s)
		if k.worst == nil || s.SQNR < k.worst.SQNR {
			k.worst = s
		}
		if s.Output != nil && (k.output == nil || s.Output.SQNR < k.output.Output.SQNR) {
			k.output = s
		}
	}
	for _, k := range kinds {
		stats := make([]accuracy.TensorStats, len(k.tensors))
		for i, s := range k.tensors {
			stats[i] = *s
		}
		k.totals.SumUp(stats)
	}
	rank := func(k *kind) int {
		if !inLayers[k.name] {
			return len(usual) + 1
		}
		if i := slices.Index(usual, k.name); i >= 0 {
			return i
		}
		return len(usual)
	}
	slices.SortStableFunc(kinds, func(a, b *kind) int { return cmp.Compare(rank(a), rank(b)) })
	return kinds
}

// usual are kinds in the order of their use in a layer; files are in alphabetical order.
var usual = []string{"q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj", "gate_proj", "up_proj", "gate_up_proj", "down_proj"}

// bitsOf lists the widths of a kind: "4", "4, 8".
func (k *kind) bitsOf() string {
	var list []int
	for _, s := range k.tensors {
		list = append(list, s.Bits)
	}
	slices.Sort(list)
	var text []string
	for _, b := range slices.Compact(list) {
		text = append(text, strconv.Itoa(b))
	}
	return strings.Join(text, ", ")
}

// byLoss lists the quantized tensors, first variants only, the largest loss first: by their outputs
// if all were measured, else by their weights.
func byLoss(r *accuracy.Report) []*accuracy.TensorStats {
	var list []*accuracy.TensorStats
	for i := range r.Tensors {
		if s := &r.Tensors[i]; !s.Unquantized && s.Variant == 0 {
			list = append(list, s)
		}
	}
	loss := func(s *accuracy.TensorStats) accuracy.Decibels {
		if s.Output != nil {
			return s.Output.SQNR
		}
		return s.SQNR
	}
	slices.SortStableFunc(list, func(a, b *accuracy.TensorStats) int { return cmp.Compare(loss(a), loss(b)) })
	return list
}
