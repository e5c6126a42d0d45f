package hfquant

import "slices"

// mergedLayers are the layers that vLLM merges from several. vLLM can load such a layer only if all
// parts have the same scheme, or none is quantized.
var mergedLayers = []struct {
	name  string
	parts []string
}{
	{"qkv_proj", []string{"q_proj", "k_proj", "v_proj"}},
	{"gate_up_proj", []string{"gate_proj", "up_proj"}},
}

// MergedName is the name of a weight with the layer after vLLM's merge:
// "model.layers.0.mlp.gate_up_proj.weight" for gate and up. Other names do not change.
func MergedName(tensor string) string {
	module, last := splitName(tensor)
	if last != "weight" || module == "" {
		return tensor
	}
	parent, part := splitName(module[:len(module)-1])
	for _, m := range mergedLayers {
		if slices.Contains(m.parts, part) {
			return parent + m.name + ".weight"
		}
	}
	return tensor
}

// UnevenLayers lists, in order of weights, the first parts of layers that vLLM merges with others
// of another scheme, so that vLLM cannot load the model.
func UnevenLayers(weights []ModelWeight) []string {
	schemes := map[string]Scheme{} // of modules; the zero value: not quantized
	for _, w := range weights {
		module, last := splitName(w.Name)
		if last != "weight" || module == "" || !w.Linear {
			continue
		}
		var s Scheme
		if w.Scheme != nil {
			s = Scheme{Bits: w.Scheme.Bits, Group: w.Scheme.Group, Zeros: w.Scheme.Zeros}
		}
		schemes[module[:len(module)-1]] = s
	}
	var uneven []string
	for _, w := range weights {
		module, last := splitName(w.Name)
		if last != "weight" || module == "" {
			continue
		}
		parent, part := splitName(module[:len(module)-1])
		for _, m := range mergedLayers {
			if part == m.parts[0] && slices.ContainsFunc(m.parts, func(other string) bool {
				s, ok := schemes[parent+other]
				return ok && s != schemes[parent+part]
			}) {
				uneven = append(uneven, w.Name)
			}
		}
	}
	return uneven
}

// OddKernels lists the weights in format GPTQ that vLLM has no kernel for. If most weights are
// symmetric, with 4 or 8 bits in groups that its kernel Marlin takes, vLLM multiplies all weights
// with Marlin, and cannot load the model.
func OddKernels(weights []ModelWeight) []string {
	marlin := func(s Scheme) bool {
		return (s.Bits == 4 || s.Bits == 8) && slices.Contains([]int64{0, 32, 64, 128}, s.Group) && s.Zeros == NoZeros
	}
	usual, err := usualScheme(weights)
	if err != nil || !marlin(usual) {
		return nil
	}
	var odd []string
	for _, w := range weights {
		switch {
		case w.Scheme == nil:
		case w.Scheme.Zeros != NoZeros: // then all have zero points
			return nil
		case !marlin(*w.Scheme):
			odd = append(odd, w.Name)
		}
	}
	return odd
}
