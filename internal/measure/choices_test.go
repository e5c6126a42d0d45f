package measure

import (
	"os"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/lm/choice"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

func questions(t *testing.T) *ChoiceSource {
	t.Helper()
	b, err := os.ReadFile("../../testdata/choices/lighthouse.jsonl")
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
	run := func(threads int) *accuracy.Report {
		j := &Job{Settings: accuracy.Settings{NoOutputs: true, Threads: threads}, Source: bundled, File: file, Baseline: baseline, Choices: []*ChoiceSource{questions(t)}}
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
	j := &Job{Settings: accuracy.Settings{NoOutputs: true}, Source: bundled, File: file, Choices: []*ChoiceSource{source}}
	if _, err := j.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "lighthouse.jsonl: line 4: ending 1 has ") {
		t.Errorf("an ending longer than the context: %v", err)
	}
	g, err := accuracy.ParseGate("g.yaml", []byte("version: 1\nchoices: {arc: {acc: {min: 0}}}"))
	if err != nil {
		t.Fatal(err)
	}
	j = &Job{Source: bundled, File: file, Choices: []*ChoiceSource{questions(t)}, Gate: g}
	if _, err := j.Run(t.Context()); err == nil || err.Error() != "g.yaml: choices.arc: no name matches: there are lighthouse.jsonl" {
		t.Errorf("a gate of another file: %v", err)
	}
	// Other questions in the earlier report are found before any work.
	if g, err = accuracy.ParseGate("g.yaml", []byte("version: 1\nchoices: {'*': {acc: {worse: 0}}}")); err != nil {
		t.Fatal(err)
	}
	j = &Job{Source: bundled, File: file, Choices: []*ChoiceSource{questions(t)}, Gate: g, Earlier: &accuracy.Report{}}
	j.Stage = func(name, _ string, _ int64) (func(int64), func()) {
		t.Errorf("%s began before the earlier report was looked at", name)
		return func(int64) {}, func() {}
	}
	if _, err := j.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "g.yaml: choices.lighthouse.jsonl.acc: the earlier report does not have these questions") {
		t.Errorf("an earlier report without questions: %v", err)
	}
	// A model that cannot be run answers nothing, and meets no gate.
	if g, err = accuracy.ParseGate("g.yaml", []byte("version: 1\nchoices: {'*': {acc: {min: 0}}}")); err != nil {
		t.Fatal(err)
	}
	j = &Job{Settings: accuracy.Settings{NoOutputs: true}, Source: refusedModel(t), File: file, Choices: []*ChoiceSource{questions(t)}, Gate: g}
	r, err := j.Run(t.Context())
	if err != nil || r.Choices != nil || r.Gate.Passed || !strings.HasPrefix(r.Gate.Failures[0].String(), "different questions: none were answered: ") {
		t.Errorf("a model that cannot be run: %v, %+v", err, r)
	}
}
