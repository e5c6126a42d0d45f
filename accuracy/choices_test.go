package accuracy

import (
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/testshared"
	"github.com/lowbit-go/gq/model/choice"
	"github.com/lowbit-go/gq/model/eval"
	"github.com/lowbit-go/gq/quantizer"
)

func questions(t *testing.T) *ChoiceSource {
	t.Helper()
	b, err := os.ReadFile("../testdata/choices/lighthouse.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	list, form, err := choice.Read(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &ChoiceSource{Name: "lighthouse.jsonl", Data: b, Questions: list, Form: form}
}

// TestJobChoices answers questions without a text.
func TestJobChoices(t *testing.T) {
	testshared.SlowEmulated(t, "CI compares the reports of gq accuracy on arm64 with those on amd64")
	file, baseline := bundledFile(t, quantizer.Recipe{Bits: 2}), bundledFile(t, quantizer.Recipe{Bits: 8})
	run := func(threads int) *Report {
		j := &Job{Source: bundled, File: file, Baseline: baseline, Choices: []*ChoiceSource{questions(t)}, NoOutputs: true, Threads: threads}
		r, err := j.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := run(1)
	checkSchema(t, r, "text", "model", "baseline", "gate", "parity")
	if withoutRun(t, r) != withoutRun(t, run(3)) {
		t.Error("the answers depend on the number of threads")
	}
	c := r.Choices[0]
	switch {
	case c.Form != choice.Plain || c.Cut != 0 || c.Model.Questions != 8 || c.SHA256 != hash(questions(t).Data):
		t.Errorf("%+v", c)
	case c.Model.Float.Acc < 0.7 || c.Model.Float.Acc != c.Baseline.Float.Acc:
		t.Errorf("the float model has acc %g and %g", c.Model.Float.Acc, c.Baseline.Float.Acc)
	case c.Baseline.KL.Mean <= 0 || c.Model.KL.Mean <= c.Baseline.KL.Mean:
		t.Errorf("2 bits have a KL divergence of %g, 8 bits of %g", c.Model.KL.Mean, c.Baseline.KL.Mean)
	}
}

// TestJobChoiceErrors checks that errors name the file and the line.
func TestJobChoiceErrors(t *testing.T) {
	file := bundledFile(t, quantizer.Recipe{})
	source := questions(t)
	source.Questions[3].Endings[1] = strings.Repeat("la ", 300)
	j := &Job{Source: bundled, File: file, Choices: []*ChoiceSource{source}, NoOutputs: true}
	if _, err := j.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "lighthouse.jsonl: line 4: ending 1 has ") {
		t.Errorf("an ending longer than the context: %v", err)
	}
	g, err := ParseGate("g.yaml", []byte("version: 1\nchoices: {arc: {acc: {min: 0}}}"))
	if err != nil {
		t.Fatal(err)
	}
	j = &Job{Source: bundled, File: file, Choices: []*ChoiceSource{questions(t)}, Gate: g}
	if _, err := j.Run(t.Context()); err == nil || err.Error() != "g.yaml: choices.arc: no name matches: there are lighthouse.jsonl" {
		t.Errorf("a gate of another file: %v", err)
	}
	// Other questions in the earlier report are found before any work.
	if g, err = ParseGate("g.yaml", []byte("version: 1\nchoices: {'*': {acc: {worse: 0}}}")); err != nil {
		t.Fatal(err)
	}
	j = &Job{Source: bundled, File: file, Choices: []*ChoiceSource{questions(t)}, Gate: g, Earlier: gateReport()}
	j.Stage = func(name, _ string, _ int64) (func(int64), func()) {
		t.Errorf("%s began before the earlier report was looked at", name)
		return func(int64) {}, func() {}
	}
	if _, err := j.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "g.yaml: choices.lighthouse.jsonl.acc: the earlier report does not have these questions") {
		t.Errorf("an earlier report without questions: %v", err)
	}
	// A model that cannot be run answers nothing, and meets no gate.
	if g, err = ParseGate("g.yaml", []byte("version: 1\nchoices: {'*': {acc: {min: 0}}}")); err != nil {
		t.Fatal(err)
	}
	j = &Job{Source: refusedModel(t), File: file, Choices: []*ChoiceSource{questions(t)}, Gate: g, NoOutputs: true}
	r, err := j.Run(t.Context())
	if err != nil || r.Choices != nil || r.Gate.Passed || !strings.HasPrefix(r.Gate.Failures[0].String(), "answered questions: none were answered: ") {
		t.Errorf("a model that cannot be run: %v, %+v", err, r)
	}
}

