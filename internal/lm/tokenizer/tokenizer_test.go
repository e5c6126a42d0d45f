package tokenizer

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// TestPieces checks the tokens of texts under one pre-tokenizer. No merge of the model crosses a
// piece, so tokens reveal the pieces; ignore_merges makes each word of its vocabulary one token.
func TestPieces(t *testing.T) {
	words := obj{}
	for _, w := range strings.Split("<unk>|a|b|c|,|!|_| |a b|a,| ,|, |a | b|  |,,|a,,|,,b|12|1|2|½|a1|_a|_b|__|_c|b c|,b|ab", "|") {
		words[w] = len(words)
	}
	model := obj{"type": "BPE", "unk_token": "<unk>", "ignore_merges": true, "vocab": words, "merges": []string{}}
	split := func(pattern, behavior string, invert bool) obj {
		return obj{"type": "Split", "pattern": obj{"String": pattern}, "behavior": behavior, "invert": invert}
	}
	meta := func(scheme string, split bool) obj {
		return obj{"type": "Metaspace", "replacement": "_", "prepend_scheme": scheme, "split": split}
	}
	for _, c := range []struct {
		pre        obj
		text, want string
	}{
		{split(",", "Isolated", false), "a,,b", "a|,|,|b"},
		{split(",", "Removed", false), "a,,b", "a|b"},
		{split(",", "Removed", true), "a,,b", ",|,"},
		{split(",", "Contiguous", false), "a,,b", "a|,,|b"},
		{split(",", "MergedWithPrevious", false), "a,,b", "a,|,|b"},
		{split(",", "MergedWithNext", false), "a,,b", "a|,|,b"},
		{split("a", "MergedWithNext", true), "a,b", "a|,b"},
		{obj{"type": "Split", "pattern": obj{"Regex": `\s+`}, "behavior": "Isolated"}, "a  b", "a|  |b"},
		{obj{"type": "Whitespace"}, "a,, b", "a|,,|b"},
		{obj{"type": "WhitespaceSplit"}, "a,  b", "a,|b"},
		{obj{"type": "Digits", "individual_digits": true}, "a12½", "a|1|2|½"},
		{obj{"type": "Digits"}, "a12", "a|12"},
		{obj{"type": "Punctuation"}, "a,,b", "a|,|,|b"},
		{obj{"type": "Punctuation", "behavior": "Contiguous"}, "a,,b", "a|,,|b"},
		{meta("always", true), "a b", "_a|_b"},
		{meta("first", true), "a b", "_a|_b"},
		{meta("never", true), "a b", "a|_b"},
		{meta("always", true), " a", "_a"},
		{obj{"type": "Sequence", "pretokenizers": []obj{split(",", "Removed", false), meta("first", false)}}, "a,b", "_a|b"},
		{obj{"type": "Sequence", "pretokenizers": []obj{split(",", "Removed", false), meta("always", false)}}, "a,b", "_a|_b"},
		{obj{"type": "Sequence", "pretokenizers": []obj{}}, "a b", "a b"},
	} {
		tok := parse(t, build(t, obj{"model": model, "pre_tokenizer": c.pre}))
		if got := strings.Join(encode(t, tok, c.text, Options{}), "|"); got != c.want {
			t.Errorf("%v: %q: %s, want %s", c.pre, c.text, got, c.want)
		}
	}
}

