package accuracy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/text"
)

// twoTexts is gateReport with a second text, code.txt.
func twoTexts() *Report {
	r := gateReport()
	r.Text.Name = "dir/prose.txt"
	r.Texts = []TextReport{{
		Text:  &TextInfo{Name: "code.txt", SHA256: "def", Convention: text.Windows, Window: 512, Windows: 8, Tokens: 500},
		Model: &eval.Comparison{KL: eval.Distribution{Mean: 0.2, P99: 2}, SameTop1: 0.7, Ratio: 1.2, Quantized: eval.Perplexity{BitsPerByte: 1.25, BitsPerByteStdErr: 0.01}},
	}}
	return r
}

func TestGateOfTexts(t *testing.T) {
	const few = "code.txt: scored tokens 500 is 500 below the limit 1000"
	for _, c := range []struct {
		name, gate string
		earlier    func(r *Report)
		want       []string // failures
	}{
		{"on every text", "min_tokens: 500\nmodel: {mean_kl: {max: 0.1}}", nil, []string{"code.txt: mean_kl 0.2 nats is 0.1 above the limit 0.1"}},
		{"tokens of every text", "model: {mean_kl: {max: 1}}", nil, []string{few}},
		{"instead", "min_tokens: 500\nmodel: {mean_kl: {max: 0.1}}\ntexts: {code.txt: {mean_kl: {max: 0.3}}}", nil, nil},
		{"instead, stricter", "min_tokens: 500\nmodel: {mean_kl: {max: 0.5}}\ntexts: {code.txt: {mean_kl: {max: 0.15}}}", nil, []string{"code.txt: mean_kl 0.2 nats is 0.05 above the limit 0.15"}},
		{"another figure", "min_tokens: 500\nmodel: {mean_kl: {max: 0.1}}\ntexts: {code.txt: {same_top1: {min: 0.5}}}", nil, []string{"code.txt: mean_kl 0.2 nats is 0.1 above the limit 0.1"}},
		{"a text alone", "min_tokens: 500\ntexts: {prose.txt: {mean_kl: {max: 0.05}}}", nil, []string{"prose.txt: mean_kl 0.0612 nats is 0.0112 above the limit 0.05"}},
		{"a pattern", "min_tokens: 500\ntexts: {'*.txt': {same_top1: {min: 0.75}}}", nil, []string{"code.txt: same_top1 0.7 is 0.05 below the limit 0.75"}},
		{"by bytes", "min_tokens: 500\ntexts: {code.txt: {bits_per_byte: {max: 1}}}", nil, []string{"code.txt: bits_per_byte 1.25 bits (with 2 standard errors of 0.01) is 0.27 above the limit 1"}},
		{"of a text of unknown size", "min_tokens: 500\ntexts: {prose.txt: {word_perplexity: {max: 1}}}", nil, []string{
			"prose.txt: word_perplexity: was not measured: the size of the text is unknown without a tokenizer",
		}},
		{"of the file once", "model: {file_bytes: {max: 10}}", nil, []string{"file_bytes 1000 bytes is 990 above the limit 10"}},
		{"no worse", "min_tokens: 500\nmodel: {mean_kl: {worse: 0.01}}", func(r *Report) { r.Texts[0].Model.KL.Mean = 0.1 }, []string{
			"code.txt: mean_kl 0.2 nats is 0.1 worse than the 0.1 of the earlier report, 0.01 is allowed",
		}},
		{"no worse, texts in another order", "min_tokens: 500\nmodel: {mean_kl: {worse: 0.01}}", func(r *Report) {
			r.TextReport, r.Texts[0] = r.Texts[0], r.TextReport
		}, nil},
	} {
		g, err := ParseGate("g.yaml", []byte("version: 1\n"+c.gate))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var earlier *Report
		if c.earlier != nil {
			earlier = twoTexts()
			c.earlier(earlier)
		}
		r := twoTexts()
		res, err := g.Check(r, earlier)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, f := range res.Failures {
			got = append(got, f.String())
		}
		if !slices.Equal(got, c.want) || res.Passed != (c.want == nil) {
			t.Errorf("%s: failures %q, want %q", c.name, got, c.want)
		}
	}
}

// TestGateOfTextsNoModel: limits on texts are not met if the model cannot be run.
func TestGateOfTextsNoModel(t *testing.T) {
	g, err := ParseGate("g.yaml", []byte("version: 1\nunquantized: true\ntexts: {code.txt: {mean_kl: {max: 1, worse: 1}, same_top1: {min: 0.5}}}"))
	if err != nil {
		t.Fatal(err)
	}
	r := gateReport()
	r.TextReport, r.NoModel = TextReport{}, "no config.json"
	res, err := g.Check(r, twoTexts())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range res.Failures {
		got = append(got, f.String())
	}
	const why = ": was not measured: no config.json"
	if want := []string{"code.txt: mean_kl" + why, "code.txt: mean_kl" + why, "code.txt: same_top1" + why}; !slices.Equal(got, want) || res.Passed {
		t.Errorf("failures %q, want %q", got, want)
	}
}

func TestGateOfTextsErrors(t *testing.T) {
	for _, c := range []struct{ gate, want string }{
		{"texts: {wiki.txt: {mean_kl: {max: 1}}}", "g.yaml: texts.wiki.txt: no name matches: there are prose.txt, code.txt"},
		{"texts: {code.txt: {file_bytes: {max: 1}}}", "g.yaml: texts.code.txt.file_bytes: no such figure; there are mean_kl, "},
		{"texts: {code.txt: {}}", "g.yaml: texts.code.txt: limits no figure"},
		{"texts: {'[': {mean_kl: {max: 1}}}", "g.yaml: texts.[: is not a pattern"},
		{"texts: {code.txt: {mean_kl: {min: 1}}}", "g.yaml: texts.code.txt.mean_kl: min does not limit this figure"},
		{"texts: {code.txt: {mean_kl: {worse: 1}}}", "g.yaml: texts.code.txt.mean_kl: the earlier report did not score the text code.txt"},
	} {
		g, err := ParseGate("g.yaml", []byte("version: 1\n"+c.gate))
		if err == nil {
			_, err = g.Check(twoTexts(), gateReport())
		}
		var ge *GateError
		if !errors.As(err, &ge) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.gate, err, c.want)
		}
	}
}
