package hfquant

import (
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// TestAWQVectors reads what AutoAWQ packed, in versions gemm and gemv.
func TestAWQVectors(t *testing.T) {
	for _, v := range vectors(t, "awq") {
		t.Run(v.name(), func(t *testing.T) {
			w := findOne(t, store(t, v.stored()...), string(v.Config))
			rows := readAll(t, w)
			v.check(t, w, rows)
			if got := sumOf(w.Scheme, rows, false); got != v.Dequantized {
				t.Errorf("the weights differ: SHA-256 %s, want %s", got, v.Dequantized)
			}
		})
	}
}

const awqTestConfig = `{"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}}`

// awqTensors is a weight [16, 64] in groups of 32.
func awqTensors() []stored {
	all := []stored{
		{Part: Part{Name: "m.qweight", Dtype: packing.I32, Shape: []int64{64, 2}}},
		{Part: Part{Name: "m.qzeros", Dtype: packing.I32, Shape: []int64{2, 2}}},
		{Part: Part{Name: "m.scales", Dtype: packing.F16, Shape: []int64{2, 16}}},
	}
	for i := range all {
		all[i].data = make([]byte, all[i].bytes())
	}
	return all
}

func TestAWQErrors(t *testing.T) {
	with := func(old, new string) string { return strings.Replace(awqTestConfig, old, new, 1) }
	for name, c := range map[string]struct {
		config string
		change func(all []stored) []stored
		want   []string
	}{
		"no scales": {change: func(all []stored) []stored { return all[:2] }, want: []string{`no tensor "m.scales"`}},
		"scaled activations": {change: func(all []stored) []stored {
			return append(all, stored{Part{Name: "act.scales", Dtype: packing.F16, Shape: []int64{16}}, make([]byte, 32)})
		}, want: []string{`"act.scales"`, "scales activations"}},
		"no zero points":       {change: func(all []stored) []stored { return []stored{all[0], all[2]} }, want: []string{`no tensor "m.qzeros"`}},
		"codes of other rows":  {change: func(all []stored) []stored { return reshape(all, 0, packing.I32, 64, 3) }, want: []string{`"m.qweight"`, "[64 3], expected [K, 16/8]"}},
		"no columns":           {change: func(all []stored) []stored { return reshape(all, 0, packing.I32, 0, 2) }, want: []string{`"m.qweight"`, "2 dimensions that are not 0"}},
		"codes as bytes":       {change: func(all []stored) []stored { return reshape(all, 0, packing.U8, 64, 2) }, want: []string{`"m.qweight"`, "dtype U8"}},
		"zeros of other rows":  {change: func(all []stored) []stored { return reshape(all, 1, packing.I32, 2, 4) }, want: []string{`"m.qzeros"`, "[2 4]", "[2 2]"}},
		"groups":               {config: with(": 32", ": 64"), want: []string{"2 groups, but group_size of quantization_config makes 1"}},
		"bits":                 {config: with(": 4", ": 8"), want: []string{"AWQ with 8 bits, expected 4"}},
		"version":              {config: with("gemm", "gemv_fast"), want: []string{`version "gemv_fast" is not read: only gemm and gemv are`}},
		"backend":              {config: with(`"version"`, `"backend": "llm-awq", "version"`), want: []string{`"llm-awq" are not read`}},
		"gemv: shape of zeros": {config: with("gemm", "gemv"), change: func(all []stored) []stored { return reshape(all, 0, packing.I32, 64, 4) }, want: []string{`"m.qzeros"`, "[2 2]", "[64 2]"}},
		"gemv: columns":        {config: with("gemm", "gemv"), want: []string{"groups of 32 do not divide rows of 16 columns"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := awqTensors()
			if c.change != nil {
				all = c.change(all)
			}
			if c.config == "" {
				c.config = awqTestConfig
			}
			_, err := Find(store(t, all...), []byte(c.config))
			wantError(t, err, c.want...)
		})
	}
}
