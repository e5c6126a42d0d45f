package hfquant

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// sample returns rows of n x k weights of a scheme.
func sample(s Scheme, n, k int64) []Row {
	low, high := limits(s.Bits)
	rows := make([]Row, n)
	at := 0
	next := func() int { at++; return low + at*7%(high-low+1) }
	for i := range rows {
		r := &rows[i]
		r.resize(s, k)
		for j := range r.Codes {
			r.Codes[j] = int8(next())
		}
		for g := range r.Scales {
			r.Scales[g] = float32(i*8+g+1) / 64
		}
		for g := range r.Zeros {
			r.Zeros[g] = int8(next())
		}
		for g := range r.Offsets {
			r.Offsets[g] = float32(next())
		}
	}
	return rows
}

// module returns the tensors of a weight in a format, by the last component of their names.
func module(t testing.TB, f Format, s Scheme, n, k int64) (map[string]stored, []Row) {
	t.Helper()
	l, err := f.NewLayout("m.weight", []int64{n, k}, s)
	if err != nil {
		t.Fatal(err)
	}
	rows := sample(s, n, k)
	tensors := map[string]stored{}
	for _, p := range putAll(t, l, rows, n) {
		tensors[strings.TrimPrefix(p.Name, "m.")] = p
	}
	return tensors, rows
}

// list returns the tensors in order of name.
func tensorsOf(m map[string]stored) []stored {
	var all []stored
	for _, s := range m {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b stored) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// int8Tensor, int32Tensor and floatTensor are tensors of m.
func int8Tensor(name string, shape []int64, values ...int8) stored {
	s := stored{Part{Name: "m." + name, Dtype: packing.I8, Shape: shape}, make([]byte, len(values))}
	putInt8s(s.data, values)
	return s
}

func int32Tensor(name string, shape []int64, values ...int32) stored {
	s := stored{Part: Part{Name: "m." + name, Dtype: packing.I32, Shape: shape}}
	for _, v := range values {
		s.data = binary.LittleEndian.AppendUint32(s.data, uint32(v))
	}
	return s
}

func floatTensor(name string, shape []int64, values ...float32) stored {
	s := stored{Part{Name: "m." + name, Dtype: packing.F32, Shape: shape}, make([]byte, 4*len(values))}
	putFloats(s.data, packing.F32, values)
	return s
}

// repeat returns a list of n values that each gives.
func repeat[T any](n int, each func(i int) T) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = each(i)
	}
	return list
}

// weightsConfig is a config.json of compressed-tensors with one config group, whose weights are
// described in JSON.
func weightsConfig(format, weights string) string {
	return fmt.Sprintf(`{"quantization_config": {"quant_method": "compressed-tensors", "format": %q,
		"config_groups": {"group_0": {"targets": ["Linear"], "weights": %s}}}}`, format, weights)
}

const group16 = `{"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": 16}`

