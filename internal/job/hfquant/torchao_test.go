package hfquant

import (
	"maps"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// TestTorchAOVectors reads what torchao flattened, and writes it back byte for byte, with the same
// metadata.
func TestTorchAOVectors(t *testing.T) {
	for _, v := range vectors(t, "torchao") {
		t.Run(v.name(), func(t *testing.T) {
			ck := storeIn(t, t.TempDir(), v.Metadata, v.stored()...)
			w := findOne(t, ck, string(v.Config))
			rows := readAll(t, w)
			v.check(t, w, rows)
			if got := sumOf(w.Scheme, rows, false); got != v.Dequantized {
				t.Errorf("the weights differ: SHA-256 %s, want %s", got, v.Dequantized)
			}
			if strings.Contains(v.Metadata["m.weight"], torchAOInt8Tensor) {
				return // read only
			}
			l, err := TorchAO.NewLayout(w.Name, w.Shape, w.Scheme)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []int64{1, 3, v.N} {
				v.equalParts(t, putAll(t, l, rows, step))
			}
			config, metadata, err := TorchAO.Config([]byte("{}"), []ModelWeight{
				{Name: w.Name, Shape: w.Shape, Scheme: &w.Scheme, Linear: v.Linear},
				{Name: "m.bias", Shape: w.Shape[:1]},
			})
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(metadata, v.Metadata) {
				t.Errorf("metadata %q, want %q", metadata, v.Metadata)
			}
			if again := findOne(t, ck, string(config)); again.Scheme != w.Scheme {
				t.Errorf("with its own config the scheme is %v, want %v", again.Scheme, w.Scheme)
			}
		})
	}
}

// TestTorchAORefused looks for the errors that name what cannot be read.
func TestTorchAORefused(t *testing.T) {
	const class = `{"_type": "IntxUnpackedToInt8Tensor", "_data": {"target_dtype": {"_type": "torch.dtype", "_data": "int4"}, "block_size": [1, 16]}}`
	for _, tt := range []struct {
		name, class string
		change      func(m map[string]stored)
		want        string // "" if it is read
	}{
		{"good", class, nil, ""},
		{"another class", `{"_type": "Float8Tensor", "_data": {"block_size": 3}}`, nil, `tensor "m.weight": torchao's class "Float8Tensor" is not read, only IntxUnpackedToInt8Tensor and Int8Tensor`},
		{"no JSON", `{"_type": `, nil, `tensor "m.weight": metadata: unexpected end of JSON input`},
		{"no type", `{"_type": null}`, nil, `torchao's class "" is not read`},
		{"no dtype", `{"_type": "IntxUnpackedToInt8Tensor"}`, nil, `metadata: target_dtype is not one of int1 to int8`},
		{"unsigned", strings.Replace(class, "int4", "uint4", 1), nil, `metadata: target_dtype is not one of int1 to int8`},
		{"blocks of rows", strings.Replace(class, "[1, 16]", "[2, 16]", 1), nil, `shape [4 64] in blocks of [2 16]: blocks must be [1 or all rows, columns that divide a row]`},
		{"rows that share scales", strings.Replace(class, "[1, 16]", "[4, 16]", 1), func(m map[string]stored) {
			m["_weight_scale"] = floatTensor("_weight_scale", []int64{1, 4}, 1, 2, 3, 4)
			m["_weight_zero_point"] = int8Tensor("_weight_zero_point", []int64{1, 4}, 1, 2, 3, 4)
		}, ""},
		{"a part twice", `{"_type": "Int8Tensor", "_data": {"block_size": [1, 16]}, "_tensor_data_names": ["scale", "qdata", "scale"]}`, nil, ""},
		{"a part that is not there", `{"_type": "Int8Tensor", "_data": {"block_size": [1, 16]}, "_tensor_data_names": ["qdata", "act_quant_scale"]}`, nil, `tensor "m.weight": the checkpoint has no tensor "m._weight_act_quant_scale"`},
		{"scaled activations", `{"_type": "Int8Tensor", "_data": {"block_size": [1, 16]}, "_tensor_data_names": ["act_pre_scale", "qdata", "scale"]}`, nil, `metadata: act_pre_scale: weights whose activations are scaled are not read`},
		{"blocks that do not divide", strings.Replace(class, "[1, 16]", "[1, 48]", 1), nil, `shape [4 64] in blocks of [1 48]`},
		{"blocks of nothing", strings.Replace(class, "[1, 16]", "[1, 0]", 1), nil, `shape [4 64] in blocks of [1 0]`},
		{"blocks of a convolution", strings.Replace(class, "[1, 16]", "[1, 16, 1, 1]", 1), nil, `shape [4 64] in blocks of [1 16 1 1], expected [rows, columns]`},
		{"other scales", strings.Replace(class, "[1, 16]", "[1, 32]", 1), nil, `tensor "m._weight_scale": shape [4 4], but "m.weight" needs shape [4 2]`},
		{"no codes", class, func(m map[string]stored) { delete(m, "_weight_qdata") }, `tensor "m.weight": the checkpoint has no tensor "m._weight_qdata"`},
		{"no zero points", class, func(m map[string]stored) { delete(m, "_weight_zero_point") }, `the checkpoint has no tensor "m._weight_zero_point"`},
		{"floating-point zero points", class, func(m map[string]stored) {
			m["_weight_zero_point"] = floatTensor("_weight_zero_point", []int64{4, 4}, make([]float32, 16)...)
		}, `tensor "m._weight_zero_point": dtype F32, expected I8`},
		{"codes of more bits", class, func(m map[string]stored) {
			m["_weight_qdata"] = int8Tensor("_weight_qdata", []int64{4, 64}, repeat(256, func(int) int8 { return -9 })...)
		}, `tensor "m._weight_qdata": row 0 has the value -9 in column 0, outside of -8 .. 7 of 4 bits`},
		{"codes that nothing describes", class, func(m map[string]stored) {
			m["x"] = int8Tensor("_other_qdata", []int64{1, 1}, 0)
		}, `tensor "m._other_qdata": no __metadata__ describes it as torchao does`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tensors, _ := module(t, TorchAO, Scheme{Bits: 4, Group: 16, Scales: packing.BF16}, 4, 64)
			if tt.change != nil {
				tt.change(tensors)
			}
			metadata := map[string]string{"tensor_names": `["m.weight"]`, "m.weight": tt.class}
			// The metadata are enough: config.json need not say anything.
			q, err := Find(storeIn(t, t.TempDir(), metadata, tensorsOf(tensors)...), nil)
			if err == nil && q != nil {
				err = q.Weights[0].Read(new(Row), 0)
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

// TestTorchAOConfig compares the entry with what TorchAoConfig of transformers would write, less
// the fields that have their defaults.
func TestTorchAOConfig(t *testing.T) {
	w4 := &Scheme{Bits: 4, Group: 32, Scales: packing.BF16}
	linear := func(name string, s *Scheme) ModelWeight {
		return ModelWeight{Name: name + ".weight", Shape: []int64{8, 64}, Scheme: s, Linear: true}
	}
	e := entryOf(t, TorchAO, []ModelWeight{linear("up", w4), linear("gate", nil), {Name: "norm.weight", Shape: []int64{64}}})
	equalJSON(t, "one scheme", e, `{"include_input_output_embeddings": false, "modules_to_not_convert": ["gate"], "quant_method": "torchao",
		"quant_type": {"default": {"_type": "Int8DynamicActivationIntxWeightConfig", "_version": 2, "_data": {
			"weight_dtype": {"_type": "torch.dtype", "_data": "int4"},
			"weight_granularity": {"_type": "PerGroup", "_version": 1, "_data": {"group_size": 32}},
			"weight_mapping_type": {"_type": "MappingType", "_data": "SYMMETRIC"}}}},
		"untie_embedding_weights": false}`)

	embedding := ModelWeight{Name: "embed.weight", Shape: []int64{8, 64}, Scheme: &Scheme{Bits: 8, Scales: packing.BF16, Zeros: IntZeros}}
	e = entryOf(t, TorchAO, []ModelWeight{linear("up", w4), embedding})
	equalJSON(t, "two schemes", e["quant_type"], `{"default": {"_type": "FqnToConfig", "_version": 1, "_data": {"fqn_to_config": {
		"up": {"_type": "Int8DynamicActivationIntxWeightConfig", "_version": 2, "_data": {
			"weight_dtype": {"_type": "torch.dtype", "_data": "int4"},
			"weight_granularity": {"_type": "PerGroup", "_version": 1, "_data": {"group_size": 32}},
			"weight_mapping_type": {"_type": "MappingType", "_data": "SYMMETRIC"}}},
		"embed": {"_type": "IntxWeightOnlyConfig", "_version": 2, "_data": {
			"weight_dtype": {"_type": "torch.dtype", "_data": "int8"},
			"granularity": {"_type": "PerAxis", "_version": 1, "_data": {"axis": 0}},
			"mapping_type": {"_type": "MappingType", "_data": "ASYMMETRIC"}}}}}}}`)
	if e["include_input_output_embeddings"] != true {
		t.Error("the embedding is not included")
	}

	// Weights are dequantized to the dtype of the model.
	for config, want := range map[string]string{`{"torch_dtype": "float16"}`: "float16", `{"text_config": {"dtype": "float32"}, "x": Infinity}`: "float32", `{"dtype": "auto"}`: "bfloat16"} {
		_, metadata, err := TorchAO.Config([]byte(config), []ModelWeight{linear("up", w4)})
		if err != nil || !strings.Contains(metadata["up.weight"], `"dtype": {"_type": "torch.dtype", "_data": "`+want+`"}`) {
			t.Errorf("%s: %q, %v", config, metadata, err)
		}
	}

	// Without a statement, Transformers computes in the dtype of the first unquantized tensor.
	norm := ModelWeight{Name: "norm.weight", Shape: []int64{8}, Dtype: packing.F32}
	_, metadata, err := TorchAO.Config([]byte(`{}`), []ModelWeight{linear("up", w4), norm})
	if err != nil || !strings.Contains(metadata["up.weight"], `"_data": "float32"`) {
		t.Errorf("beside a norm of F32: %q, %v", metadata, err)
	}

	for _, tt := range []struct {
		weights []ModelWeight
		want    string
	}{
		{[]ModelWeight{linear("up", nil)}, "no weight is quantized"},
		{[]ModelWeight{{Name: "weight", Shape: []int64{1}}}, `tensor "weight": torchao needs names "module.tensor", each once`},
		{[]ModelWeight{linear("up", w4), linear("up", w4)}, `tensor "up.weight": torchao needs names "module.tensor", each once`},
		{[]ModelWeight{{Name: "experts.up", Shape: []int64{8, 64}, Scheme: w4}}, `tensor "experts.up": only tensors called weight can be quantized`},
		{[]ModelWeight{{Name: "a.weight", Shape: []int64{8}, Scheme: w4}}, `tensor "a.weight": its shape is [8], expected [rows, columns]`},
	} {
		if _, _, err := TorchAO.Config([]byte("{}"), tt.weights); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

func TestPythonJSON(t *testing.T) {
	got := pythonJSON(map[string]any{"a": []string{`x, "y": \`, "<ü>"}, "b": nil})
	if want := `{"a": ["x, \"y\": \\", "<ü>"], "b": null}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
