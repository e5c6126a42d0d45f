package tokenizer

import (
	"slices"
	"strings"
	"testing"
)

// withoutVocabulary returns build's tokenizer.json without vocab and merges, and the table of both.
func withoutVocabulary(t *testing.T) ([]byte, Table) {
	model := smallModel(nil)
	var table Table
	vocab := model["vocab"].(obj)
	table.Tokens = make([]string, len(vocab)+2)
	for token, id := range vocab {
		table.Tokens[id.(int)] = token
	}
	for _, m := range model["merges"].([]string) {
		a, b, _ := strings.Cut(m, " ")
		table.Merges = append(table.Merges, [3]int32{int32(vocab[a].(int)), int32(vocab[b].(int)), int32(vocab[a+b].(int))})
	}
	delete(model, "vocab")
	delete(model, "merges")
	return build(t, obj{"model": model}), table
}

// TestTable: a table gives the tokenizer that JSON gives.
func TestTable(t *testing.T) {
	want, err := ParseFiles(Files{Tokenizer: build(t, nil)})
	if err != nil {
		t.Fatal(err)
	}
	text, table := withoutVocabulary(t)
	got, err := ParseFiles(Files{Tokenizer: text, Table: table.Encode()})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"the▁thean", "▁▁▁the", "xé<0x41>A1."} {
		a, err := want.Encode(s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := got.Encode(s, Options{}); err != nil || !slices.Equal(a, b) || want.Decode(a, false) != got.Decode(b, false) {
			t.Errorf("%q: %v, %v, want %v", s, b, err, a)
		}
	}
	if n := got.VocabSize(); n != len(table.Tokens) {
		t.Errorf("%d ids, want %d", n, len(table.Tokens))
	}
	// A tokenizer.json with a vocabulary needs no table.
	if _, err := ParseFiles(Files{Tokenizer: build(t, nil), Table: []byte("no table")}); err != nil {
		t.Error(err)
	}
}

func TestTableErrors(t *testing.T) {
	text, table := withoutVocabulary(t)
	edit := func(f func(x *Table)) []byte {
		x := Table{slices.Clone(table.Tokens), slices.Clone(table.Merges)}
		f(&x)
		return x.Encode()
	}
	whole, id := table.Encode(), int32(len(table.Tokens)-1)
	for _, c := range []struct {
		data []byte
		want string
	}{
		{nil, "vocab"},
		{[]byte("1234567"), "has 7 bytes, fewer than 8"},
		{whole[:12], "too few for 294 tokens and 5 merges"},
		{whole[:len(whole)-1], "ends within token"},
		{edit(func(x *Table) { x.Tokens[270] = "\xff" }), "token 270 is not valid UTF-8"},
		{edit(func(x *Table) { x.Tokens[270] = x.Tokens[269] }), "has the ids 269 and 270"},
		{edit(func(x *Table) { x.Merges[1][0] = id + 1 }), "merge 1 has the ids"},
		{edit(func(x *Table) { x.Merges[2][1] = -1 }), "merge 2 has the ids"},
		{edit(func(x *Table) { x.Merges[3][2] = id }), "at least one is of no token"},
	} {
		if _, err := ParseFiles(Files{Tokenizer: text, Table: c.data}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.want, err)
		}
	}
}