func TestNormalizers(t *testing.T) {
	for _, c := range []struct {
		n          obj
		text, want string
	}{
		{obj{"type": "NFC"}, "e\u0301", "é"},
		{obj{"type": "NFD"}, "é", "e\u0301"},
		{obj{"type": "NFKC"}, "ﬁ①", "fi1"},
		{obj{"type": "NFKD"}, "½é", "1⁄2e\u0301"},
		{obj{"type": "Lowercase"}, "ÀİΣ", "ài\u0307σ"},
		{obj{"type": "Strip", "strip_left": true, "strip_right": false}, " \u3000a ", "a "},
		{obj{"type": "Strip", "strip_left": false, "strip_right": true}, " a\u0085 ", " a"},
		{obj{"type": "StripAccents"}, "e\u0301é", "eé"},
		{obj{"type": "Prepend", "prepend": "▁"}, "a", "▁a"},
		{obj{"type": "Prepend", "prepend": "▁"}, "", ""},
		{obj{"type": "Replace", "pattern": obj{"String": " "}, "content": "▁"}, "a  b", "a▁▁b"},
		{obj{"type": "Replace", "pattern": obj{"Regex": `\s+`}, "content": "$0"}, "a  b", "a$0b"},
		{obj{"type": "Replace", "pattern": obj{"Regex": "x*"}, "content": "-"}, "axb", "-a-b-"},
		{obj{"type": "ByteLevel"}, "é a", "Ã©Ġa"},
		{obj{"type": "Sequence", "normalizers": []obj{{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}}}, "É", "e"},
	} {
		tok := parse(t, build(t, obj{"normalizer": c.n}))
		got, err := tok.normalize(c.text, tok.newWork())
		if got != c.want || err != nil {
			t.Errorf("%v: %q: %q %v, want %q", c.n, c.text, got, err, c.want)
		}
	}
}

// TestManyMarks normalizes runs of combining characters into which package norm would insert
// U+034F. The expected texts follow Unicode's algorithm.
func TestManyMarks(t *testing.T) {
	grave, below := strings.Repeat("\u0300", 40), strings.Repeat("\u0323", 40)
	for _, c := range []struct{ form, text, want string }{
		{"NFC", "xe" + grave + below + "가", "xẹ" + below[2:] + grave + "가"},
		{"NFD", "é" + grave, "e\u0301" + grave},
		{"NFC", "\u1112\u1161\u11ab" + grave, "한" + grave},
		{"NFKC", "ﬁ" + grave, "fì" + grave[2:]},
		{"NFKD", "½" + grave, "1⁄2" + grave},
		{"NFC", grave + "e", grave + "e"},
	} {
		tok := parse(t, build(t, obj{"normalizer": obj{"type": c.form}}))
		got, err := tok.normalize(c.text, tok.newWork())
		if got != c.want || err != nil {
			t.Errorf("%s of %+q:\n got %+q %v\nwant %+q", c.form, c.text, got, err, c.want)
		}
	}
}

func TestAddedTokens(t *testing.T) {
	for _, c := range []struct {
		flags      string // w single_word, l lstrip, r rstrip, n normalized, s special
		text, want string
		plain      bool
	}{
		{"s", "a<x>b", "a|<x>|b", false},
		{"s", "a<x>b", "a|<0x3C>|x|<0x3E>|b", true},
		{"", "a<x>b", "a|<x>|b", true},
		{"", "<x><x>", "<x>|<x>", false},
		{"", "<<x>>", "<0x3C>|<x>|<0x3E>", false},
		{"w", "a<x>", "a|<0x3C>|x|<0x3E>", false},
		{"w", "a.<x>", "a|.|<x>", false},
		{"l", "a \n<x> b", "a|<x>|<0x20>|b", false},
		{"r", "a <x> \nb", "a|<0x20>|<x>|b", false},
		{"lr", " <x>  <x> ", "<x>|<x>", false},
		{"n", "a<x>", "a|<x>", false},
	} {
		has := func(f string) bool { return strings.Contains(c.flags, f) }
		tok := parse(t, build(t, obj{"added_tokens": []obj{{
			"id": 400, "content": "<x>", "single_word": has("w"), "lstrip": has("l"), "rstrip": has("r"), "normalized": has("n"), "special": has("s"),
		}, {"id": 401, "content": "<x>y", "normalized": has("n")}}}))
		if got := strings.Join(encode(t, tok, c.text, Options{PlainText: c.plain}), "|"); got != c.want {
			t.Errorf("%s: %q: %s, want %s", c.flags, c.text, got, c.want)
		}
		if got := strings.Join(encode(t, tok, "<x>y", Options{}), "|"); got != "<x>y" {
			t.Errorf("%s: the longest token is not taken: %s", c.flags, got)
		}
	}
}

