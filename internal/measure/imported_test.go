package measure

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/imports"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// small is a tokenizer of a few tokens, in this order.
func small(t *testing.T, bos string, tokens ...string) *tokenizer.Tokenizer {
	t.Helper()
	var vocab []string
	for i, token := range tokens {
		vocab = append(vocab, fmt.Sprintf("%q: %d", token, i))
	}
	tok, err := tokenizer.ParseFiles(tokenizer.Files{
		Tokenizer: []byte(`{"model": {"type": "BPE", "vocab": {` + strings.Join(vocab, ", ") + `}, "merges": []}}`),
		Config:    []byte(fmt.Sprintf(`{"bos_token": %q}`, bos)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestTokenizerNotes(t *testing.T) {
	ours := small(t, "a", "a", "b", "▁▁", "c")
	for _, c := range []struct {
		theirs *tokenizer.Tokenizer
		want   string
	}{
		{small(t, "a", "a", "b", "  ", "c"), ""},
		{small(t, "a", "a", "b", "▁▁", "c", "[PAD4]"), ""},
		{small(t, "b", "a", "b", "▁▁", "c"), "the file's BOS is token 1, the checkpoint's 0"},
		{small(t, "a", "a", "b", "▁▁", "d"), `1 tokens differ from the checkpoint's, first id 3: "d", not "c"|the file's tokenizer divides the text in another way, from token 2 on: figures use the checkpoint's`},
	} {
		if got := strings.Join(tokenizerNotes(ours, c.theirs, 5, "abc"), "|"); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// TestImportedStats: figures say how the GGUF file stores a tensor.
func TestImportedStats(t *testing.T) {
	im := &Imported{Tensors: map[string]imports.ImportedTensor{
		"k": {Type: "Q4_K", Quantized: true, Bits: 4, Group: 256, Bytes: 144}, "norm": {Type: "F32", Quantized: false, Bits: 32, Group: 1, Bytes: 1024},
		"codes": {Type: "Q8_0", Quantized: true, Bits: 8, Group: 32, Bytes: 272}, "half": {Type: "F16", Quantized: false, Bits: 16, Group: 1, Bytes: 512},
	}}
	for _, c := range []struct{ in, want accuracy.TensorStats }{
		{accuracy.TensorStats{Name: "k", Unquantized: true, TensorScheme: &accuracy.TensorScheme{Layout: "plain", Bits: 32}, Difference: "x"}, accuracy.TensorStats{Name: "k", TensorScheme: &accuracy.TensorScheme{Layout: "Q4_K", Bits: 4, Group: 256}, Bytes: 144, BPW: 4.5}},
		{accuracy.TensorStats{Name: "norm", TensorScheme: &accuracy.TensorScheme{}, Unquantized: true, Equal: true}, accuracy.TensorStats{Name: "norm", TensorScheme: &accuracy.TensorScheme{}, Unquantized: true, Equal: true, Bytes: 1024, BPW: 32}},
		{accuracy.TensorStats{Name: "codes", TensorScheme: &accuracy.TensorScheme{Bits: 8, Layout: "lowbit"}}, accuracy.TensorStats{Name: "codes", TensorScheme: &accuracy.TensorScheme{Bits: 8, Layout: "lowbit"}, Bytes: 272, BPW: 8.5}},
		{accuracy.TensorStats{Name: "half", TensorScheme: &accuracy.TensorScheme{}, Unquantized: true, SQNR: 90, MaxError: 1e-9, Difference: "d"}, accuracy.TensorStats{Name: "half", TensorScheme: &accuracy.TensorScheme{}, Unquantized: true, Difference: "d", Bytes: 512, BPW: 16}},
	} {
		s := c.in
		s.Rows, s.Cols = 1, 256
		im.describe(&s, fits{calibration: gqf.AlgorithmOther})
		w := c.want
		if s.Unquantized != w.Unquantized || s.Equal != w.Equal || s.Layout != w.Layout || s.Difference != w.Difference || s.Bytes != w.Bytes || s.BPW != w.BPW || s.Group != w.Group || w.Bits != 0 && s.Bits != w.Bits {
			t.Errorf("%+v\nwant %+v", s, w)
		}
	}
}
