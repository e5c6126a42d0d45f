package hfquant

import (
	"encoding/json"
	"strings"
)

// AutoRound stores weights as GPTQ or AWQ does. packing_format in config.json says how:
//
//	auto_round:auto_gptq    as GPTQ with zero points less 1
//	auto_round:gptqmodel    as GPTQ with unchanged zero points
//	auto_round              the same
//	auto_round:auto_awq     as version gemm of AWQ
//
// Codes have 2 to 8 bits. extra_config has other schemes of modules, by names or patterns.
//
// Source: export/export_to_autoround/export.py and inference/convert_model.py of AutoRound.

// findAutoRound lists the weights that AutoRound quantized in its own format.
func findAutoRound(f *finder) error {
	c := struct {
		gptqConfig
		Packing string                     `json:"packing_format"`
		Extra   map[string]json.RawMessage `json:"extra_config"`
		Rotated json.RawMessage            `json:"rotation_config"`
	}{}
	if err := f.readEntry(&c); err != nil {
		return err
	}
	c.Dynamic = c.Extra
	if c.Rotated != nil {
		return f.unsupported("", "rotation_config: weights that are multiplied with rotated activations are not read")
	}
	switch p := strings.TrimPrefix(c.Packing, "auto_round"); p {
	case ":auto_gptq", ":gptq":
		return f.addAllGPTQ(&c.gptqConfig, 1)
	case "", ":gptqmodel":
		return f.addAllGPTQ(&c.gptqConfig, 0)
	case ":auto_awq", ":awq":
		return findAWQ(f)
	}
	for _, t := range f.ck.Tensors() { // FP8 weights are in "weight"
		if _, last := splitName(t.Name); last == "qweight" || last == "weight_packed" {
			return f.unsupported(t.Name, "packing_format %s is not read: only auto_round and its auto_gptq, gptqmodel and auto_awq are", quote(c.Packing))
		}
	}
	return nil
}
