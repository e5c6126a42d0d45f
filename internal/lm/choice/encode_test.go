package choice

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

const fixture = "../../../testdata/books1.3M-bf16"

func open(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Open(fixture)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestEncode(t *testing.T) {
	tok := open(t)
	e, err := NewEncoder(tok, 256)
	if err != nil {
		t.Fatal(err)
	}
	ids := func(s string) []int32 {
		list, err := tok.Encode(s, tokenizer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return append([]int32{1}, list...) // BOS, which this tokenizer adds
	}
	for _, c := range []struct {
		name      string
		q         Question
		context   string // encoded alone
		whole     string // with the first ending
		character int
	}{
		{"plain", Question{Prompt: "It was late in the", Endings: []string{"evening", "sea"}, Delimiter: " "}, "It was late in the", "It was late in the evening", 7},
		{"white space moves to the ending", Question{Prompt: "It was late \n", Endings: []string{"été", "sea"}}, "It was late", "It was late \nété", 3},
		{"a prompt without text", Question{Prompt: "", Endings: []string{"It was", "sea"}}, "", "It was", 6},
	} {
		item, err := e.Encode(t.Context(), &c.q)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		context, end := ids(c.context), item.Endings[0]
		if !slices.Equal(item.Context, context) || !slices.Equal(end.Tokens, ids(c.whole)[len(context):]) || end.Characters != c.character || item.Cut() {
			t.Errorf("%s: %+v", c.name, item)
		}
	}
	bad := Question{Prompt: "It", Endings: []string{"was", ""}, Line: 7}
	var le *LineError
	if _, err := e.Encode(t.Context(), &bad); !errors.As(err, &le) || le.Error() != `line 7: ending 1 ("") has no tokens of its own behind the prompt` {
		t.Errorf("an empty ending: %v", err)
	}
}

// TestEncodeLong: a model of a context of 4 tokens reads 4 tokens and predicts a fifth one, as
// lm-evaluation-harness's inp = (context + continuation)[-(max_length+1):][:-1].
func TestEncodeLong(t *testing.T) {
	e, err := NewEncoder(open(t), 4)
	if err != nil {
		t.Fatal(err)
	}
	item, err := e.Encode(t.Context(), &Question{Prompt: "a b c d e", Endings: []string{"f", "f g"}, Delimiter: " "})
	if err != nil {
		t.Fatal(err)
	}
	for i, end := range item.Endings {
		if n := len(item.Context) - end.Skip + len(end.Tokens); n != 5 {
			t.Errorf("ending %d: %d tokens, want 5: %+v", i, n, item)
		}
	}
	if !item.Cut() {
		t.Error("it is not cut")
	}
	_, err = e.Encode(t.Context(), &Question{Prompt: "a", Endings: []string{"b", "a b c d e f g"}, Delimiter: " ", Line: 3})
	if err == nil || !strings.HasPrefix(err.Error(), "line 3: ending 1 has ") {
		t.Errorf("an ending that is too long: %v", err)
	}
}