// TestNormalizedAdded finds a token in the text after Prepend and Replace.
func TestNormalizedAdded(t *testing.T) {
	tok := parse(t, build(t, obj{
		"normalizer": obj{"type": "Sequence", "normalizers": []obj{
			{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": obj{"String": " "}, "content": "▁"},
		}},
		"decoder":      spaceDecoder,
		"added_tokens": []obj{{"id": 400, "content": "<x>", "normalized": true}},
	}))
	if got := strings.Join(encode(t, tok, "a <x>the", Options{}), "|"); got != "▁|a|<x>|the" {
		t.Errorf("got %s", got)
	}
	ids, _ := tok.Encode("a <x>the", Options{})
	if got := tok.Decode(ids, false); got != "a <x>the" {
		t.Errorf("decoded %q", got)
	}
}

func TestUnknown(t *testing.T) {
	for _, c := range []struct {
		model      obj
		text, want string
	}{
		{obj{}, "aé", "a|<0xC3>|<0xA9>"},
		{obj{"byte_fallback": false}, "aéöb", "a|<unk>|b"},
		{obj{"byte_fallback": false, "fuse_unk": false}, "aéöb", "a|<unk>|<unk>|b"},
		{obj{"byte_fallback": false, "unk_token": nil}, "aéöb", "a|b"},
		{obj{"byte_fallback": false, "unk_token": nil}, "tého", "th|o"}, // neighbours merge
		{obj{"ignore_merges": true, "merges": []string{}}, "the", "the"},
		{obj{"merges": [][]string{{"t", "h"}, {"th", "e"}}}, "the", "the"},
		{obj{"merges": []string{"#version: 0.2", "t h"}}, "the", "th|e"},
	} {
		tok := parse(t, build(t, obj{"model": smallModel(c.model)}))
		if got := strings.Join(encode(t, tok, c.text, Options{}), "|"); got != c.want {
			t.Errorf("%v: %q: %s, want %s", c.model, c.text, got, c.want)
		}
	}
	tok := parse(t, build(t, obj{"model": smallModel(obj{"byte_fallback": false, "unk_token": "nowhere"})}))
	if _, err := tok.Encode("é", Options{}); err == nil || !strings.Contains(err.Error(), `model.unk_token: "nowhere" is not in the vocabulary`) {
		t.Errorf("got error %v", err)
	}
}

func TestContinuingPrefix(t *testing.T) {
	model := obj{"type": "BPE", "continuing_subword_prefix": "##", "vocab": obj{"a": 0, "##b": 1, "##c": 2, "ab": 3, "##bc": 4, "abc": 5, "##a": 6},
		"merges": []string{"##b ##c", "a ##bc"}}
	tok := parse(t, build(t, obj{"model": model}))
	for text, want := range map[string]string{"abc": "abc", "abca": "abc|##a", "bc": "##c", "ab": "a|##b"} {
		if got := strings.Join(encode(t, tok, text, Options{}), "|"); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestPostProcessor(t *testing.T) {
	template := func(before, after string) obj {
		token := func(name string) obj { return obj{"SpecialToken": obj{"id": name, "type_id": 0}} }
		return obj{"type": "TemplateProcessing", "single": []obj{token(before), {"Sequence": obj{"id": "A", "type_id": 0}}, token(after)},
			"special_tokens": obj{"x": obj{"id": "x", "ids": []int{280}, "tokens": []string{"x"}}, "y": obj{"ids": []int{281, 282}}}}
	}
	tok := parse(t, build(t, obj{"post_processor": obj{"type": "Sequence", "processors": []obj{
		{"type": "ByteLevel", "trim_offsets": false}, template("x", "y"), template("y", "x"),
	}}}))
	if got := strings.Join(encode(t, tok, "a", Options{AddSpecial: true}), "|"); got != "y|z|x|a|y|z|x" {
		t.Errorf("got %s", got)
	}
	if got := strings.Join(encode(t, tok, "a", Options{}), "|"); got != "a" {
		t.Errorf("without special tokens: %s", got)
	}
}

func TestInvalidText(t *testing.T) {
	tok := parse(t, byteLevelJSON(t))
	ids, err := tok.Encode("a\xffb\xe4\xbd", Options{})
	if got := tok.Decode(ids, false); got != "a\uFFFDb\uFFFD" || err != nil {
		t.Errorf("got %q %v", got, err)
	}
}

// TestBounded: a hostile expression ends encoding with an error.
func TestBounded(t *testing.T) {
	tok := parse(t, build(t, obj{"pre_tokenizer": obj{"type": "Split", "pattern": obj{"Regex": `(?:a|a|aa)+x`}, "behavior": "Isolated"}}))
	if _, err := tok.Encode(strings.Repeat("a", 1000), Options{}); err == nil {
		t.Error("no error")
	}
}

// TestGrowth has files whose stages lengthen a text again and again.
func TestGrowth(t *testing.T) {
	double := obj{"type": "Replace", "pattern": obj{"String": "a"}, "content": "aa"}
	regexp := obj{"type": "Replace", "pattern": obj{"Regex": "[a]"}, "content": "aa"}
	long := obj{"type": "Replace", "pattern": obj{"String": "a"}, "content": strings.Repeat("a", 200)}
	mark := obj{"type": "ByteLevel", "add_prefix_space": true, "use_regex": false}
	single := obj{"type": "Split", "pattern": obj{"Regex": `[\s\S]`}, "behavior": "Isolated"}
	for name, members := range map[string]obj{
		"replace": {"normalizer": obj{"type": "Sequence", "normalizers": slices.Repeat([]obj{double}, 60)}},
		"regexp":  {"normalizer": obj{"type": "Sequence", "normalizers": slices.Repeat([]obj{regexp}, 60)}},
		"long":    {"normalizer": long},
		"bytes":   {"pre_tokenizer": obj{"type": "Sequence", "pretokenizers": slices.Repeat([]obj{{"type": "ByteLevel", "use_regex": false}}, 60)}},
		"spaces":  {"pre_tokenizer": obj{"type": "Sequence", "pretokenizers": slices.Repeat([]obj{single, mark}, 30)}},
	} {
		tok := parse(t, build(t, members))
		if _, err := tok.Encode(strings.Repeat("aé", 1000), Options{}); err != errGrowth {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

// TestLongWords has words of 256 KB, for which a quadratic algorithm would take minutes.
func TestLongWords(t *testing.T) {
	n := 1 << 18
	if testing.Short() {
		n = 1 << 15
	}
	byBytes := parse(t, byteLevelJSON(t))
	bySpaces, err := Open(books(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"a", " ", "the", "日", "\n", "' ", "e\u0301", "<"} {
		text := strings.Repeat(word, n/len(word))
		for _, tok := range []*Tokenizer{byBytes, bySpaces} {
			ids, err := tok.Encode(text, Options{})
			if err != nil {
				t.Fatal(err)
			}
			want := text
			if tok == byBytes {
				want = strings.ReplaceAll(text, "e\u0301", "é")
			}
			if got := tok.Decode(ids, false); got != want {
				t.Errorf("%q repeated: %d bytes come back as %d", word, len(want), len(got))
			}
		}
	}
}

func TestConcurrent(t *testing.T) {
	tok, err := Open(books(t))
	if err != nil {
		t.Fatal(err)
	}
	text := "One tokenizer may be used by several goroutines at once. "
	want, err := tok.Encode(text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				if got, err := tok.Encode(text, Options{}); err != nil || !slices.Equal(got, want) {
					t.Errorf("got %d %v", got, err)
				}
			}
		})
	}
	wg.Wait()
}

// FuzzRoundTrip encodes text and decodes it again.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"", " ", "the  the\n", "é 日本 😀", "<|end|><s>", "a\u0301\u0323", "\x00\xff", "▁a"} {
		f.Add(s)
	}
	byBytes := parse(f, byteLevelJSON(f))
	bySpaces, err := Open(books(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		valid := text
		if !utf8.ValidString(text) {
			valid = strings.ToValidUTF8(text, "\uFFFD")
		}
		normal, err := byBytes.normalize(valid, byBytes.newWork())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			tok  *Tokenizer
			want string
		}{{byBytes, normal}, {bySpaces, strings.ReplaceAll(valid, "▁", " ")}} {
			ids, err := c.tok.Encode(text, Options{PlainText: true})
			if err != nil {
				t.Fatal(err)
			}
			if got := c.tok.Decode(ids, false); got != c.want {
				t.Errorf("%q: %q, want %q", text, got, c.want)
			}
			checkStream(t, c.tok, ids)
			if _, err := c.tok.Encode(text, Options{AddSpecial: true}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
