package serve

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/chat"
	"github.com/lowbit-go/gq/model/generate"
)

const books = "../../testdata/books1.3M-bf16"

// newModel opens the bundled model.
func newModel(t testing.TB, id string, o generate.EngineOptions) *Model {
	t.Helper()
	return modelOf(t, books, id, o)
}

// modelOf opens a model.
func modelOf(t testing.TB, dir, id string, o generate.EngineOptions) *Model {
	t.Helper()
	g, err := generate.Open(dir, generate.OpenOptions{Threads: 1, Name: id})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	e, err := g.NewEngine(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	template, err := chat.Open(g.Asset)
	if err != nil {
		t.Fatal(err)
	}
	stats := e.Stats()
	return &Model{
		ID: id, Fingerprint: "test", Created: 1, Generator: g, Engine: e, Template: template,
		Info: ModelInfo{Scheme: "BF16", Bits: 16, Context: e.Context(), Parallel: stats.Parallel, Queue: stats.Queue, Template: template.Source},
	}
}

func newServer(t testing.TB, o Options) *Server {
	t.Helper()
	if o.Models == nil {
		o.Models = []*Model{newModel(t, "books", generate.EngineOptions{})}
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// do answers a request with a JSON body; "" is a GET.
func do(t testing.TB, s http.Handler, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// decode reads an answer as a JSON value.
func decode[T any](t testing.TB, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	d := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("the answer goes on after the JSON value: %s", w.Body)
	}
	return v
}

type completion struct {
	Object, Model string
	Fingerprint   string `json:"system_fingerprint"`
	Choices       []struct {
		Index   int
		Text    string
		Message struct{ Role, Content string }
		Finish  string `json:"finish_reason"`
	}
	Usage   usage
	Timings timings
}

// TestCompletion compares answers with Generator.Run.
func TestCompletion(t *testing.T) {
	s := newServer(t, Options{})
	sampling := generate.DefaultSampling
	sampling.Seed = 7
	want, err := s.models[0].Generator.Run(t.Context(), generate.Options{Prompt: "The old man said", MaxTokens: 30, Sampling: sampling})
	if err != nil {
		t.Fatal(err)
	}
	w := do(t, s, "/v1/completions", `{"model":"books","prompt":"The old man said","max_tokens":30,"seed":7}`)
	got := decode[completion](t, w)
	if w.Code != http.StatusOK || got.Choices[0].Text != want.Text || got.Choices[0].Finish != "length" || got.Timings.Seed != 7 {
		t.Errorf("%d %+v, want %q", w.Code, got, want.Text)
	}
	if u := got.Usage; u.Prompt != len(want.PromptIDs) || u.Completion != 30 || u.Total != u.Prompt+u.Completion {
		t.Errorf("%+v", u)
	}
	want, err = s.models[0].Generator.Run(t.Context(), generate.Options{Prompt: "User: Who are you?\nAssistant:", MaxTokens: 30, Sampling: sampling, Stop: []string{"\nUser:"}})
	if err != nil {
		t.Fatal(err)
	}
	w = do(t, s, "/v1/chat/completions", `{"messages":[{"role":"user","content":"Who are you?"}],"max_completion_tokens":30,"seed":7}`)
	got = decode[completion](t, w)
	if c := got.Choices[0]; w.Code != http.StatusOK || c.Message.Content != want.Text || c.Message.Role != "assistant" || got.Object != "chat.completion" {
		t.Errorf("%d %+v, want %q", w.Code, got, want.Text)
	}
}

// exchangeOf answers a request without a body.
func exchangeOf(s http.Handler, method, path, kind string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:8080"+path, nil)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}
