package serve

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/model/generate"
)

// FuzzRequest sends any body to both endpoints. The answer is a complete one or an error of the
// client's, and no sequence stays in use.
func FuzzRequest(f *testing.F) {
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"Hi"}],"max_tokens":2}`,
		`{"messages":[{"role":"system","content":[{"type":"text","text":"a"}]}],"n":2,"stream":true,"logprobs":true,"top_logprobs":3}`,
		`{"prompt":["a","b"],"max_tokens":1,"echo":true,"logprobs":2,"stop":["x"]}`,
		`{"prompt":[[1,2],[3]],"max_tokens":0,"echo":true,"stream":true,"stream_options":{"include_usage":true}}`,
		`{"prompt":"\ud800\u0000","temperature":0.1,"top_k":3,"top_p":0.5,"min_p":0.1,"repetition_penalty":1.5,"presence_penalty":1,"frequency_penalty":-1,"seed":18446744073709551615,"ignore_eos":true}`,
		`{"tools":[],"response_format":{"type":"text"},"prompt":null,"model":"books"}`,
		`[`, `{"prompt":1e5}`, `{"prompt":[[[[]]]]}`,
	} {
		f.Add(body, true)
		f.Add(body, false)
	}
	s := newServer(f, Options{Models: []*Model{newModel(f, "books", generate.EngineOptions{Context: 32, Parallel: 2})}, Limits: Limits{Choices: 4}})
	f.Fuzz(func(t *testing.T, body string, chat bool) {
		path := "/v1/completions"
		if chat {
			path = "/v1/chat/completions"
		}
		r := httptest.NewRequest(http.MethodPost, "http://localhost"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		switch {
		case w.Code == http.StatusOK && w.Header().Get("Content-Type") == "application/json":
			c := decode[completion](t, w)
			for _, choice := range c.Choices {
				if choice.Finish != "stop" && choice.Finish != "length" {
					t.Errorf("%s: %s", body, w.Body)
				}
			}
		case w.Code == http.StatusOK:
			events(t, w.Body.String())
		case w.Code == http.StatusBadRequest || w.Code == http.StatusNotFound:
			if e := decode[failure](t, w).Error; e.Message == "" || e.Type != "invalid_request_error" {
				t.Errorf("%s: %s", body, w.Body)
			}
		default:
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
		if stats := s.models[0].Engine.Stats(); stats.Running != 0 || stats.Waiting != 0 || s.models[0].gate.taken != 0 {
			t.Errorf("%s: %+v", body, stats)
		}
	})
}