func TestGateOfChoices(t *testing.T) {
	report := func() *Report {
		r := gateReport()
		r.TextReport = TextReport{}
		for i, name := range []string{"x/hellaswag.jsonl", "arc.jsonl"} {
			c := &eval.ChoiceComparison{Questions: 200 - 150*i, Float: eval.Answers{Acc: 0.5}, Quantized: eval.Answers{Acc: 0.46, AccStdErr: 0.01}, AccDrop: 0.04, AccDropStdErr: 0.005}
			r.Choices = append(r.Choices, ChoiceReport{Name: name, SHA256: name, Form: choice.Plain, Model: c})
		}
		return r
	}
	for _, c := range []struct {
		name, gate string
		earlier    func(r *Report)
		want       []string // failures
	}{
		{"met", "choices: {hellaswag.jsonl: {acc: {min: 0.44}, acc_drop: {max: 0.05}}}", nil, nil},
		{"two standard errors", "choices: {hellaswag.jsonl: {acc: {min: 0.45}, acc_drop: {max: 0.04}}}", nil, []string{
			"hellaswag.jsonl: acc 0.46 (with 2 standard errors of 0.01) is 0.01 below the limit 0.45",
			"hellaswag.jsonl: acc_drop 0.04 (with 2 standard errors of 0.005) is 0.01 above the limit 0.04",
		}},
		{"few questions", "choices: {'*': {acc_drop: {max: 0.1}, mean_kl: {max: 1}}}", nil, []string{"arc.jsonl: answered questions 50 is 50 below the limit 100"}},
		{"as few as asked for", "min_questions: 50\nchoices: {'*': {acc_drop: {max: 0.1}}}", nil, nil},
		{"no worse", "min_questions: 50\nchoices: {'*': {acc: {worse: 0.01}}}", func(r *Report) { r.Choices[1].Model.Quantized.Acc = 0.5 }, []string{
			"arc.jsonl: acc 0.46 is 0.04 worse than the 0.5 of the earlier report, 0.01 is allowed",
		}},
	} {
		g, err := ParseGate("g.yaml", []byte("version: 1\n"+c.gate))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var earlier *Report
		if c.earlier != nil {
			earlier = report()
			c.earlier(earlier)
		}
		res, err := g.Check(report(), earlier)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, f := range res.Failures {
			got = append(got, f.String())
		}
		if !slices.Equal(got, c.want) || !res.ModelRun {
			t.Errorf("%s: failures %q, want %q", c.name, got, c.want)
		}
	}
}

func TestGateOfChoicesErrors(t *testing.T) {
	r := gateReport()
	r.Choices = []ChoiceReport{{Name: "arc.jsonl", SHA256: "abc", Model: &eval.ChoiceComparison{Questions: 200, Quantized: eval.Answers{AccStdErr: eval.StdErr(math.Inf(1))}}}}
	other := gateReport()
	other.Choices = []ChoiceReport{{Name: "arc.jsonl", SHA256: "abc", Model: &eval.ChoiceComparison{Questions: 100}}}
	for _, c := range []struct {
		gate    string
		earlier *Report
		want    string
	}{
		{"choices: {arc.jsonl: {perplexity: {max: 1}}}", nil, "g.yaml: choices.arc.jsonl.perplexity: no such figure; there are acc, acc_norm, acc_drop, "},
		{"choices: {arc.jsonl: {acc: {max: 1}}}", nil, "g.yaml: choices.arc.jsonl.acc: max does not limit this figure"},
		{"choices: {mmlu: {acc: {min: 1}}}", nil, "g.yaml: choices.mmlu: no name matches: there are arc.jsonl"},
		{"min_questions: 0\nchoices: {'*': {acc: {min: 1}}}", nil, "g.yaml: min_questions: is 0, want 1 or more"},
		{"choices: {'*': {acc: {worse: 1}}}", gateReport(), "g.yaml: choices.arc.jsonl.acc: the earlier report does not have these questions"},
		{"choices: {'*': {acc: {worse: 1}}}", other, "g.yaml: choices.arc.jsonl.acc: the earlier report has 100 of the questions, this one 200"},
	} {
		g, err := ParseGate("g.yaml", []byte("version: 1\n"+c.gate))
		if err == nil {
			_, err = g.Check(r, c.earlier)
		}
		var ge *GateError
		if !errors.As(err, &ge) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.gate, err, c.want)
		}
	}
}
