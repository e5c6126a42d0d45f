package measure

import (
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/quantizer"
)

// TestJobTexts checks that each text has the figures that it has alone.
func TestJobTexts(t *testing.T) {
	file := bundledFile(t, quantizer.Recipe{})
	baseline := bundledFile(t, quantizer.Recipe{Bits: 8})
	sources := []*TextSource{
		{Name: "a", Data: prose(t), Options: text.Options{MaxTokens: 60, Window: 32}},
		{Name: "ids", Data: []byte("5 6 7 8 9 10 11"), Tokens: true},
	}
	run := func(sources ...*TextSource) *accuracy.Report {
		r, err := (&Job{Settings: accuracy.Settings{NoOutputs: true}, Source: bundled, File: file, Baseline: baseline, Texts: sources}).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	both := run(sources...)
	checkSchema(t, both, "gate", "parity")
	for i, r := range both.Scored() {
		alone := run(sources[i])
		a, b := &accuracy.Report{TextReport: *r}, &accuracy.Report{TextReport: alone.TextReport}
		if withoutRun(t, a) != withoutRun(t, b) {
			t.Errorf("text %d has other figures beside the other text", i)
		}
	}
	if n := len(both.Scored()); n != 2 {
		t.Errorf("%d texts", n)
	}
}

func TestJobTextNames(t *testing.T) {
	file := bundledFile(t, quantizer.Recipe{})
	g, err := accuracy.ParseGate("g.yaml", []byte("version: 1\ntexts: {c.txt: {mean_kl: {max: 1}}}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		names []string
		gate  *accuracy.Gate
		want  string
	}{
		{[]string{"x/a.txt", "y/a.txt"}, nil, `two texts are called "a.txt", x/a.txt and y/a.txt: name them, as in a=x/a.txt and b=y/a.txt`},
		{[]string{"n", "n"}, nil, `two texts are called "n": give them different names, as in a=FILE and b=FILE`},
		{[]string{"x/a.txt", "b.txt"}, g, "g.yaml: texts.c.txt: no name matches: there are a.txt, b.txt"},
	} {
		j := &Job{Source: bundled, File: file, Gate: c.gate}
		for _, name := range c.names {
			j.Texts = append(j.Texts, &TextSource{Name: name, Data: []byte("Once upon a time")})
		}
		if _, err := j.Run(t.Context()); err == nil || err.Error() != c.want {
			t.Errorf("%q: error %v, want %q", c.names, err, c.want)
		}
	}
}
