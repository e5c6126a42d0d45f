package hfquant

import (
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// TestAutoRoundVectors reads what AutoRound packed in each packing_format.
func TestAutoRoundVectors(t *testing.T) {
	for _, v := range vectors(t, "autoround") {
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

func TestAutoRoundConfig(t *testing.T) {
	const config = `{"quantization_config": {"quant_method": "auto-round", "packing_format": "auto_round", "bits": 4, "group_size": 32}}`
	with := func(packing, more string) string {
		return strings.NewReplacer(`"auto_round"`, `"`+packing+`"`, `"bits"`, more+`"bits"`).Replace(config)
	}
	for name, c := range map[string]struct {
		config string
		want   string // of the error; "" for none
	}{
		"zero points less 1":      {with("auto_round:gptq", ""), ""},
		"other bits for a module": {strings.Replace(with("auto_round", `"extra_config": {"m": {"bits": 4}}, `), `"bits": 4, "group`, `"bits": 8, "group`, 1), ""},
		"other bits for none":     {strings.Replace(config, `"bits": 4`, `"bits": 8`, 1), "is of 4 bits, but quantization_config says 8"},
		"rotation":                {with("auto_round", `"rotation_config": {"block_size": 32}, `), "config.json: rotation_config"},
		"another packing":         {with("auto_round:llm_compressor", ""), `"m.qweight": packing_format "auto_round:llm_compressor" is not read`},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := Find(store(t, gptqTensors()...), []byte(c.config))
			if c.want != "" {
				wantError(t, err, c.want)
				return
			}
			if err != nil || len(q.Weights) != 1 || q.Weights[0].Scheme != (Scheme{Bits: 4, Group: 32, Zeros: IntZeros, Scales: packing.F16}) {
				t.Errorf("Find gives %+v, %v", q, err)
			}
		})
	}
	fp8 := []stored{{Part{Name: "m.weight", Dtype: packing.F8E4M3, Shape: []int64{32, 32}}, nil}}
	if q, err := Find(store(t, fp8...), []byte(with("auto_round:fp8_static", ""))); q != nil || err != nil {
		t.Errorf("FP8 weights: %v, %v, want none", q, err)
	}
}
