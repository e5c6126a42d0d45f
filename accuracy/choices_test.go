package accuracy

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/choice"
	"github.com/lowbit-go/gq/internal/lm/eval"
)

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
		{"few questions", "choices: {'*': {acc_drop: {max: 0.1}, mean_kl: {max: 1}}}", nil, []string{"arc.jsonl: different questions 50 is 50 below the limit 100"}},
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
