package measure

import (
	"testing"

	"github.com/lowbit-go/gq/internal/lm/logits"
	"github.com/lowbit-go/gq/quantizer"
)

// TestSavedHeader: a header comes from another machine, and its convention is printed.
func TestSavedHeader(t *testing.T) {
	saved := &Saved{Name: "r.logits", File: &logits.File{Header: logits.Header{Vocab: 4, Text: logits.Text{Convention: "\x1b[31m", Window: 5}}}}
	const want = `r.logits: its header has convention "\x1b[31m": use windows, documents, llama.cpp or lm-eval`
	if _, err := (&Job{File: bundledFile(t, quantizer.Recipe{}), Saved: saved}).Run(t.Context()); err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}
