package serve

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/model/generate"
)

// TestScope: keys and values of a prompt serve requests of the same prompt_cache_key, or of the
// same API key if they name none, and no others. cached_tokens tells of them only.
func TestScope(t *testing.T) {
	const secret = "0123456789abcdef"
	prompt := make([]int, 150)
	for i := range prompt {
		prompt[i] = 3 + i*37%1000
	}
	for _, c := range []struct {
		name   string
		key    string
		first  string // prompt_cache_key; "": none
		second string
		cached int
	}{
		{"no key at all", "", "", "", 0},
		{"the same prompt_cache_key", "", "ann", "ann", 128},
		{"another prompt_cache_key", "", "ann", "bob", 0},
		{"without the prompt_cache_key", "", "ann", "", 0},
		{"the prompt_cache_key of nobody", "", "", "ann", 0},
		{"the API key", secret, "", "", 128},
		{"the API key and the same prompt_cache_key", secret, "ann", "ann", 128},
		{"the API key and another prompt_cache_key", secret, "ann", "bob", 0},
		{"the API key without the prompt_cache_key", secret, "ann", "", 0},
		{"the API key and a prompt_cache_key of nobody", secret, "", "ann", 0},
	} {
		o := Options{Models: []*Model{newModel(t, "books", generate.EngineOptions{WholePages: true})}}
		if c.key != "" {
			o.APIKey = []byte(c.key)
		}
		s := newServer(t, o)
		ask := func(cacheKey string, n int) usage {
			t.Helper()
			fields := map[string]any{"prompt": prompt, "max_tokens": 1, "n": n}
			if cacheKey != "" {
				fields["prompt_cache_key"] = cacheKey
			}
			body, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/completions", strings.NewReader(string(body)))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+c.key)
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Fatalf("%s: %d %s", c.name, w.Code, w.Body)
			}
			return decode[completion](t, w).Usage
		}
		computed := func() int64 { return s.models[0].Engine.Stats().PrefillTokens }
		// The two answers of a request share its prompt.
		if ask(c.first, 2); computed() != 150+150-128 {
			t.Errorf("%s: %d tokens of the first prompt were computed", c.name, computed())
		}
		before := computed()
		if u := ask(c.second, 1); u.Details.Cached != c.cached || computed()-before != int64(150-c.cached) {
			t.Errorf("%s: %d cached tokens, want %d; %d were computed", c.name, u.Details.Cached, c.cached, computed()-before)
		}
	}
}
