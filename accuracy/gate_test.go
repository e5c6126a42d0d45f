package accuracy

import (
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/text"
)

func ptr(v float64) *float64 { return &v }

// fullGate uses every feature of a gate.
const fullGate = `# of a fleet
version: 1
model:
  mean_kl: {max: 0.05, worse: 0.002}
  same_top1: {min: 0.9}
  file_bytes: {max: 1000000}
tensors:
  - sqnr_db: {min: 10}
  - match: "*.mlp.*"
    bits: 4
    group: 32
    sqnr_db: {min: 16, worse: 0}
    output_cosine: {min: 0.99}
  - {match: '*', group: channel, saturated: {max: .5}}
parity: true
unquantized: true
`

func TestParseGate(t *testing.T) {
	g, err := ParseGate("g.yaml", []byte(fullGate))
	if err != nil {
		t.Fatal(err)
	}
	want := &Gate{
		Name: "g.yaml", Version: 1, Parity: true, Unquantized: true,
		Model: map[string]Limit{"mean_kl": {Max: ptr(0.05), Worse: ptr(0.002)}, "same_top1": {Min: ptr(0.9)}, "file_bytes": {Max: ptr(1e6)}},
		Tensors: []TensorRule{
			{Limits: map[string]Limit{"sqnr_db": {Min: ptr(10)}}},
			{Match: "*.mlp.*", Bits: 4, Group: new(32), Limits: map[string]Limit{"sqnr_db": {Min: ptr(16), Worse: ptr(0)}, "output_cosine": {Min: ptr(0.99)}}},
			{Match: "*", Group: new(0), Limits: map[string]Limit{"saturated": {Max: ptr(0.5)}}},
		},
	}
	if d := cmp.Diff(want, g, cmp.AllowUnexported(TensorRule{})); d != "" {
		t.Error(d)
	}
	if !g.NeedsModel() || !g.NeedsOutputs() || !g.NeedsEarlier() {
		t.Error("what the gate needs is not seen")
	}
	small, err := ParseGate("g.yaml", []byte("{version: 1, model: {bits_per_weight: {max: 5}}, tensors: [{sqnr_db: {min: 1}}]}"))
	if err != nil {
		t.Fatal(err)
	}
	if small.NeedsModel() || small.NeedsOutputs() || small.NeedsEarlier() {
		t.Error("the gate needs less")
	}
}

