package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestRefused(t *testing.T) {
	model := func(key string, value any) obj { return obj{"model": smallModel(obj{key: value})} }
	added := func(o obj) obj { return obj{"added_tokens": []obj{o}} }
	pre := func(o obj) obj { return obj{"pre_tokenizer": o} }
	seq := func(kind, key string, list ...obj) obj { return obj{kind: obj{"type": "Sequence", key: list}} }
	for _, c := range []struct {
		name        string
		members     obj
		path, msg   string
		unsupported bool
	}{
		{"version", obj{"version": "2.0"}, "version", `version "2.0"`, true},
		{"no model", obj{"model": nil}, "model", "is missing", false},
		{"model is no object", obj{"model": 3}, "model", "is not an object", false},
		{"Unigram", model("type", "Unigram"), "model", `model "Unigram" is not supported`, true},
		{"WordPiece", obj{"model": obj{"type": "WordPiece", "vocab": obj{}}}, "model", `"WordPiece"`, true},
		{"dropout", model("dropout", 0.1), "model.dropout", "dropout is not supported", true},
		{"suffix", model("end_of_word_suffix", "</w>"), "model.end_of_word_suffix", `"</w>"`, true},
		{"vocab", model("vocab", []int{1}), "model.vocab", "is not an object", false},
		{"id", model("vocab", obj{"a": -1}), "model.vocab", `the id of token "a"`, false},
		{"huge id", model("vocab", obj{"a": 2000000000}), "model.vocab", "id 2000000000 in a vocabulary of 1 tokens", false},
		{"same id", model("vocab", obj{"a": 1, "b": 1}), "model.vocab", "have the same id 1", false},
		{"merges", model("merges", obj{}), "model.merges", "is not an array", false},
		{"merge of one", model("merges", []string{"a n", "an"}), "model.merges[1]", "is not a pair of tokens", false},
		{"merge of three", model("merges", []string{"a n t"}), "model.merges[0]", "is not a pair of tokens", false},
		{"merge of numbers", model("merges", [][]int{{1, 2}}), "model.merges[0]", "is not a pair of tokens", false},
		{"merge unknown", model("merges", []string{"a ö"}), "model.merges[0]", `"a" or "ö" is not in the vocabulary`, false},
		{"merge result", model("merges", []string{"a b"}), "model.merges[0]", `"ab" is not in the vocabulary`, false},
		{"prefix", model("continuing_subword_prefix", "##"), "model.merges[0]", "does not begin with the prefix", false},
		{"normalizer", obj{"normalizer": obj{"type": "Precompiled"}}, "normalizer", `"Precompiled" is not supported`, true},
		{"normalizer without type", obj{"normalizer": obj{}}, "normalizer", `"type" is missing`, false},
		{"in a sequence", seq("normalizer", "normalizers", obj{"type": "NFC"}, obj{"type": "BertNormalizer"}), "normalizer.normalizers[1]", "BertNormalizer", true},
		{"pre-tokenizer", seq("pre_tokenizer", "pretokenizers", obj{"type": "UnicodeScripts"}), "pre_tokenizer.pretokenizers[0]", "UnicodeScripts", true},
		{"pattern", pre(obj{"type": "Split", "pattern": obj{"Regex": "(a"}}), "pre_tokenizer.pattern.Regex", "missing parenthesis", false},
		{"unsupported pattern", pre(obj{"type": "Split", "pattern": obj{"Regex": `(a)\1`}}), "pre_tokenizer.pattern.Regex", `\1 is not supported`, true},
		{"empty pattern", pre(obj{"type": "Split", "pattern": obj{"String": ""}}), "pre_tokenizer.pattern.String", "is an empty pattern", false},
		{"no pattern", pre(obj{"type": "Split"}), "pre_tokenizer", `"pattern" is missing`, false},
		{"behavior", pre(obj{"type": "Punctuation", "behavior": "Odd"}), "pre_tokenizer.behavior", `"Odd"`, false},
		{"scheme", pre(obj{"type": "Metaspace", "replacement": "_", "prepend_scheme": "odd"}), "pre_tokenizer.prepend_scheme", `"odd"`, false},
		{"contradiction", pre(obj{"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "add_prefix_space": false}), "pre_tokenizer", "contradict", false},
		{"replacement", pre(obj{"type": "Metaspace", "replacement": "__"}), "pre_tokenizer.replacement", "is not one character", false},
		{"bool", pre(obj{"type": "Digits", "individual_digits": 1}), "pre_tokenizer.individual_digits", "is neither true nor false", false},
		{"post-processor", obj{"post_processor": obj{"type": "BertProcessing"}}, "post_processor", "BertProcessing", true},
		{"template", obj{"post_processor": obj{"type": "TemplateProcessing", "single": []obj{}}}, "post_processor.single", "the text 0 times", true},
		{"template token", obj{"post_processor": obj{"type": "TemplateProcessing", "single": []obj{{"SpecialToken": obj{"id": "x"}}}, "special_tokens": obj{}}},
			"post_processor.single[0].SpecialToken", `special_tokens does not have "x"`, false},
		{"template id", obj{"post_processor": obj{"type": "TemplateProcessing", "single": []obj{{"SpecialToken": obj{"id": "x"}}, {"Sequence": obj{"id": "A"}}},
			"special_tokens": obj{"x": obj{"ids": []int{4000}}}}}, "post_processor", "id 4000 in a vocabulary of", false},
		{"template of two", obj{"post_processor": obj{"type": "TemplateProcessing", "single": []obj{{"Sequence": obj{"id": "B"}}}}}, "post_processor.single[0]", `"B"`, false},
		{"decoder", obj{"decoder": obj{"type": "WordPiece"}}, "decoder", "WordPiece", true},
		{"decoder order", seq("decoder", "decoders", obj{"type": "ByteLevel"}, obj{"type": "Metaspace", "replacement": "_"}), "decoder.decoders[1]", "in this place", true},
		{"long content", obj{"normalizer": obj{"type": "Prepend", "prepend": strings.Repeat("x", 300)}}, "normalizer.prepend", "a text of 300 bytes", true},
		{"growing tokens", seq("decoder", "decoders", obj{"type": "Replace", "pattern": obj{"String": "a"}, "content": "aaaaa"}, obj{"type": "Replace", "pattern": obj{"String": "a"}, "content": "aaaa"}),
			"decoder.decoders[1]", "more than 16 times as long", true},
		{"expression in a decoder", obj{"decoder": obj{"type": "Replace", "pattern": obj{"Regex": "a"}, "content": ""}}, "decoder.pattern", "a regular expression in a decoder", true},
		{"strip the end", seq("decoder", "decoders", obj{"type": "Fuse"}, obj{"type": "Strip", "content": " ", "start": 0, "stop": 1}), "decoder.decoders[1].stop", "the end of the text", true},
		{"added id", added(obj{"id": 3, "content": "a"}), "added_tokens", `token "a" has id 3, in the vocabulary`, false},
		{"added over another", added(obj{"id": 0, "content": "new"}), "added_tokens", `which is "<unk>" in the vocabulary`, false},
		{"added huge id", added(obj{"id": 2000000000, "content": "new"}), "added_tokens", "id 2000000000", false},
		{"added twice", obj{"added_tokens": []obj{{"id": 900, "content": "x1"}, {"id": 900, "content": "x2"}}}, "added_tokens", "have the same id 900", false},
		{"added long", added(obj{"id": 900, "content": strings.Repeat("x", 2000)}), "added_tokens[0]", "an added token of 2000 bytes", true},
		{"added without id", added(obj{"content": "x"}), "added_tokens[0]", `"id" is missing`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseFiles(build(t, c.members), nil)
			checkError(t, err, "tokenizer.json", c.path, c.msg, c.unsupported)
		})
	}
}

func checkError(t *testing.T, err error, file, path, msg string, unsupported bool) {
	t.Helper()
	var f *FormatError
	var u *UnsupportedError
	got := [3]string{}
	switch {
	case errors.As(err, &f):
		got = [3]string{f.File, f.Path, f.Msg}
	case errors.As(err, &u):
		got = [3]string{u.File, u.Path, u.Msg}
	}
	if got[0] != file || got[1] != path || !strings.Contains(got[2], msg) || (u != nil) != unsupported {
		t.Errorf("got error %v\nwant %s: %s: %s (unsupported: %v)", err, file, path, msg, unsupported)
	}
}

func TestMalformedJSON(t *testing.T) {
	for _, c := range []struct{ data, msg string }{
		{"", "expected a value in the document, found the end at byte 0"},
		{"{", "expected '\"' for the document, found the end at byte 1"},
		{`{"a":1,}`, `expected '"' for the document, found '}' at byte 7`},
		{`{"a" 1}`, "expected ':' for the document, found '1' at byte 5"},
		{`[1 2]`, "expected ',' or ']' in the document, found '2' at byte 3"},
		{`{} {}`, "the document is followed by '{' at byte 3"},
		{`["\ud800"]`, `the document has a \u escape that stands for no character at byte 2`},
		{`["\ud800\u0041"]`, `the document has a \u escape`},
		{"[\"\xff\"]", "invalid UTF-8 at byte 2"},
		{"[\"a\n\"]", "control character 0x0a in the document at byte 3"},
		{`["a`, "the document does not end at byte 1"},
		{`[01]`, "expected ',' or ']' in the document"},
		{`[1.]`, "malformed number"},
		{`[tru]`, "expected a value in the document, found 't' at byte 1"},
		{strings.Repeat("[", 1000000), "the document is nested more than 100 deep at byte 101"},
		{`[]`, "is not an object"},
	} {
		_, err := parseFiles([]byte(c.data), nil)
		var f *FormatError
		if !errors.As(err, &f) || !strings.Contains(f.Msg, c.msg) {
			t.Errorf("%.20q: got error %v, want %q", c.data, err, c.msg)
		}
	}
}

// TestTruncated parses every prefix of a file: errors, never a panic.
func TestTruncated(t *testing.T) {
	data := byteLevelJSON(t)
	for n := range data {
		if _, err := parseFiles(data[:n], nil); err == nil {
			t.Fatalf("no error for the first %d bytes", n)
		}
	}
}

func TestDeepSequences(t *testing.T) {
	n := obj{"type": "NFC"}
	for range 20 {
		n = obj{"type": "Sequence", "normalizers": []obj{n}}
	}
	_, err := parseFiles(build(t, obj{"normalizer": n}), nil)
	if err == nil || !strings.Contains(err.Error(), "sequences nest deeper than 8") {
		t.Errorf("got error %v", err)
	}
	many := slices.Repeat([]obj{{"type": "Whitespace"}}, 100)
	_, err = parseFiles(build(t, obj{"pre_tokenizer": obj{"type": "Sequence", "pretokenizers": many}}), nil)
	if err == nil || !strings.Contains(err.Error(), "more than 64 components") {
		t.Errorf("got error %v", err)
	}
}

func TestRoles(t *testing.T) {
	for _, c := range []struct {
		name     string
		files    Files
		bos, eos int32
		stops    []int32
		addBOS   bool
	}{
		{"none", Files{}, -1, -1, nil, false},
		{"strings", Files{Config: []byte(`{"bos_token":"a","eos_token":"b","add_bos_token":true}`)}, 257, 258, []int32{258}, true},
		{"objects", Files{Config: []byte(`{"bos_token":{"content":"a"},"eos_token":null}`)}, 257, -1, nil, false},
		{"map", Files{Config: []byte(`{}`), SpecialTokensMap: []byte(`{"eos_token":{"content":"c","lstrip":false}}`)}, -1, 259, []int32{259}, false},
		{"config before map", Files{Config: []byte(`{"eos_token":"b"}`), SpecialTokensMap: []byte(`{"eos_token":"c"}`)}, -1, 258, []int32{258}, false},
		{"generation", Files{GenerationConfig: []byte(`{"bos_token_id":9,"eos_token_id":[8,7]}`)}, 9, 8, []int32{7, 8}, false},
		{"both", Files{Config: []byte(`{"eos_token":"b"}`), GenerationConfig: []byte(`{"eos_token_id":300}`)}, -1, 258, []int32{258, 300}, false},
		{"unknown token", Files{Config: []byte(`{"eos_token":"nowhere"}`)}, -1, -1, nil, false},
	} {
		c.files.Tokenizer = build(t, nil)
		tok, err := ParseFiles(c.files)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		bos, okB := tok.BOS()
		eos, okE := tok.EOS()
		if bos != c.bos || okB != (c.bos >= 0) || eos != c.eos || okE != (c.eos >= 0) || !slices.Equal(tok.EOSIDs(), c.stops) || tok.AddsBOS() != c.addBOS {
			t.Errorf("%s: BOS %d %v, EOS %d %v %d, adds %v", c.name, bos, okB, eos, okE, tok.EOSIDs(), tok.AddsBOS())
		}
	}
	_, err := parseFiles(build(t, nil), []byte(`{"bos_token":5}`))
	checkError(t, err, "tokenizer_config.json", "bos_token", "is not a string", false)
	_, err = ParseFiles(Files{Tokenizer: build(t, nil), GenerationConfig: []byte(`{"eos_token_id":[1.5]}`)})
	checkError(t, err, "generation_config.json", "eos_token_id[0]", "is not an integer", false)
}

func TestOpen(t *testing.T) {
	tok, err := Open(books(t))
	if err != nil {
		t.Fatal(err)
	}
	if bos, ok := tok.BOS(); bos != 1 || !ok {
		t.Errorf("BOS %d %v", bos, ok)
	}
	if got := tok.EOSIDs(); !slices.Equal(got, []int32{2}) {
		t.Errorf("EOSIDs %d", got)
	}
	if tok.VocabSize() != 1024 || tok.Token(1) != "<s>" || tok.Token(1024) != "" || tok.Token(-1) != "" || tok.AddsBOS() {
		t.Errorf("VocabSize %d, Token(1) %q, AddsBOS %v", tok.VocabSize(), tok.Token(1), tok.AddsBOS())
	}
	if id, ok := tok.ID("<s>"); id != 1 || !ok {
		t.Errorf("ID(<s>) = %d %v", id, ok)
	}
	if _, ok := tok.ID("no such token"); ok {
		t.Error("an id for a token that is none")
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty directory: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), build(t, nil), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err != nil {
		t.Errorf("tokenizer.json alone: %v", err)
	}
}

// FuzzJSON compares the checker with encoding/json.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e+3,true,false,null,"\u00e9\ud83d\ude00\n"]}`, ` [ ] `, `{"a":{"b":{}}}`, `"`, `[0.1,]`, `-`, `1e`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := parseDocument("f", data)
		// encoding/json accepts invalid UTF-8 and lone surrogates.
		if valid := json.Valid(data); err == nil && !valid || err != nil && valid && utf8.Valid(data) && !strings.Contains(err.Error(), "escape") && !strings.Contains(err.Error(), "deeper") {
			t.Fatalf("%q: valid %v, error %v", data, valid, err)
		}
		if err != nil {
			return
		}
		compareJSON(t, n, data[n.start:n.end])
	})
}