// TestCompressedRead reads what the library wrote in other versions, or for other strategies, than
// the vectors have.
func TestCompressedRead(t *testing.T) {
	base := Scheme{Bits: 4, Group: 16, Scales: packing.BF16}
	channel := Scheme{Bits: 8, Scales: packing.F32}
	asymmetric := strings.Replace(group16, "true", "false", 1)
	kimi := strings.TrimSuffix(strings.TrimPrefix(weightsConfig("pack-quantized", group16), "{"), "}")
	for _, tt := range []struct {
		name   string
		format Format
		scheme Scheme
		config string
		change func(m map[string]stored, rows []Row)
		want   Scheme // if it differs
	}{
		{name: "shape as int32", format: PackQuantized, scheme: base, config: weightsConfig("pack-quantized", group16),
			change: func(m map[string]stored, _ []Row) {
				m["weight_shape"] = int32Tensor("weight_shape", []int64{2}, 4, 64)
			}},
		{name: "static activations", format: IntQuantized, scheme: base, config: weightsConfig("int-quantized", group16),
			change: func(m map[string]stored, _ []Row) {
				m["input_scale"] = floatTensor("input_scale", []int64{1}, 0.5)
				m["input_zero_point"] = int8Tensor("input_zero_point", []int64{1}, 3)
			}},
		{name: "in text_config, as Kimi-K2.5 has it", format: PackQuantized, scheme: base, config: `{"text_config": {` + kimi + `}}`},
		{name: "group without a strategy", format: PackQuantized, scheme: base,
			config: weightsConfig("pack-quantized", `{"num_bits": 4, "group_size": 16}`)},
		{name: "format of the group", format: IntQuantized, scheme: base, config: strings.Replace(
			weightsConfig("mixed-precision", group16), `"targets"`, `"format": "int-quantized", "targets"`, 1)},
		{name: "zero points that are all 0", format: PackQuantized, scheme: base, config: weightsConfig("pack-quantized", group16),
			change: func(m map[string]stored, _ []Row) {
				m["weight_zero_point"] = int8Tensor("weight_zero_point", []int64{4, 4}, make([]int8, 16)...)
			}},
		{name: "zero points as int8", format: PackQuantized, scheme: base, config: weightsConfig("pack-quantized", asymmetric),
			change: func(m map[string]stored, rows []Row) {
				values := repeat(16, func(i int) int8 { return int8(i - 8) })
				m["weight_zero_point"] = int8Tensor("weight_zero_point", []int64{4, 4}, values...)
				for n := range rows {
					rows[n].Zeros = values[4*n:][:4]
				}
			}, want: Scheme{Bits: 4, Group: 16, Scales: packing.BF16, Zeros: IntZeros}},
		{name: "int-quantized with zero points", format: IntQuantized, scheme: base, config: weightsConfig("int-quantized", asymmetric),
			change: func(m map[string]stored, rows []Row) {
				values := repeat(16, func(i int) int8 { return int8(7 - i) })
				m["weight_zero_point"] = int8Tensor("weight_zero_point", []int64{4, 4}, values...)
				for n := range rows {
					rows[n].Zeros = values[4*n:][:4]
				}
			}, want: Scheme{Bits: 4, Group: 16, Scales: packing.BF16, Zeros: IntZeros}},
		{name: "scales of one dimension", format: IntQuantized, scheme: channel,
			config: weightsConfig("naive-quantized", `{"num_bits": 8, "strategy": "channel"}`),
			change: func(m map[string]stored, rows []Row) {
				m["weight_scale"] = floatTensor("weight_scale", []int64{4}, repeat(4, func(i int) float32 { return rows[i].Scales[0] })...)
			}},
		{name: "one scale for all", format: IntQuantized, scheme: channel,
			config: weightsConfig("int-quantized", `{"num_bits": 8, "strategy": "tensor", "symmetric": false}`),
			change: func(m map[string]stored, rows []Row) {
				m["weight_scale"] = floatTensor("weight_scale", []int64{1}, 0.125)
				m["weight_zero_point"] = int8Tensor("weight_zero_point", []int64{1}, -3)
				for n := range rows {
					rows[n].Scales, rows[n].Zeros = []float32{0.125}, []int8{-3}
				}
			}, want: Scheme{Bits: 8, Scales: packing.F32, Zeros: IntZeros}},
		{name: "a scalar for all", format: IntQuantized, scheme: channel, config: weightsConfig("int-quantized", `{}`),
			change: func(m map[string]stored, rows []Row) {
				m["weight_scale"] = floatTensor("weight_scale", nil, -2)
				for n := range rows {
					rows[n].Scales = []float32{-2}
				}
			}},
		{name: "activation order whose groups are in another order", format: PackQuantized, scheme: base,
			config: weightsConfig("pack-quantized", group16),
			change: func(m map[string]stored, rows []Row) {
				order := []int32{2, 0, 3, 1}
				m["weight_g_idx"] = int32Tensor("weight_g_idx", []int64{64}, repeat(64, func(i int) int32 { return order[i/16] })...)
				for n := range rows {
					was := slices.Clone(rows[n].Scales)
					for i, g := range order {
						rows[n].Scales[i] = was[g]
					}
				}
			}},
		{name: "activation order whose columns are scattered", format: PackQuantized, scheme: base,
			config: weightsConfig("pack-quantized", group16),
			change: func(m map[string]stored, rows []Row) {
				m["weight_g_idx"] = int32Tensor("weight_g_idx", []int64{64}, repeat(64, func(i int) int32 { return int32(i % 4) })...)
				for n := range rows {
					rows[n].Scales = slices.Repeat(rows[n].Scales, 16)
				}
			}, want: Scheme{Bits: base.Bits, Group: 1, Zeros: base.Zeros, Scales: base.Scales}},
		{name: "activation order that was not set", format: PackQuantized, scheme: base, config: weightsConfig("pack-quantized", group16),
			change: func(m map[string]stored, _ []Row) {
				m["weight_g_idx"] = int32Tensor("weight_g_idx", []int64{64}, repeat(64, func(int) int32 { return -1 })...)
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tensors, rows := module(t, tt.format, tt.scheme, 4, 64)
			want := tt.scheme
			if tt.change != nil {
				tt.change(tensors, rows)
			}
			if tt.want.Bits != 0 {
				want = tt.want
			}
			w := findOne(t, store(t, tensorsOf(tensors)...), tt.config)
			if w.Scheme != want {
				t.Errorf("found %v, want %v", w.Scheme, want)
			}
			for n, r := range readAll(t, w) {
				if !slices.Equal(r.Codes, rows[n].Codes) || !slices.Equal(r.Scales, rows[n].Scales) || !slices.Equal(r.Zeros, rows[n].Zeros) {
					t.Errorf("row %d is %+v, want %+v", n, r, rows[n])
				}
			}
		})
	}
}

