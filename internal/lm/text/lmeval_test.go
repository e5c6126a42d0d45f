package text

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// lmEvalVectors were computed by lm-evaluation-harness at commit 4e7e0d47: wikitext_detokenizer and
// process_results of its task wikitext, get_rolling_token_windows and make_disjoint_window of
// lm_eval/utils.py, and _generate_examples of the data set wikitext_document_level. Wikitext2 is
// about shared/text/wikitext2-test.txt.
type lmEvalVectors struct {
	Text  string
	Pages []struct {
		Page, Detokenized string
		Words, Bytes      int
	}
	Windows []struct {
		N, Size int // n tokens 100, 101 ..., with the prefix 1 and max_length size
		Windows []struct{ Context, Predicted []int32 }
	}
	Wikitext2 struct {
		Pages, Words, Bytes int
		SHA256              string // of the detokenized pages with NUL between them
	}
}

func readLMEval(t *testing.T) (v lmEvalVectors) {
	t.Helper()
	b, err := os.ReadFile("testdata/lmeval.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestLMEvalPages(t *testing.T) {
	v := readLMEval(t)
	pages := splitPages(v.Text)
	if len(pages) != len(v.Pages) {
		t.Fatalf("%d pages, want %d: %q", len(pages), len(v.Pages), pages)
	}
	for i, want := range v.Pages {
		if pages[i] != want.Page {
			t.Errorf("page %d is %q, want %q", i, pages[i], want.Page)
		}
		if got := detokenize(want.Page); got != want.Detokenized {
			t.Errorf("page %d, detokenized: %q, want %q", i, got, want.Detokenized)
		}
		if got, want := documentSize(want.Page), (Size{want.Bytes, want.Words}); got != want {
			t.Errorf("page %d: %+v, want %+v", i, got, want)
		}
	}
}

func TestLMEvalWindows(t *testing.T) {
	for _, c := range readLMEval(t).Windows {
		var ids []int32
		for i := range c.N {
			ids = append(ids, int32(100+i))
		}
		got := roll(1, ids, c.Size)
		if len(got) != len(c.Windows) {
			t.Errorf("%d tokens in windows of %d: %d windows, want %d", c.N, c.Size, len(got), len(c.Windows))
			continue
		}
		for i, want := range c.Windows {
			if w := got[i]; !slices.Equal(w.Tokens[:w.First], want.Context) || !slices.Equal(w.Tokens[w.First:], want.Predicted) {
				t.Errorf("%d tokens in windows of %d, window %d: %v, want %v", c.N, c.Size, i, w, want)
			}
		}
	}
}

// TestLMEvalWikiText reads all of WikiText-2's test set.
func TestLMEvalWikiText(t *testing.T) {
	testshared.SlowEmulated(t, "one page has every rule")
	b, err := os.ReadFile(filepath.Join(testshared.Dir(t), "text/wikitext2-test.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := readLMEval(t).Wikitext2
	var all Size
	var pages []string
	for _, p := range splitPages(string(b)) {
		all.Add(documentSize(p))
		pages = append(pages, detokenize(p))
	}
	sum := sha256.Sum256([]byte(strings.Join(pages, "\x00")))
	if len(pages) != want.Pages || all != (Size{want.Bytes, want.Words}) || hex.EncodeToString(sum[:]) != want.SHA256 {
		t.Errorf("%d pages, %+v, %x; want %+v", len(pages), all, sum, want)
	}
}

func TestCutLMEval(t *testing.T) {
	tok := testTokenizer(t)
	v := readLMEval(t)
	cut := func(max int) *Cutting {
		c, err := Cut(t.Context(), tok, tok.VocabSize(), Input{Data: []byte(v.Text)}, Options{Convention: LMEval, Window: 50, MaxTokens: max})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := cut(0)
	var scored []int32
	var all Size
	for i, z := range c.Sizes(tok) {
		scored = append(scored, c.Windows[i].Tokens[c.Windows[i].First:]...)
		all.Add(z)
	}
	var ids []int32
	var want Size
	for _, p := range v.Pages {
		page, err := tok.Encode(p.Detokenized, tokenizer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, page...)
		want.Add(Size{p.Bytes, p.Words})
	}
	if !slices.Equal(scored, ids) {
		t.Error("the scored tokens are not the tokens of the pages")
	}
	if all != want {
		t.Errorf("the windows have %+v, the pages %+v", all, want)
	}
	if c.Warning() != "" {
		t.Errorf("warning: %s", c.Warning())
	}
	half := cut(len(ids) / 3)
	if n := CountScored(half.Windows); n != len(ids)/3 {
		t.Errorf("%d tokens, want %d", n, len(ids)/3)
	}
	if !reflect.DeepEqual(half.Windows[:2], c.Windows[:2]) {
		t.Error("the beginning has other windows")
	}
	part := Size{}
	for _, z := range half.Sizes(tok) {
		part.Add(z)
	}
	if 2*part.Bytes > all.Bytes || 5*part.Bytes < all.Bytes {
		t.Errorf("a third has %+v of %+v", part, all)
	}
}

func TestCutLMEvalErrors(t *testing.T) {
	tok := testTokenizer(t)
	for _, c := range []struct {
		in   Input
		o    Options
		want string
	}{
		{Input{Data: []byte("1 2 3"), IDs: true}, Options{}, "token ids have no pages"},
		{Input{}, Options{}, "the text has no tokens"},
		{Input{Data: []byte("a\xff")}, Options{}, "byte 1 is not UTF-8"},
		{Input{Data: []byte("a")}, Options{Stride: 3}, "a stride is for"},
	} {
		c.o.Convention = LMEval
		if _, err := Cut(t.Context(), tok, tok.VocabSize(), c.in, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.in.Data, err, c.want)
		}
	}
	c, err := Cut(t.Context(), tok, tok.VocabSize(), Input{Data: []byte("a <unk> b <unk>")}, Options{Convention: LMEval})
	if err != nil || !strings.HasPrefix(c.Warning(), "the text has 2 words <unk>: ") {
		t.Errorf("a text with <unk>: %v", err)
	}
}

// TestSizes checks the sizes of windows against the text.
func TestSizes(t *testing.T) {
	tok := testTokenizer(t)
	const prose = "The lamp was out.  It was \t\n late – “in” the evening, 12 °C, \U0001f600!\nHe slept. "
	words := len(strings.Fields(prose)) + 1 // white space at the end
	for _, c := range []struct {
		name string
		text string
		o    Options
		want Size
	}{
		{"one window", prose, Options{}, Size{len(prose), words}},
		{"windows of 4", prose, Options{Window: 4}, Size{len(prose), words}},
		{"with a stride", prose, Options{Window: 8, Stride: 3}, Size{len(prose), words}},
		{"documents", prose + EndMarker + "\n" + prose, Options{Window: 5, Continue: true}, Size{2*len(prose) - 2, 2*words - 2}},
	} {
		cut, err := Cut(t.Context(), tok, tok.VocabSize(), Input{Data: []byte(c.text)}, c.o)
		if err != nil {
			t.Fatal(err)
		}
		var got Size
		for _, z := range cut.Sizes(tok) {
			got.Add(z)
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	var ids Cutting
	if ids.Sizes(nil) != nil {
		t.Error("sizes without a tokenizer")
	}
}
