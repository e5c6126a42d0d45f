package hfquant

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lowbit-go/gq/internal/jsonscan"
	"github.com/lowbit-go/gq/packing"
)

// torchAOEntry is what TorchAoConfig of transformers writes. The metadata of the files say how each
// weight is quantized; the entry names configurations of torchao that would have made the weights.
type torchAOEntry struct {
	Embeddings bool                     `json:"include_input_output_embeddings"`
	Skip       []string                 `json:"modules_to_not_convert"`
	Method     string                   `json:"quant_method"`
	Type       map[string]torchAOObject `json:"quant_type"`
	Untie      bool                     `json:"untie_embedding_weights"`
}

// torchAOObject is an object in the form of torchao's config_to_dict.
type torchAOObject struct {
	Type    string `json:"_type"`
	Version int    `json:"_version,omitempty"`
	Data    any    `json:"_data"`
}

// torchAOActivations is how linear layers quantize activations, as the conversion of a model to
// torchao's kernels for Arm CPUs demands.
const torchAOActivations = "int8_asym_per_token"

// configTorchAO is Format.Config. The metadata name every tensor: vLLM ignores other tensors.
func configTorchAO(_ Format, config []byte, weights []ModelWeight) ([]byte, map[string]string, error) {
	e := torchAOEntry{Skip: []string{}, Method: "torchao"}
	metadata := map[string]string{}
	objects := map[string]torchAOObject{} // by module
	var first torchAOObject
	same := true
	dtype, err := modelDtype(config, weights)
	if err != nil {
		return nil, nil, err
	}
	names := make([]string, len(weights))
	for i, w := range weights {
		module, last := splitName(w.Name)
		if module == "" || metadata[w.Name] != "" || w.Name == torchAONames {
			return nil, nil, fmt.Errorf("tensor %s: torchao needs names \"module.tensor\", each once", quote(w.Name))
		}
		module = strings.TrimSuffix(module, ".")
		names[i] = w.Name
		if w.Scheme == nil {
			metadata[w.Name] = pythonJSON(torchAOClass{Type: "Tensor"})
			if w.Linear {
				e.Skip = append(e.Skip, module)
			}
			continue
		}
		if last != "weight" {
			return nil, nil, fmt.Errorf("tensor %s: only tensors called weight can be quantized; leave it unquantized", quote(w.Name))
		}
		if len(w.Shape) != 2 {
			return nil, nil, fmt.Errorf("tensor %s: its shape is %v, expected [rows, columns]", quote(w.Name), w.Shape)
		}
		metadata[w.Name] = pythonJSON(classTorchAO(&weights[i], cmp.Or(dtype, w.Scheme.Scales)))
		e.Embeddings = e.Embeddings || !w.Linear || module == "lm_head"
		o := objectTorchAO(&weights[i])
		if len(objects) == 0 {
			first = o
		}
		same = same && pythonJSON(o) == pythonJSON(first)
		objects[module] = o
	}
	metadata[torchAONames] = pythonJSON(names)
	if !same {
		first = torchAOObject{"FqnToConfig", 1, map[string]any{"fqn_to_config": objects}}
	}
	e.Type = map[string]torchAOObject{"default": first}
	if len(objects) == 0 {
		return nil, nil, errNothingQuantized
	}
	out, err := WithEntry(config, "quantization_config", e)
	return out, metadata, err
}

// classTorchAO is the metadata of a quantized weight. Weights are dequantized to dtype.
func classTorchAO(w *ModelWeight, dtype packing.Dtype) torchAOClass {
	fields := &torchAOFields{
		Target: torchAODtype{"torch.dtype", fmt.Sprintf("int%d", w.Scheme.Bits)},
		Block:  []int64{1, w.Scheme.Group},
		Dtype:  torchAODtype{"torch.dtype", torchDtypes[dtype]},
	}
	if w.Scheme.Group == 0 {
		fields.Block[1] = w.Shape[1]
	}
	if w.Linear {
		s := torchAOActivations
		fields.Activations = &s
	}
	return torchAOClass{torchAOTensor, fields, torchAOParts}
}

// objectTorchAO is the configuration that would quantize w. Absent fields have their defaults.
func objectTorchAO(w *ModelWeight) torchAOObject {
	granularity := torchAOObject{"PerGroup", 1, map[string]any{"group_size": w.Scheme.Group}}
	if w.Scheme.Group == 0 {
		granularity = torchAOObject{"PerAxis", 1, map[string]any{"axis": 0}}
	}
	mapping := torchAODtype{"MappingType", "SYMMETRIC"}
	if w.Scheme.Zeros == IntZeros {
		mapping.Data = "ASYMMETRIC"
	}
	name, prefix := "IntxWeightOnlyConfig", ""
	if w.Linear {
		name, prefix = "Int8DynamicActivationIntxWeightConfig", "weight_"
	}
	return torchAOObject{name, 2, map[string]any{
		"weight_dtype":          torchAODtype{"torch.dtype", fmt.Sprintf("int%d", w.Scheme.Bits)},
		prefix + "granularity":  granularity,
		prefix + "mapping_type": mapping,
	}}
}

// torchDtypes are torch's names of the dtypes that a model computes in.
var torchDtypes = map[packing.Dtype]string{packing.BF16: "bfloat16", packing.F16: "float16", packing.F32: "float32"}

// modelDtype is the dtype that config.json names, else of the first unquantized tensor, as
// Transformers decides; or DtypeNone.
func modelDtype(config []byte, weights []ModelWeight) (packing.Dtype, error) {
	var c struct {
		Dtype string `json:"dtype"`
		Torch string `json:"torch_dtype"`
		Text  struct {
			Dtype string `json:"dtype"`
			Torch string `json:"torch_dtype"`
		} `json:"text_config"`
	}
	if err := json.Unmarshal(jsonscan.Finite(config), &c); err != nil {
		return packing.DtypeNone, err
	}
	name := cmp.Or(c.Dtype, c.Torch, c.Text.Dtype, c.Text.Torch)
	for d, torch := range torchDtypes {
		if name == torch {
			return d, nil
		}
	}
	for _, w := range weights {
		if torchDtypes[w.Dtype] != "" {
			return w.Dtype, nil
		}
	}
	return packing.DtypeNone, nil
}

// pythonJSON is v in JSON with a space after each comma and colon, as from Python's json.dumps.
func pythonJSON(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // the types above have no values that cannot be encoded
	}
	var out strings.Builder
	inString := false
	for i, c := range bytes.TrimSuffix(b.Bytes(), []byte("\n")) {
		out.WriteByte(c)
		switch {
		case c == '"' && (i-len(bytes.TrimRight(b.Bytes()[:i], `\`)))%2 == 0: // not escaped
			inString = !inString
		case !inString && (c == ',' || c == ':'):
			out.WriteByte(' ')
		}
	}
	return out.String()
}