// compareJSON compares the members of a value with encoding/json's.
func compareJSON(t *testing.T, n node, data []byte) {
	switch n.kind() {
	case '{':
		var want map[string]json.RawMessage
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		got, err := n.object()
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %d members, %v; want %d", data, len(got), err, len(want))
		}
		for k, raw := range want {
			if m, ok := got[k]; !ok || string(m.doc.data[m.start:m.end]) != string(raw) {
				t.Fatalf("%s: member %q is not %s", data, k, raw)
			}
			compareJSON(t, got[k], raw)
		}
	case '[':
		var want []json.RawMessage
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		count := 0
		for i, e := range n.elements() {
			compareJSON(t, e, want[i])
			count++
		}
		if count != len(want) {
			t.Fatalf("%s: %d elements", data, count)
		}
	case '"':
		var want string
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		if got, err := n.str(); got != want || err != nil {
			t.Fatalf("%s: %q %v", data, got, err)
		}
	}
}

// FuzzParse checks that no file causes a panic when it is read or used.
func FuzzParse(f *testing.F) {
	f.Add(byteLevelJSON(f), "the <|end|>  thé 12")
	f.Add(build(f, obj{"decoder": spaceDecoder, "normalizer": obj{"type": "Prepend", "prepend": "▁"}}), "the an")
	f.Add(build(f, obj{"pre_tokenizer": obj{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}, "decoder": obj{"type": "Metaspace", "replacement": "▁"}}), " a b")
	f.Add(build(f, obj{"pre_tokenizer": obj{"type": "Split", "pattern": obj{"Regex": `\s+(?!\S)|\w+`}, "behavior": "Contiguous", "invert": true}}), "a  b")
	f.Add(build(f, obj{"normalizer": obj{"type": "Sequence", "normalizers": []obj{{"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Replace", "pattern": obj{"Regex": "x*"}, "content": "y"}}}}), "İx")
	f.Add(build(f, obj{"added_tokens": []obj{{"id": 300, "content": "an", "lstrip": true, "rstrip": true, "single_word": true, "special": true, "normalized": true}}}), "an  an")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		tok, err := parseFiles(data, nil)
		if err != nil {
			var fe *FormatError
			var ue *UnsupportedError
			if !errors.As(err, &fe) && !errors.As(err, &ue) {
				t.Fatalf("an error of type %T: %v", err, err)
			}
			return
		}
		if len(text) > 300 {
			return
		}
		ids, err := tok.Encode(text, Options{AddSpecial: true})
		if err != nil {
			return
		}
		for _, id := range ids {
			if id < 0 || int(id) >= tok.VocabSize() {
				t.Fatalf("%q: id %d in a vocabulary of %d", text, id, tok.VocabSize())
			}
		}
		if got := tok.Decode(ids, false); !utf8.ValidString(got) {
			t.Fatalf("%q: decoded to invalid UTF-8 %q", text, got)
		}
	})
}