func TestParseGateErrors(t *testing.T) {
	for _, c := range []struct{ gate, want string }{
		{"", "g.yaml: version: is 0, want 1"},
		{"version: 2", "version: is 2, want 1"},
		{"version: 1", "has no condition: a gate that is always open"},
		{"version: 1\nmodel: {}\ntensors: []\nparity: false", "has no condition"},
		{"version: 1\nmodel: {mean_lk: {max: 1}}", "model.mean_lk: no such figure; there are mean_kl, median_kl, "},
		{"version: 1\nmodel: {mean_kl: {maximum: 1}}", "model.mean_kl: unknown key \"maximum\": use min, max or worse"},
		{"version: 1\nmodel: {mean_kl: {max: soon}}", "model.mean_kl: max is not a number"},
		{"version: 1\nmodel: {mean_kl: {max: .nan}}", "model.mean_kl: max is not a number"},
		{"version: 1\nmodel: {mean_kl: {max: -.inf}}", "model.mean_kl: max is not a number"},
		{"version: 1\nmodel: {mean_kl: {worse: -1}}", "worse is -1, want 0 or more"},
		{"version: 1\nmodel: {mean_kl: {}}", "model.mean_kl: has no limit: set min, max or worse"},
		{"version: 1\nmodel: {mean_kl: {min: 0}}", "model.mean_kl: min does not limit this figure, less is better: use max"},
		{"version: 1\nmodel: {same_top1: {max: 0.9}}", "model.same_top1: max does not limit this figure, more is better: use min"},
		{"version: 1\ntensors: [{sqnr_db: {max: 10}}]", "tensors[0].sqnr_db: max does not limit this figure"},
		{"version: 1\nmin_tokens: 0\nparity: true", "min_tokens: is 0, want 1 or more"},
		{"version: 1\nmodel: {mean_kl: 0.05}", "g.yaml: line 2: "},
		{"version: 1\nmodels: {mean_kl: {max: 1}}", `unknown field "models"`},
		{"version: 1\nversion: 1\nparity: true", "already defined"},
		{"version: 1\ntensors: [{match: 'a'}]", "tensors[0]: limits no figure"},
		{"version: 1\ntensors: [{sqnr_db: {min: 1}}, {match: '[', sqnr_db: {min: 1}}]", "tensors[1].match: is not a pattern"},
		{"version: 1\ntensors: [{match: 7, sqnr_db: {min: 1}}]", "tensors[0].match: is not a pattern"},
		{"version: 1\ntensors: [{bits: 9, sqnr_db: {min: 1}}]", "tensors[0].bits: is not a width of 1 to 8"},
		{"version: 1\ntensors: [{bits: 4.5, sqnr_db: {min: 1}}]", "tensors[0].bits: is not a width"},
		{"version: 1\ntensors: [{group: 0, sqnr_db: {min: 1}}]", "tensors[0].group: is neither a group size nor channel"},
		{"version: 1\ntensors: [{group: row, sqnr_db: {min: 1}}]", "tensors[0].group: is neither"},
		{"version: 1\ntensors: [{sqnr: {min: 1}}]", "tensors[0].sqnr: no such figure; there are sqnr_db, "},
		{"version: 1\ntensors: [{sqnr_db: 16}]", "tensors[0].sqnr_db: is not a limit such as {min: 16}"},
		{"version: 1\nparity: true\n---\nversion: 1\nparity: true", "a second document: only one is expected"},
		{"version: [", "g.yaml: line 1: "},
		{"version: 1\nmodel: " + strings.Repeat("{a: ", 100_000), "line 2: lists and mappings are nested deeper than 32 levels"},
		{"\tversion: 1", "g.yaml: "},
	} {
		_, err := ParseGate("g.yaml", []byte(c.gate))
		var ge *GateError
		if !errors.As(err, &ge) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want one line with %q", c.gate, err, c.want)
		}
	}
}

func TestReadGate(t *testing.T) {
	path := t.TempDir() + "/gate.yaml"
	if _, err := ReadGate(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a gate that is not there: %v", err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("# much too long\n", 1<<19)), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadGate(path); err == nil || !strings.Contains(err.Error(), "is larger than the limit of 4194304 bytes") {
		t.Errorf("a gate of 8 MiB: %v", err)
	}
}

// gateReport is a report with all figures that a gate can limit.
func gateReport() *Report {
	tensor := func(name string, bits, group int, sqnr Decibels, output *OutputStats) TensorStats {
		return TensorStats{
			Name: name, Role: "projection", Slices: 1, TensorScheme: &TensorScheme{Layout: "lowbit", Bits: bits, Group: group, Rows: 64, Cols: 128}, Bytes: 5120, BPW: 5, SQNR: sqnr, Cosine: 0.99,
			Signal: 100, Noise: 1, Output: output, NoOutput: map[bool]string{true: "no kernel"}[output == nil],
		}
	}
	out := func(sqnr Decibels) *OutputStats {
		return &OutputStats{SQNR: sqnr, Cosine: 0.98, WeightSQNR: sqnr + 1, ActivationSQNR: 40}
	}
	table := tensor("model.embed_tokens.weight", 8, 32, 44, nil)
	table.Role = "embedding"
	expert := tensor("model.layers.1.mlp.experts.down_proj", 4, 32, 18, out(15))
	expert.Slice, expert.Slices = 3, 8
	shared := tensor("lm_head.weight", 8, 32, 43, out(42))
	shared.SharedWith = []string{"model.tied.weight"}
	r := &Report{
		Schema: ReportSchema, FileBytes: 1000, Activations: "int8",
		TextReport: TextReport{
			Text:  &TextInfo{Name: "t", SHA256: "abc", Convention: text.Windows, Window: 512, Windows: 8, Tokens: 2000},
			Model: &eval.Comparison{KL: eval.Distribution{Mean: 0.0612, P99: 1}, SameTop1: 0.85, Ratio: 1.05},
		},
		Tensors: []TensorStats{
			table, tensor("model.layers.0.mlp.up_proj.weight", 4, 32, 20, out(17)), tensor("model.layers.0.self_attn.q_proj.weight", 4, 0, 12, out(30)), expert, shared,
			{Name: "model.norm.weight", Role: "norm", Slices: 1, TensorScheme: &TensorScheme{Layout: "plain"}, Unquantized: true, Equal: true, SQNR: Ratio(1, 0)},
		},
		Parity: []Parity{{Tensor: "x", Kernel: "k1", Equal: true}},
	}
	for i := range r.Tensors {
		r.Tensors[i].SourceRecorded = true
	}
	r.Totals.SumUp(r.Tensors)
	return r
}

