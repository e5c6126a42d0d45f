package serve

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/chat"
	"github.com/lowbit-go/gq/model/generate"
)

// TestDamagedModel: weights that are no numbers are an error of the server, whose cause is in the
// log only.
func TestDamagedModel(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(books)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.safetensors")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b[len(b)-100_000:] {
		b[len(b)-100_000+i] = 0xFF // NaN
	}
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	g, err := generate.Open(dir, generate.OpenOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	e, err := g.NewEngine(generate.EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	template, err := chat.Open(g.Asset)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	m := &Model{ID: "books", Generator: g, Engine: e, Template: template, Info: ModelInfo{Parallel: 4, Queue: 4}}
	s := newServer(t, Options{Models: []*Model{m}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for _, fields := range []string{"", `,"stream":true`, `,"n":3`} {
		w := do(t, s, "/v1/completions", `{"prompt":"The old man"`+fields+`}`)
		checkFailure(t, fields, w.Code, decode[failure](t, w), http.StatusInternalServerError, "", "internal_error", "its log says why")
		if strings.Contains(w.Body.String(), dir) {
			t.Errorf("%s", w.Body)
		}
	}
	if !strings.Contains(log.String(), dir) {
		t.Errorf("the log does not name the model: %s", log.String())
	}
	if !strings.Contains(log.String(), "the logit of token") && !strings.Contains(log.String(), "no token has a finite logit") {
		t.Errorf("%s", log.String())
	}
	if stats := e.Stats(); stats.Running != 0 || m.gate.taken != 0 {
		t.Errorf("%+v", stats)
	}
}

// TestHealth: a server whose model cannot be read has status 503, until the model can be read
// again. An answer that fails alone changes nothing.
func TestHealth(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be made shorter")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(books)); err != nil {
		t.Fatal(err)
	}
	a := listen(t, Options{Models: []*Model{newModel(t, "books", generate.EngineOptions{}), modelOf(t, dir, "other", generate.EngineOptions{})}})
	health := func(want int, word string) {
		t.Helper()
		r, err := http.Get(a.url + "/health")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != want || string(b) != `{"status":"`+word+"\"}\n" {
			t.Errorf("%d %s %v, want %d %s", r.StatusCode, b, err, want, word)
		}
	}
	ask := func(want int) {
		t.Helper()
		for _, model := range []string{"books", "other"} {
			if status, body, _ := a.status(t, `{"model":"`+model+`","prompt":"The old man","max_tokens":2}`); status != want && model == "other" || status != 200 && model == "books" {
				t.Errorf("%s: %d %s", model, status, body)
			}
		}
	}
	health(200, "ok")
	path := filepath.Join(dir, "model.safetensors")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	ask(http.StatusInternalServerError)
	health(http.StatusServiceUnavailable, "failing")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	health(200, "ok")
	ask(200)
	rows := a.models[1].Engine.Stats().Rows
	health(200, "ok")
	if n := a.models[1].Engine.Stats().Rows; n != rows {
		t.Errorf("/health has computed %d tokens of a model whose answers are complete", n-rows)
	}
	a.models[0].failed.Store(true) // its answer met damage that others do not
	health(200, "ok")
	if a.models[0].failed.Load() {
		t.Error("the failure is not forgotten")
	}
}
