package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// vector has the texts that jinja2 makes with a template; testdata/vectors.py writes them.
type vector struct {
	Name    string
	SHA256  string
	Results []struct{ Text, Hash, Refused, Error *string }
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
	conversations := readConversations(t)
	if len(v.Results) != 2*len(conversations) {
		t.Fatalf("%d results for %d conversations", len(v.Results), len(conversations))
	}
	for i, want := range v.Results {
		got, err := tmpl.Render(t.Context(), conversations[i/2], i%2 == 0)
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
	for _, v := range readVectors(t, "vectors.json") {
		t.Run(v.Name, func(t *testing.T) {
			v.check(t, string(readTemplate(t, v.Name)))
		})
	}
}

// fetched are the published templates in the tokenizers that CI fetches (.ci/tokenizers).
var fetched = []string{"deepseek_v3", "gemma3", "llama3", "qwen3"}

// TestPublished renders published templates. In GQ_TOKENIZERS are the ones that CI
// fetches, each in a tokenizer_config.json; GQ_CHAT_TEMPLATES, if set, is a directory with more of them as
// files, for example models/templates of llama.cpp.
func TestPublished(t *testing.T) {
	tokenizers, more := os.Getenv("GQ_TOKENIZERS"), os.Getenv("GQ_CHAT_TEMPLATES")
	if tokenizers == "" && more == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("GQ_TOKENIZERS is not set, but CI is")
		}
		t.Skip("GQ_TOKENIZERS names no directory with tokenizers, see .ci/tokenizers")
	}
	for _, v := range readVectors(t, "published.json") {
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