func TestGateCheck(t *testing.T) {
	for _, c := range []struct {
		name, gate string
		change     func(r *Report)
		earlier    func(r *Report)
		want       []string // failures; "error: ..." for an error
	}{
		{"met", "model: {mean_kl: {max: 0.0612}, same_top1: {min: 0.85}}", nil, nil, nil},
		{"kl", "model: {mean_kl: {max: 0.05}}", nil, nil, []string{"mean_kl 0.0612 nats is 0.0112 above the limit 0.05"}},
		{"top1", "model: {same_top1: {min: 0.9}}", nil, nil, []string{"same_top1 0.85 is 0.05 below the limit 0.9"}},
		{"two standard errors", "model: {mean_kl: {max: 0.07}, same_top1: {min: 0.8}}", func(r *Report) { r.Model.KL.StdErr, r.Model.SameTop1StdErr = 0.005, 0.02 }, nil, []string{
			"mean_kl 0.0612 nats (with 2 standard errors of 0.005) is 0.0012 above the limit 0.07",
		}},
		{"two standard errors below", "model: {same_top1: {min: 0.8}}", func(r *Report) { r.Model.SameTop1StdErr = 0.03 }, nil, []string{
			"same_top1 0.85 (with 2 standard errors of 0.03) is 0.01 below the limit 0.8",
		}},
		{"one window", "model: {mean_kl: {max: 0.07}, p99_kl: {max: 1}}", func(r *Report) { r.Model.KL.StdErr = eval.StdErr(math.Inf(1)) }, nil, []string{
			"mean_kl: has no standard error: the text gives one window only, use a longer text or a smaller window",
		}},
		{"one token", "model: {mean_kl: {max: 1}}", func(r *Report) { r.Text.Tokens = 1 }, nil, []string{"scored tokens 1 is 999 below the limit 1000"}},
		{"a minimum of its own", "min_tokens: 2001\nmodel: {mean_kl: {max: 1}}", nil, nil, []string{"scored tokens 2000 is 1 below the limit 2001"}},
		{"tokens do not matter", "model: {file_bytes: {max: 5000}}", func(r *Report) { r.Text.Tokens = 1 }, nil, nil},
		{"other weights", "tensors: [{sqnr_db: {min: 1}}]", func(r *Report) { r.Tensors[1].SourceChanged = true }, nil, []string{
			"model.layers.0.mlp.up_proj.weight: source: has other bytes in the checkpoint than those that the file was made of",
		}},
		{"nothing recorded, and unquantized tensors differ", "tensors: [{sqnr_db: {min: 1}}]", func(r *Report) {
			r.Tensors[5].SourceRecorded, r.Tensors[5].Equal, r.Tensors[5].Difference = false, false, "from element 3 on"
		}, nil, []string{"model.norm.weight: source: differs from the checkpoint: from element 3 on"}},
		{"model's order", "model: {same_top1: {min: 0.9}, mean_kl: {max: 0.05}}", nil, nil, []string{
			"mean_kl 0.0612 nats is 0.0112 above the limit 0.05", "same_top1 0.85 is 0.05 below the limit 0.9",
		}},
		{"no text", "model: {mean_kl: {max: 1}}", func(r *Report) { r.Model, r.Text = nil, nil }, nil, []string{"mean_kl: was not measured: it takes a text"}},
		{"no model", "model: {mean_kl: {max: 1}}", func(r *Report) { r.Model, r.Text, r.NoModel = nil, nil, "no config.json" }, nil, []string{"mean_kl: was not measured: no config.json"}},
		{"totals", "model: {bits_per_weight: {max: 4}, weights_sqnr_db: {min: 20.5}, file_bytes: {max: 999}}", nil, nil, []string{
			"bits_per_weight 5 is 1 above the limit 4", "weights_sqnr_db 20 dB is 0.5 below the limit 20.5", "file_bytes 1000 bytes is 1 above the limit 999",
		}},
		{"all tensors", "tensors: [{sqnr_db: {min: 19}}]", nil, nil, []string{
			"model.layers.0.self_attn.q_proj.weight: sqnr_db 12 dB is 7 below the limit 19", "model.layers.1.mlp.experts.down_proj[3]: sqnr_db 18 dB is 1 below the limit 19",
		}},
		{"pattern", "tensors: [{match: '*.up_proj.*', sqnr_db: {min: 21}}]", nil, nil, []string{"model.layers.0.mlp.up_proj.weight: sqnr_db 20 dB is 1 below the limit 21"}},
		{"another name", "tensors: [{match: 'model.tied.weight', sqnr_db: {min: 50}}]", nil, nil, []string{"lm_head.weight: sqnr_db 43 dB is 7 below the limit 50"}},
		{"an expert", `tensors: [{match: '*down_proj\[3\]', sqnr_db: {min: 20}}]`, nil, nil, []string{"model.layers.1.mlp.experts.down_proj[3]: sqnr_db 18 dB is 2 below the limit 20"}},
		{"group", "tensors: [{group: 32, bits: 4, sqnr_db: {min: 19}}, {group: channel, sqnr_db: {min: 12.5}}]", nil, nil, []string{
			"model.layers.1.mlp.experts.down_proj[3]: sqnr_db 18 dB is 1 below the limit 19", "model.layers.0.self_attn.q_proj.weight: sqnr_db 12 dB is 0.5 below the limit 12.5",
		}},
		{"no such width", "tensors: [{bits: 4, sqnr_db: {min: 1}}, {bits: 3, sqnr_db: {min: 1000}}]", nil, nil, nil},
		{"nothing at all", "tensors: [{bits: 3, sqnr_db: {min: 1000}}]", nil, nil, []string{"error: no condition is for a tensor of this file"}},
		{"no such tensor", "tensors: [{match: 'a*', sqnr_db: {min: 1}}]", nil, nil, []string{`error: no quantized tensor matches "a*"`}},
		{"outputs", "tensors: [{match: '*layers*', output_sqnr_db: {min: 16}}]", nil, nil, []string{"model.layers.1.mlp.experts.down_proj[3]: output_sqnr_db 15 dB is 1 below the limit 16"}},
		{"outputs that a table does not have", "tensors: [{output_sqnr_db: {min: 10}}]", nil, nil, nil},
		{"outputs of a table alone", "tensors: [{match: '*embed*', output_sqnr_db: {min: 10}}]", nil, nil, []string{`error: is of no tensor that matches "*embed*": their rows are looked up`}},
		{"outputs that were not measured", "tensors: [{match: '*up_proj*', output_sqnr_db: {min: 10}}]", func(r *Report) { r.Tensors[1].Output, r.Tensors[1].NoOutput = nil, "not asked for" }, nil,
			[]string{"model.layers.0.mlp.up_proj.weight: output_sqnr_db: was not measured: not asked for"}},
		{"exact", "tensors: [{sqnr_db: {min: 1000}}]", func(r *Report) {
			for i := range r.Tensors {
				r.Tensors[i].SQNR = Ratio(1, 0)
			}
		}, nil, nil},
		{"parity", "parity: true", nil, nil, nil},
		{"parity not checked", "parity: true", func(r *Report) { r.Parity = nil }, nil, []string{"parity: was not checked"}},
		{"parity not given", "parity: true", func(r *Report) { r.Parity[0].Equal, r.Parity[0].FirstDifference = false, "m 1: output 5" }, nil,
			[]string{"x: parity: kernel k1 gives other bits than the reference: m 1: output 5"}},
		{"unquantized", "unquantized: true", nil, nil, nil},
		{"norm tuned", "unquantized: true", func(r *Report) {
			r.Tensors[5].Equal, r.Tensors[5].Tuned, r.Tensors[5].Difference = false, true, "from element 3 on"
		}, nil, nil},
		{"unquantized tensor changed", "unquantized: true", func(r *Report) { r.Tensors[5].Equal, r.Tensors[5].Difference = false, "from element 3 on" }, nil,
			[]string{"model.norm.weight: equal: is not that of the checkpoint: from element 3 on"}},

		{"worse, not given", "model: {mean_kl: {worse: 0.1}}", nil, nil, []string{"error: compares with an earlier report, and none was given"}},
		{"not worse", "model: {mean_kl: {worse: 0}, same_top1: {worse: 0}}\ntensors: [{sqnr_db: {worse: 0}}]", nil, func(*Report) {}, nil},
		{"better", "model: {mean_kl: {worse: 0}, same_top1: {worse: 0}}", nil, func(r *Report) { r.Model.KL.Mean, r.Model.SameTop1 = 0.1, 0.1 }, nil},
		{"worse", "model: {mean_kl: {worse: 0.01}, same_top1: {worse: 0.01}}", nil, func(r *Report) { r.Model.KL.Mean, r.Model.SameTop1 = 0.05, 0.9 }, []string{
			"mean_kl 0.0612 nats is 0.0112 worse than the 0.05 of the earlier report, 0.01 is allowed", "same_top1 0.85 is 0.05 worse than the 0.9 of the earlier report, 0.01 is allowed",
		}},
		{"a worse tensor", "tensors: [{sqnr_db: {worse: 0.5}}]", nil, func(r *Report) { r.Tensors[1].SQNR = 21 }, []string{
			"model.layers.0.mlp.up_proj.weight: sqnr_db 20 dB is 1 worse than the 21 of the earlier report, 0.5 is allowed",
		}},
		{"exact before and now", "tensors: [{sqnr_db: {worse: 0.5}}]", func(r *Report) { r.Tensors[1].SQNR = Ratio(1, 0) }, func(r *Report) { r.Tensors[1].SQNR = Ratio(1, 0) }, nil},
		{"exact before", "tensors: [{sqnr_db: {worse: 0.5}}]", nil, func(r *Report) { r.Tensors[1].SQNR = Ratio(1, 0) }, []string{
			"model.layers.0.mlp.up_proj.weight: sqnr_db 20 dB is +Inf worse than the +Inf of the earlier report, 0.5 is allowed",
		}},
		{"a new tensor", "tensors: [{match: '*up_proj*', sqnr_db: {worse: 0.5}}]", nil, func(r *Report) { r.Tensors = r.Tensors[2:] }, []string{
			"model.layers.0.mlp.up_proj.weight: sqnr_db: is not in the earlier report",
		}},
		{"no text before", "model: {mean_kl: {worse: 0}}", nil, func(r *Report) { r.Text, r.Model = nil, nil }, []string{"mean_kl: is not in the earlier report"}},
		{"another text before", "model: {mean_kl: {worse: 0}}", nil, func(r *Report) { r.Text.SHA256 = "def" }, []string{"error: model.mean_kl: the earlier report scored another text (t, SHA-256 def): score the same text"}},
		{"other windows before", "model: {mean_kl: {worse: 0}}", nil, func(r *Report) { r.Text.Window = 64 }, []string{"error: model.mean_kl: the earlier report cuts the text otherwise: windows of 64 tokens; 2000 tokens scored"}},
		{"other activations before", "model: {mean_kl: {worse: 0}}", nil, func(r *Report) { r.Activations = "float32" }, []string{"error: model.mean_kl: the earlier report has float32 activations: use the same"}},
		{"another text, and it does not matter", "model: {bits_per_weight: {worse: 0}, mean_kl: {max: 1}}", nil, func(r *Report) { r.Text.SHA256 = "def" }, nil},
	} {
		g, err := ParseGate("g.yaml", []byte("version: 1\n"+c.gate))
		if err != nil {
			t.Fatal(c.name, err)
		}
		r := gateReport()
		if c.change != nil {
			c.change(r)
		}
		var earlier *Report
		if c.earlier != nil {
			earlier = gateReport()
			c.earlier(earlier)
		}
		res, err := g.Check(r, earlier)
		var got []string
		var ge *GateError
		switch {
		case errors.As(err, &ge):
			if len(c.want) != 1 || !strings.Contains("error: "+strings.TrimPrefix(strings.TrimPrefix(err.Error(), "g.yaml: "), "tensors: "), c.want[0]) && !strings.Contains(err.Error(), strings.TrimPrefix(c.want[0], "error: ")) {
				t.Errorf("%s: error %v, want %q", c.name, err, c.want)
			}
			continue
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		failed := 0
		for i, f := range res.Failures {
			got = append(got, f.String())
			if res.Conditions[f.Condition].Passed() {
				t.Errorf("%s: failure %d is of a condition that is met", c.name, i)
			}
		}
		for _, cond := range res.Conditions {
			failed += cond.Failed
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: failures %q, want %q", c.name, got, c.want)
		}
		if (failed == 0) != (len(got) == 0) || res.Passed != (len(got) == 0) || r.Gate != res {
			t.Errorf("%s: %+v", c.name, res)
		}
	}
}

// TestGateBlame checks that the tensors with the largest errors are named when a figure of the
// model misses its limit, and only then.
func TestGateBlame(t *testing.T) {
	g, err := ParseGate("g.yaml", []byte("{version: 1, model: {mean_kl: {max: 0.01}}}"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := g.Check(gateReport(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Blame{
		{"model.layers.1.mlp.experts.down_proj[3]", 4, 15, "outputs"}, {"model.layers.0.mlp.up_proj.weight", 4, 17, "outputs"},
		{"model.layers.0.self_attn.q_proj.weight", 4, 30, "outputs"}, {"lm_head.weight", 8, 42, "outputs"}, {"model.embed_tokens.weight", 8, 44, "weights"},
	}
	if d := cmp.Diff(want, res.Blame); d != "" {
		t.Error(d)
	}
	if g, err = ParseGate("g.yaml", []byte("{version: 1, model: {mean_kl: {max: 1}}, tensors: [{sqnr_db: {min: 99}}]}")); err != nil {
		t.Fatal(err)
	}
	if res, err = g.Check(gateReport(), nil); err != nil || res.Blame != nil || res.Passed {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestConditions checks that a condition names the figure nearest to its limit.
func TestConditions(t *testing.T) {
	g, err := ParseGate("g.yaml", []byte("{version: 1, tensors: [{match: '*layers*', sqnr_db: {min: 5}, bits_per_weight: {max: 5}}]}"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := g.Check(gateReport(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Condition{
		{Of: "source", Metric: "the checkpoint is the one that the file was made of", Kind: Same, Checked: 5},
		{Of: "tensors *layers*", Metric: "sqnr_db", Unit: "dB", Kind: AtLeast, Limit: 5, Checked: 3, Worst: 12, Tensor: "model.layers.0.self_attn.q_proj.weight"},
		{Of: "tensors *layers*", Metric: "bits_per_weight", Kind: AtMost, Limit: 5, Checked: 3, Worst: 5, Tensor: "model.layers.0.mlp.up_proj.weight"},
	}
	if d := cmp.Diff(want, res.Conditions); d != "" {
		t.Error(d)
	}
	if s := res.Conditions[1].String(); s != "tensors *layers*: sqnr_db at least 5 dB" {
		t.Error(s)
	}
}

// TestUnrecorded checks that the report says how a source without recorded checksums is compared.
func TestUnrecorded(t *testing.T) {
	r := gateReport()
	if s := r.Unrecorded(); s != "" {
		t.Error(s)
	}
	r.Tensors[0].SourceRecorded = false
	if s := r.Unrecorded(); !strings.HasPrefix(s, "the file records no checksums for 1 of 5 tensors: ") {
		t.Error(s)
	}
	for i := range r.Tensors {
		r.Tensors[i].SourceRecorded = false
	}
	const want = "the file records no checksums of its source: compared by names, shapes and unquantized tensors"
	g, err := ParseGate("g.yaml", []byte("version: 1\nunquantized: true"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := g.Check(r, nil)
	if err != nil || !res.Passed || res.ModelRun != true || res.Conditions[0].Note != want || r.Unrecorded() != want {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestDefaultGate(t *testing.T) {
	r := gateReport()
	g := DefaultGate(r)
	want := &Gate{
		Name: "default", Version: 1, Parity: true, Model: map[string]Limit{"mean_kl": {Max: ptr(0.15)}},
		Tensors: []TensorRule{
			{Bits: 8, Group: new(32), Limits: map[string]Limit{"sqnr_db": {Min: ptr(40.06)}}},
			{Bits: 4, Group: new(0), Limits: map[string]Limit{"sqnr_db": {Min: ptr(12.76)}}},
			{Bits: 4, Group: new(32), Limits: map[string]Limit{"sqnr_db": {Min: ptr(15.43)}}},
		},
	}
	if d := cmp.Diff(want, g, cmp.AllowUnexported(TensorRule{})); d != "" {
		t.Error(d)
	}
	res, err := g.Check(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Failures) != 1 || !strings.HasPrefix(res.Failures[0].String(), "model.layers.0.self_attn.q_proj.weight: sqnr_db 12 dB is 0.76 below") {
		t.Errorf("%+v", res.Failures)
	}
	r = gateReport()
	r.Text, r.Model, r.Parity = nil, nil, nil
	if g := DefaultGate(r); len(g.Model) != 0 || g.Parity {
		t.Errorf("without a text: %+v", g)
	}
	for bits := 1; bits <= 8; bits++ {
		before := math.Inf(1)
		for _, group := range []int64{16, 32, 48, 64, 1024, 5000, 1 << 20} {
			floor := defaultSQNR(bits, group)
			if floor < 0 || floor > before {
				t.Errorf("%d bits, group %d: %g dB", bits, group, floor)
			}
			before = floor
		}
	}
}

// TestFigureJSON checks the numbers that JSON cannot represent.
func TestFigureJSON(t *testing.T) {
	for _, v := range []float64{0, -3.5, 1e300, math.Inf(1)} {
		b, err := Figure(v).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var got Figure
		if err := got.UnmarshalJSON(b); err != nil || float64(got) != v {
			t.Errorf("%g becomes %s and %g, %v", v, b, got, err)
		}
	}
}

// FuzzParseGate takes any bytes: an error of one type, or a gate that can be checked.
func FuzzParseGate(f *testing.F) {
	f.Add([]byte(fullGate))
	f.Add([]byte("{version: 1, tensors: [{match: '[a-', sqnr_db: {min: 1}}]}"))
	f.Add([]byte("version: 1\nmodel: &a {mean_kl: {max: 1e400}}\n"))
	f.Add([]byte("version: 1\nmodel:\n  <<: *a\n"))
	f.Add([]byte("version: 1\ntensors:\n !x "))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := ParseGate("g.yaml", b)
		if err != nil {
			var ge *GateError
			if !errors.As(err, &ge) || strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("%q", err)
			}
			return
		}
		again, err := ParseGate("g.yaml", b)
		if err != nil || !reflect.DeepEqual(g, again) {
			t.Fatalf("read twice: %v, %v, %v", g, again, err)
		}
		res, err := g.Check(gateReport(), gateReport())
		if err == nil && res.Passed != (len(res.Failures) == 0) {
			t.Fatal(fmt.Sprint(res))
		}
	})
}
