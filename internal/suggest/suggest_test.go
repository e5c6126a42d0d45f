package suggest

import (
	"slices"
	"testing"
)

func TestNearest(t *testing.T) {
	algorithms := []string{"rtn", "search", "imatrix", "awq", "gptq", "gptq-ft"}
	names := []string{"model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight", "model.layers.10.mlp.down_proj.weight", "lm_head.weight"}
	for _, tt := range []struct {
		word  string
		known []string
		want  []string
	}{
		{"serach", algorithms, []string{"search"}},
		{"SEARCH", algorithms, []string{"search"}},
		{"gptqft", algorithms, []string{"gptq-ft", "gptq"}},
		{"gptq_ft", algorithms, []string{"gptq-ft"}},
		{"rnt", algorithms, []string{"rtn"}},
		{"zebra", algorithms, nil},
		{"", algorithms, nil},
		{"down_proj", names, []string{"model.layers.10.mlp.down_proj.weight"}},
		{"model.layers.0.self_attn.q_proj.wieght", names, names[:2]},
		{"lm_haed.weight", names, []string{"lm_head.weight"}},
		{"lm_haed.weight", slices.Concat(names, names), []string{"lm_head.weight"}}, // of two files
	} {
		if got := Nearest(tt.word, tt.known); !slices.Equal(got, tt.want) {
			t.Errorf("Nearest(%q) = %q, want %q", tt.word, got, tt.want)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	for _, tt := range []struct {
		known []string
		want  string
	}{
		{nil, ""},
		{[]string{"abcdef"}, `; did you mean "abcdef"?`},
		{[]string{"abcdef", "abcdeg", "abcdeh"}, `; did you mean "abcdef", "abcdeg" or "abcdeh"?`},
	} {
		if got := DidYouMean("abcdef", tt.known); got != tt.want {
			t.Errorf("%q gives %q, want %q", tt.known, got, tt.want)
		}
	}
}
