package text

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// ids is the text of TestCut. BOS is 1; EOS, which ends a document, is 2.
const ids = "10 11 2 13 14 15 16"

func testTokenizer(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Open("../../../testdata/books1.3M-bf16")
	if err != nil {
		t.Fatal(err)
	}
	bos, _ := tok.BOS()
	if eos, _ := tok.EOS(); bos != 1 || eos != 2 {
		t.Fatalf("BOS %d, EOS %d", bos, eos)
	}
	return tok
}

func TestCut(t *testing.T) {
	tok := testTokenizer(t)
	for _, c := range []struct {
		name      string
		tok       *tokenizer.Tokenizer
		in        string
		o         Options
		want      []Window
		wantError string
	}{
		{"windows", tok, ids, Options{Convention: Windows, Window: 4}, []Window{
			{[]int32{1, 10, 11, 2}, 1}, {[]int32{1, 13, 14, 15}, 1}, {[]int32{1, 16}, 1}}, ""},
		{"windows without bos", nil, ids, Options{Window: 4}, []Window{
			{[]int32{10, 11, 2, 13}, 1}, {[]int32{14, 15, 16}, 1}}, ""},
		{"stride", tok, "10 11 12 13 14 15 16", Options{Window: 5, Stride: 2}, []Window{
			{[]int32{1, 10, 11, 12, 13}, 1}, {[]int32{1, 12, 13, 14, 15}, 3}, {[]int32{1, 14, 15, 16}, 3}}, ""},
		{"documents by default", tok, ids, Options{Window: 4}, []Window{
			{[]int32{1, 10, 11}, 1}, {[]int32{1, 13, 14, 15}, 1}}, ""},
		{"bos in the ids", tok, "1 10 11 2 1 13 2", Options{Window: 4}, []Window{{[]int32{1, 10, 11}, 1}, {[]int32{1, 13}, 1}}, ""},
		{"llama.cpp", tok, ids, Options{Convention: LlamaCpp, Window: 4}, []Window{
			{[]int32{1, 10, 11, 2}, 3}, {[]int32{1, 14, 15, 16}, 3}}, ""},
		{"llama.cpp with bos in the ids", tok, "1 10 11 12 13", Options{Convention: LlamaCpp, Window: 4}, []Window{{[]int32{1, 10, 11, 12}, 3}}, ""},
		{"llama.cpp without bos", nil, ids, Options{Convention: LlamaCpp, Window: 4}, []Window{{[]int32{10, 11, 2, 13}, 3}}, ""},
		{"limit", tok, "10 11 12 13 14 15 16", Options{Window: 4, MaxTokens: 5}, []Window{{[]int32{1, 10, 11, 12}, 1}, {[]int32{1, 13, 14}, 1}}, ""},
		{"llama.cpp, too short", tok, ids, Options{Convention: LlamaCpp, Window: 9}, nil, "has 8 tokens, fewer than one window of 9"},
		{"llama.cpp with a stride", tok, ids, Options{Convention: LlamaCpp, Window: 8, Stride: 3}, nil, "a stride is for"},
		{"window", tok, ids, Options{Window: 1}, nil, "a window of 1"},
		{"stride too long", tok, ids, Options{Window: 4, Stride: 4}, nil, "a stride of 4"},
		{"convention", tok, ids, Options{Convention: "half"}, nil, `convention "half"`},
		{"nothing", tok, "", Options{}, nil, "no tokens"},
		{"beyond the vocabulary", tok, "1 1024", Options{}, nil, "token 1 is 1024: the vocabulary has 1024"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Cut(t.Context(), c.tok, tok.VocabSize(), Input{Data: []byte(c.in), IDs: true}, c.o)
			if c.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantError) {
					t.Fatalf("error %v, want one with %q", err, c.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got.Windows); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestLlamaCpp compares the windows with llama.cpp's perplexity tool: it tokenizes the text with
// BOS, divides the tokens, and overwrites the first token of each chunk with BOS.
func TestLlamaCpp(t *testing.T) {
	tok := testTokenizer(t)
	data, err := os.ReadFile("../../../testdata/text/lighthouse.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, err := tok.Encode(string(data), tokenizer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all = append([]int32{1}, all...)
	for _, size := range []int{4, 100, 128, 256} {
		c, err := Cut(t.Context(), tok, tok.VocabSize(), Input{Data: data}, Options{Convention: LlamaCpp, Window: size})
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Windows) != len(all)/size {
			t.Errorf("window %d: %d windows of %d tokens", size, len(c.Windows), len(all))
		}
		for i, w := range c.Windows {
			want := slices.Clone(all[i*size : (i+1)*size])
			want[0] = 1
			if !slices.Equal(w.Tokens, want) || w.First != size/2+1 {
				t.Fatalf("window %d of %d tokens begins with %v, scored from %d", i, size, w.Tokens[:4], w.First)
			}
		}
	}
}

// TestMarker splits a text at its markers by default, and warns otherwise.
func TestMarker(t *testing.T) {
	tok := testTokenizer(t)
	const data = "It was late.\n<|endoftext|>\n<|endoftext|> The lamp was out. "
	c, err := Cut(t.Context(), tok, tok.VocabSize(), Input{Data: []byte(data)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, w := range c.Windows {
		texts = append(texts, tok.Decode(w.Tokens, true))
	}
	if d := cmp.Diff([]string{"It was late.", "The lamp was out."}, texts); d != "" || c.Convention != Documents || c.Warning() != "" {
		t.Errorf("%s by default, %q: %s", c.Convention, c.Warning(), d)
	}
	for _, convention := range []Convention{Windows, LlamaCpp} {
		c, err := Cut(t.Context(), tok, tok.VocabSize(), Input{Data: []byte(data)}, Options{Convention: convention, Window: 16})
		if err != nil {
			t.Fatal(err)
		}
		if s := tok.Decode(c.Windows[0].Tokens, true); !strings.HasPrefix(s, "It was late.\n<|endo") || !strings.Contains(c.Warning(), "2 end-of-document markers") {
			t.Errorf("%s: %q, %q", convention, s, c.Warning())
		}
	}
	c, err = Cut(t.Context(), tok, tok.VocabSize(), Input{Data: []byte("No marker. ")}, Options{})
	if err != nil || c.Convention != Windows || c.Warning() != "" {
		t.Errorf("no marker: %v, %+v", err, c)
	}
	calibration, err := Read(t.Context(), tok, []byte(data), 1000, 16)
	if err != nil || len(calibration.Sequences) != 2 || tok.Decode(calibration.Sequences[1], true) != texts[1] {
		t.Errorf("calibration: %v, %v", calibration, err)
	}
}

// TestLongDocument leaves out and counts the rest of a long document, or continues it in further
// windows.
func TestLongDocument(t *testing.T) {
	tok := testTokenizer(t)
	data, err := os.ReadFile("../../../testdata/text/lighthouse.txt")
	if err != nil {
		t.Fatal(err)
	}
	data = []byte(strings.TrimSpace(string(data)))
	whole, err := Cut(t.Context(), tok, tok.VocabSize(), Input{Data: data}, Options{Window: 64})
	if err != nil {
		t.Fatal(err)
	}
	marked, err := Cut(t.Context(), tok, tok.VocabSize(), Input{Data: append(data, EndMarker...)}, Options{Window: 64, Continue: true})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(whole.Windows, marked.Windows); d != "" || marked.Convention != Documents {
		t.Error(d)
	}
	first, err := Cut(t.Context(), tok, tok.VocabSize(), Input{Data: append(data, EndMarker...)}, Options{Window: 64})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(whole.Windows[:1], first.Windows); d != "" {
		t.Error(d)
	}
	if want := CountScored(whole.Windows[1:]); first.LeftOut != want || first.Warning() == "" {
		t.Errorf("%d tokens left out, warning %q; want %d", first.LeftOut, first.Warning(), want)
	}
	// A limit encodes only the beginning, which gives the same tokens.
	few, err := Cut(t.Context(), tok, tok.VocabSize(), Input{Data: []byte(strings.Repeat(string(data), 20))}, Options{Window: 64, MaxTokens: 70})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(limit(whole.Windows, 70), few.Windows); d != "" {
		t.Error(d)
	}
}

func TestNotUTF8(t *testing.T) {
	tok := testTokenizer(t)
	_, err := Cut(t.Context(), tok, tok.VocabSize(), Input{Data: []byte("one" + EndMarker + "two\xff")}, Options{})
	if err == nil || !strings.Contains(err.Error(), "byte 19 is not UTF-8") {
		t.Error(err)
	}
}

func TestParseIDs(t *testing.T) {
	got, err := ParseIDs([]byte("[1, 2,3\n4 5]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int32{1, 2, 3, 4, 5}, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"1 -2", "1 2.5", "x", "99999999999", "0x10"} {
		if ids, err := ParseIDs([]byte(bad)); err == nil {
			t.Errorf("%q gives %v", bad, ids)
		}
	}
}

func FuzzCut(f *testing.F) {
	tok, err := tokenizer.Open(filepath.Join("..", "..", "..", "testdata", "books1.3M-bf16"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("It was late.<|endoftext|> The lamp"), false, 8, 3, 20)
	f.Add([]byte(ids), true, 4, 0, 0)
	f.Fuzz(func(t *testing.T, data []byte, in bool, window, stride, most int) {
		for _, convention := range []Convention{"", Windows, Documents, LlamaCpp} {
			c, err := Cut(t.Context(), tok, tok.VocabSize(), Input{Data: data, IDs: in}, Options{Convention: convention, Window: window, Stride: stride, MaxTokens: most})
			if err != nil {
				continue
			}
			if n := CountScored(c.Windows); n == 0 || most > 0 && n > most {
				t.Fatalf("%d tokens scored of %d", n, most)
			}
			for _, w := range c.Windows {
				if len(w.Tokens) > window && window != 0 || w.First < 1 || w.First >= len(w.Tokens) || w.Tokens[0] != 1 {
					t.Fatalf("%+v", w)
				}
			}
		}
	})
}
