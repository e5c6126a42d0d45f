package accuracy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGateTry checks the flags that are suggested for a file that does not meet its gate.
func TestGateTry(t *testing.T) {
	const kl, sqnr = "{version: 1, model: {mean_kl: {max: 0.01}}}", "{version: 1, tensors: [{match: '*up_proj*', sqnr_db: {min: 99}}]}"
	good := Try{"--quality good", "codes calibrated on text that the model writes"}
	rules := func(flags string) Try { return Try{flags, "more bits for the tensors that lost most"} }
	worst := rules("--rule model.layers.1.mlp.experts.down_proj=5 --rule model.layers.0.mlp.up_proj=5 --rule model.layers.0.self_attn.q_proj=5")
	each := func(set func(s *TensorStats)) func(r *Report) {
		return func(r *Report) {
			for i := range r.Tensors {
				set(&r.Tensors[i])
			}
		}
	}
	algorithm := func(name string) func(r *Report) { return each(func(s *TensorStats) { s.Algorithm = name }) }
	for _, tt := range []struct {
		name, gate string
		change     func(r *Report)
		want       []Try
	}{
		{"met", "{version: 1, model: {mean_kl: {max: 1}}}", algorithm("search"), nil},
		{"without data", kl, algorithm("search"), []Try{good, worst}},
		{"gptq", kl, algorithm("gptq"), []Try{good, worst}},
		{"gptq-ft", kl, algorithm("gptq-ft"), []Try{{"--quality best", "refined codes, from four times the text"}, worst}},
		{"good, with a rule for another algorithm", kl, func(r *Report) { algorithm("rtn")(r); r.Quality = "good" }, []Try{{"--quality best", "refined codes, from four times the text"}, worst}},
		{"best", kl, func(r *Report) { algorithm("gptq-ft")(r); r.Quality = "best" }, []Try{{"--quality max", "scales and codes tuned after calibration"}, worst}},
		{"max", kl, func(r *Report) { algorithm("gptq-ft")(r); r.Quality = "max" }, []Try{worst}},
		{"a model that cannot run", sqnr, func(r *Report) { algorithm("rtn")(r); r.NoModel = "no tokenizer" },
			[]Try{{"--algorithm search", "scales and codes of least error"}, rules("--rule model.layers.0.mlp.up_proj=5")}},
		{"a tensor's figure", sqnr, algorithm("search"), []Try{good, rules("--rule model.layers.0.mlp.up_proj=5")}},
		{"8 bits", sqnr, each(func(s *TensorStats) { s.Bits = 8 }), []Try{good, rules("--rule model.layers.0.mlp.up_proj=skip")}},
		{"a layout of few widths", sqnr, each(func(s *TensorStats) { s.Layout = "qsi4cxp" }), []Try{good, rules("--rule model.layers.0.mlp.up_proj=skip")}},
		{"half-step", sqnr, each(func(s *TensorStats) { s.Bits, s.Mapping = 2, "half-step" }), []Try{good, rules("--rule model.layers.0.mlp.up_proj=3,full-range")}},
		{"another checkpoint", kl, each(func(s *TensorStats) { s.SourceChanged = true }), nil},
		{"a limit of the size", "{version: 1, model: {file_bytes: {max: 1}}}", algorithm("search"), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, err := ParseGate("g.yaml", []byte(tt.gate))
			if err != nil {
				t.Fatal(err)
			}
			r := gateReport()
			each(func(s *TensorStats) { s.Layout, s.SourceRecorded, s.SourceChanged = "lowbit", true, false })(r)
			tt.change(r)
			res, err := g.Check(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, res.Try); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestShellQuoted(t *testing.T) {
	for s, want := range map[string]string{"a.b_c-1=4,full-range": "a.b_c-1=4,full-range", "x[3]=5": "'x[3]=5'", "it's=5": `'it'\''s=5'`} {
		if got := shellQuoted(s); got != want {
			t.Errorf("%q is quoted %q, want %q", s, got, want)
		}
	}
}
