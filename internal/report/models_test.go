package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/lm/eval"
)

// TestSeveralTexts looks for the tables of a second text and of questions in every format with
// tables.
func TestSeveralTexts(t *testing.T) {
	r := sample(1)
	second := r.TextReport
	second.Text = &accuracy.TextInfo{Name: "dir/code.txt", Convention: "windows", Window: 512, Windows: 3, Tokens: 1000}
	m := *r.Model
	m.Positions = []eval.PositionStats{{From: 1, To: 1, Tokens: 3, FloatPerplexity: 2, QuantizedPerplexity: 3, KL: 0.5}, {From: 2, To: 3, Tokens: 6, FloatPerplexity: 2, QuantizedPerplexity: 3, KL: 0.25}}
	m.Float.BitsPerByte, m.Float.WordPerplexity = 1.25, 77
	second.Model = &m
	r.Texts = []accuracy.TextReport{second}
	answers := &eval.ChoiceComparison{Questions: 500, Float: eval.Answers{Acc: 0.5, AccStdErr: 0.02}, Quantized: eval.Answers{Acc: 0.48, AccStdErr: 0.02}, AccDrop: 0.02, AccDropStdErr: 0.01}
	r.Choices = []accuracy.ChoiceReport{{Name: "dir/arc.jsonl", Form: "arc", Model: answers, Baseline: answers}}
	for _, extension := range []string{".html", ".md", ".txt"} {
		var b bytes.Buffer
		if extension == ".txt" {
			if err := Text(&b, r, TextOptions{Verbose: true}); err != nil {
				t.Fatal(err)
			}
		} else if err := Write(&b, extension, r); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"Model on text.txt", "Model on code.txt", "Worst tokens on code.txt", "By position in the window on code.txt", "bits per byte", "word perplexity",
			"Answers to arc.jsonl (500 questions)", "48.00 ± 2.00 %", "dir/code.txt: windows of 512 tokens",
		} {
			text := b.String()
			if extension == ".md" {
				text = strings.ReplaceAll(text, "\\", "")
			}
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q", extension, want)
			}
		}
		if extension == ".html" && strings.Count(b.String(), "<figcaption>KL divergence of a token on") != 2 {
			t.Error("no plot for each text")
		}
	}
}