// TestCompressedRefused looks for the errors that name what cannot be read.
func TestCompressedRefused(t *testing.T) {
	pack := weightsConfig("pack-quantized", group16)
	set := func(s stored) func(map[string]stored) {
		return func(m map[string]stored) { m[strings.TrimPrefix(s.Name, "m.")] = s }
	}
	for _, tt := range []struct {
		name   string
		config string
		change func(m map[string]stored)
		want   string
	}{
		{"FP4", weightsConfig("nvfp4-pack-quantized", group16), nil, `tensor "m.weight_packed": format "nvfp4-pack-quantized" is not read, only int-quantized and pack-quantized`},
		{"floats", weightsConfig("pack-quantized", `{"num_bits": 4, "type": "float", "group_size": 16}`), nil, `weights of type "float" are not read, only int`},
		{"16 bits", weightsConfig("pack-quantized", `{"num_bits": 16, "group_size": 16}`), nil, `weights of 16 bits are not read, only 1 to 8`},
		{"blocks", weightsConfig("pack-quantized", `{"num_bits": 4, "strategy": "block", "block_structure": [128, 128]}`), nil, `strategy "block" is not read`},
		{"a preset", `{"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"W4A16": ["Linear"]}}}`, nil, `config.json: quantization_config: `},
		{"no group size", weightsConfig("pack-quantized", `{"num_bits": 4, "strategy": "group"}`), nil, `config group "group_0": strategy group has no group_size`},
		{"group size 0", weightsConfig("pack-quantized", `{"num_bits": 4, "group_size": 0}`), nil, `group_size is 0`},
		{"a transform", strings.Replace(pack, `"format"`, `"transform_config": {"config_groups": {"R4": {}}}, "format"`, 1), nil, `transform_config`},
		{"sparsity", strings.Replace(pack, `"format"`, `"sparsity_config": {"format": "sparse-24-bitmask"}, "format"`, 1), nil, `sparsity_config: format "sparse-24-bitmask" is not read`},
		{"other bits", strings.Replace(pack, `: 4`, `: 3`, 1), nil, `tensor "m.weight_packed": shape [4 8], but "m.weight" needs shape [4 6]`},
		{"other groups", strings.Replace(pack, `: 16`, `: 32`, 1), nil, `tensor "m.weight_scale": shape [4 4], but "m.weight" needs shape [4 2]`},
		{"groups that do not divide", strings.Replace(pack, `: 16`, `: 48`, 1), nil, `groups of 48 columns do not divide rows of 64`},
		{"another shape", pack, set(int32Tensor("weight_shape", []int64{2}, 4, 65)), `groups of 16 columns do not divide rows of 65`},
		{"a shape of 3", pack, set(int32Tensor("weight_shape", []int64{3}, 1, 4, 64)), `tensor "m.weight_shape": shape [3], but "m.weight" needs shape [2]`},
		{"a shape of nothing", pack, set(int32Tensor("weight_shape", []int64{2}, 0, 64)), `shape [0 64], expected [rows, columns]`},
		{"an enormous shape", pack, set(int32Tensor("weight_shape", []int64{2}, 1<<30, 1<<20)), `shape [4 8], but "m.weight" needs shape [1073741824 131072]`},
		{"no shape", pack, func(m map[string]stored) { delete(m, "weight_shape") }, `tensor "m.weight": the checkpoint has no tensor "m.weight_shape"`},
		{"no scales", pack, func(m map[string]stored) { delete(m, "weight_scale") }, `the checkpoint has no tensor "m.weight_scale"`},
		{"integer scales", pack, set(int32Tensor("weight_scale", []int64{4, 4}, make([]int32, 16)...)), `tensor "m.weight_scale": dtype I32, expected BF16, F16 or F32`},
		{"infinite scales", pack, set(floatTensor("weight_scale", []int64{4, 4}, repeat(16, func(int) float32 { return float32(math.Inf(1)) })...)), `m.weight_scale`},
		{"no zero points", strings.Replace(pack, `true`, `false`, 1), nil, `the checkpoint has no tensor "m.weight_zero_point"`},
		{"zero points in spite of symmetric", pack, set(int8Tensor("weight_zero_point", []int64{4, 4}, repeat(16, func(i int) int8 { return int8(i) })...)), `it has zero points other than 0, but quantization_config says that "m.weight" is symmetric`},
		{"zero points of another shape", strings.Replace(pack, `true`, `false`, 1), set(int32Tensor("weight_zero_point", []int64{4, 1}, 0, 0, 0, 0)), `tensor "m.weight_zero_point": shape [4 1], but "m.weight" needs shape [1 4]`},
		{"a group that is not there", pack, set(int32Tensor("weight_g_idx", []int64{64}, repeat(64, func(i int) int32 { return int32(i/16) + 1 })...)), `tensor "m.weight_g_idx": column 48 belongs to group 4, but "m.weight" has 4 groups`},
		{"codes of more bits", weightsConfig("int-quantized", group16), func(m map[string]stored) {
			delete(m, "weight_packed")
			delete(m, "weight_shape")
			m["weight"] = int8Tensor("weight", []int64{4, 64}, repeat(256, func(int) int8 { return 8 })...)
		}, `tensor "m.weight": row 0 has the value 8 in column 0, outside of -8 .. 7 of 4 bits`},
		{"three dimensions", weightsConfig("int-quantized", group16), func(m map[string]stored) {
			delete(m, "weight_packed")
			m["weight"] = int8Tensor("weight", []int64{2, 2, 64}, make([]int8, 256)...)
		}, `tensor "m.weight": shape [2 2 64], expected [rows, columns]`},
		{"sparse weights", pack, set(int8Tensor("bitmask", []int64{1}, 0)), `tensor "m.bitmask": it belongs to a sparse weight, which is not read`},
		{"no config", `{}`, nil, `tensor "m.weight_packed": it looks like a weight of compressed-tensors, but no quantization_config in config.json says how it is quantized`},
		{"another library", `{"quantization_config": {"quant_method": "bitsandbytes"}}`, nil, `tensor "m.weight_packed": I32, and config.json names quant_method "bitsandbytes": the methods read are `},
		{"HQQ", `{"quantization_config": {"quant_method": "hqq"}}`, nil, `tensor "m.weight_packed": I32, and config.json names quant_method "hqq": the methods read are auto-round, awq, compressed-tensors, fp8, gptq, mlx, mxfp4 or torchao; convert the checkpoint to BF16 with the library of its method first`},
		{"no JSON", `{"quantization_config": `, nil, `config.json: `},
		{"a method that is no string", `{"quantization_config": {"quant_method": 3}}`, nil, `quantization_config`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tensors, _ := module(t, PackQuantized, Scheme{Bits: 4, Group: 16, Scales: packing.BF16}, 4, 64)
			if tt.change != nil {
				tt.change(tensors)
			}
			ck := store(t, tensorsOf(tensors)...)
			q, err := Find(ck, []byte(tt.config))
			if err == nil && q != nil && len(q.Weights) == 1 {
				err = q.Weights[0].Read(new(Row), 0)
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}
