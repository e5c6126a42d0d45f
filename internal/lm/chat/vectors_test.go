package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// vector has the texts that jinja2 makes with a template; testdata/vectors.py writes them.
type vector struct {
	Name    string
	SHA256  string
	Results []struct{ Text, Hash, Refused, Error *string }
	tools   bool
}

func readVectors(t *testing.T, file string) []vector {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var list []vector
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	for i := range list {
		list[i].tools = strings.HasPrefix(file, "tools_")
	}
	return list
}

// A renderer renders one conversation.
type renderer func(addGenerationPrompt bool) (string, error)

// conversations are the conversations of the vector: those without tools through Render.
func (v *vector) conversations(t *testing.T, tmpl *Template) (list []renderer) {
	t.Helper()
	if !v.tools {
		for _, c := range readConversations(t) {
			list = append(list, func(add bool) (string, error) { return tmpl.Render(t.Context(), c, add) })
		}
		return list
	}
	raw, err := os.ReadFile("testdata/tools.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Tools, Conversations []any }
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	for _, c := range file.Conversations {
		list = append(list, func(add bool) (string, error) {
			return tmpl.render(t.Context(), len(raw), map[string]value.Value{
				"messages": value.FromAny(c), "add_generation_prompt": value.FromBool(add), "tools": value.FromAny(file.Tools), "documents": value.None(),
			})
		})
	}
	return list
}

// check compares a template's prompts for all conversations with a vector.
func (v *vector) check(t *testing.T, source string) {
	t.Helper()
	if sum := sha256.Sum256([]byte(source)); hex.EncodeToString(sum[:]) != v.SHA256 {
		t.Fatalf("the template has changed: testdata/vectors.py makes the vectors anew")
	}
	tmpl, err := compile(source, v.Name, map[string]string{"bos_token": "<BOS>", "eos_token": "<EOS>", "unk_token": "<UNK>"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tmpl.now = func() time.Time { return time.Date(2026, 7, 4, 15, 6, 7, 0, time.UTC) }
	render := v.conversations(t, tmpl)
	if len(v.Results) != 2*len(render) {
		t.Fatalf("%d results for %d conversations", len(v.Results), len(render))
	}
	for i, want := range v.Results {
		got, err := render[i/2](i%2 == 0)
		hash := sha256.Sum256([]byte(got))
		var refused *RefusedError
		switch {
		case want.Error != nil: // of Python, for example a None that is iterated; gq may render it
		case want.Refused != nil:
			if !errors.As(err, &refused) || refused.Msg != refusal+*want.Refused {
				t.Errorf("conversation %d: %q, %v; expected the refusal %q", i, got, err, *want.Refused)
			}
		case err != nil:
			t.Errorf("conversation %d: %v", i, err)
		case want.Text != nil && got != *want.Text:
			t.Errorf("conversation %d:\n got %q\nwant %q", i, got, *want.Text)
		case want.Hash != nil && hex.EncodeToString(hash[:8]) != *want.Hash:
			t.Errorf("conversation %d: %q is not what jinja2 makes", i, got)
		}
	}
}

func TestVectors(t *testing.T) {
	for _, v := range slices.Concat(readVectors(t, "vectors.json"), readVectors(t, "tools_vectors.json")) {
		t.Run(v.Name, func(t *testing.T) {
			v.check(t, string(readTemplate(t, v.Name)))
		})
	}
}

// fetched are the published templates in the tokenizers that CI fetches (.ci/tokenizers).
var fetched = []string{"deepseek_v3", "gemma3", "llama3", "qwen3"}

// TestPublished renders published templates, with tools too: gq gives no template tools, but the
// language is the same. tools_published.json lacks templates that jinja2 itself does not render
// with tools (functionary 3.2, firefunction 2 and R1), and three whose branches for tools need
// Python: Apriel 1.5 and 1.6 print a dict as Python writes it, and functionary 3.1 adds text to
// text that is marked as safe HTML. In GQ_TOKENIZERS are the ones that CI fetches, each in a
// tokenizer_config.json; GQ_CHAT_TEMPLATES, if set, is a directory with more of them as files, for
// example models/templates of llama.cpp.
func TestPublished(t *testing.T) {
	tokenizers, more := os.Getenv("GQ_TOKENIZERS"), os.Getenv("GQ_CHAT_TEMPLATES")
	if tokenizers == "" && more == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("GQ_TOKENIZERS is not set, but CI is")
		}
		t.Skip("GQ_TOKENIZERS names no directory with tokenizers, see .ci/tokenizers")
	}
	for _, v := range slices.Concat(readVectors(t, "published.json"), readVectors(t, "tools_published.json")) {
		t.Run(v.Name, func(t *testing.T) {
			if filepath.Ext(v.Name) == ".jinja" {
				source, err := os.ReadFile(filepath.Join(more, v.Name))
				if more == "" || errors.Is(err, fs.ErrNotExist) {
					t.Skip("GQ_CHAT_TEMPLATES has no such file")
				}
				if err != nil {
					t.Fatal(err)
				}
				v.check(t, string(source))
				return
			}
			if tokenizers == "" {
				t.Skip("GQ_TOKENIZERS is not set")
			}
			sources, _, err := Sources(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(tokenizers, v.Name, name)) })
			if err != nil || len(sources) != 1 {
				t.Fatalf("%d templates, %v", len(sources), err)
			}
			v.check(t, sources[0].Text)
		})
	}
}

// TestPublishedNames holds published.json to the list of templates that CI must have.
func TestPublishedNames(t *testing.T) {
	have := map[string]bool{}
	for _, v := range readVectors(t, "published.json") {
		have[v.Name] = true
	}
	for _, name := range fetched {
		if !have[name] {
			t.Errorf("no vectors of %s", name)
		}
	}
}

func readTemplate(t testing.TB, name string) []byte {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata/templates", name))
	if err != nil {
		t.Fatal(err)
	}
	return source
}
