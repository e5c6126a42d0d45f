package llamacpp

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
)

func TestCard(t *testing.T) {
	config, sources := model(t, "mixtral", nil, nil)
	m, err := Describe(config, sources)
	if err != nil {
		t.Fatal(err)
	}
	const card = "---\r\nlicense: other\nlicense_name: gemma\nlicense_link: https://ai.google.dev/gemma/terms\n" +
		"base_model:\n- google/gemma-2-2b-v1.1\n- https://example.org/x\nlanguage: no\ntags: [chat, small]\npipeline_tag: text-generation\n" +
		"model_creator: Ada\ndatasets: roneneldan/TinyStories\nextra: {deep: [1]}\n---\n# Title\n---\n"
	for _, c := range []struct{ name, card, want string }{
		{"Mini-7B-Instruct-v0.3", card, `general.name=Mini-7B-Instruct-v0.3
general.author=Ada
general.version=v0.3
general.finetune=Instruct
general.basename=Mini
general.size_label=4x20K
general.license=other
general.license.name=gemma
general.license.link=https://ai.google.dev/gemma/terms
general.base_model.count=2
general.base_model.0.name=Gemma 2 2b v1.1
general.base_model.0.version=v1.1
general.base_model.0.organization=Google
general.base_model.0.repo_url=https://huggingface.co/google/gemma-2-2b-v1.1
general.base_model.1.repo_url=https://example.org/x
general.dataset.count=1
general.dataset.0.name=TinyStories
general.dataset.0.organization=Roneneldan
general.dataset.0.repo_url=https://huggingface.co/datasets/roneneldan/TinyStories
general.tags=[chat small text-generation]
general.languages=[no]
`},
		{"dir", "no facts\n---\nlicense: mit\n", "general.name=dir\ngeneral.size_label=4x20K\n"},
		{"dir", "", "general.name=dir\ngeneral.size_label=4x20K\n"},
		{"dir", "--- \nlicense: mit\n---\t\n", "general.name=dir\ngeneral.size_label=4x20K\ngeneral.license=mit\n"},
		{"dir", "---\nlicense: [mit\n---\n", "general.name=dir\ngeneral.size_label=4x20K\nnote: README.md: line 1"},
		{"dir", "---\nlicense: mit\n", "general.name=dir\ngeneral.size_label=4x20K\nnote: README.md: no line of three hyphens"},
	} {
		pairs, notes := m.Card(c.name, []byte(c.card))
		var b strings.Builder
		for _, p := range pairs {
			fmt.Fprintf(&b, "%s=%v\n", p.Key, p.Value)
		}
		for _, n := range notes {
			fmt.Fprintf(&b, "note: %s\n", n)
		}
		if got := b.String(); !strings.HasPrefix(got, c.want) || len(notes) == 0 && got != c.want {
			t.Errorf("%q: %s\nwant %s", c.card, got, c.want)
		}
	}
}

func TestSizeLabel(t *testing.T) {
	for n, want := range map[int64]string{999: "1.0K", 262_000: "262K", 1_300_000: "1.3M", 3_700_000: "3.7M", 7_241_732_096: "7.2B", 70_553_706_496: "71B", 671e9: "671B", 1_040e9: "1.0T"} {
		if got := roundedCount(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// TestReadCard makes the card of a GGUF file, and the keys of the file from the card.
func TestReadCard(t *testing.T) {
	file := func(pairs ...gguf.Pair) *gguf.File {
		t.Helper()
		own := []gguf.Pair{{Key: gguf.KeyArchitecture, Value: "llama"}, {Key: keyType, Value: "model"}, {Key: "general.file_type", Value: uint32(2)}, {Key: "llama.block_count", Value: uint32(1)}}
		layout, err := gguf.NewLayout(append(own, pairs...), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Parse(layout.Shards[0].Header)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if card, err := readCard(file(gguf.Pair{Key: keySizeLabel, Value: "7B"})); card != nil || err != nil {
		t.Errorf("a file without facts: %s, %v", card, err)
	}
	want := []gguf.Pair{
		{Key: "general.base_model.count", Value: uint32(1)},
		{Key: "general.languages", Value: []string{"no", "de"}},
		{Key: "general.license", Value: "other"},
		{Key: "general.name", Value: "Mini: \"7B\"\n--- # yes"},
		{Key: "general.sampling.temp", Value: float32(1)},
		{Key: "general.sampling.top_p", Value: float32(0.95)},
		{Key: keySizeLabel, Value: "7B"},
		{Key: "general.tags", Value: []string{}},
		{Key: "quantize.imatrix.chunks_count", Value: uint32(141)},
		{Key: "quantize.imatrix.file", Value: "c:\\x.gguf"},
	}
	card, err := readCard(file(want...))
	if err != nil || !IsCard(card) {
		t.Fatalf("%s, %v", card, err)
	}
	pairs, notes := (&Model{}).Card("another", card)
	if !reflect.DeepEqual(pairs, want) || len(notes) > 0 {
		t.Errorf("%v, %q\nwant %v\n%s", pairs, notes, want, card)
	}
	if facts, err := cardFacts(card); err != nil || facts["license"] != "other" || facts["model_name"] != want[3].Value {
		t.Errorf("%v, %v", facts, err)
	}
}
