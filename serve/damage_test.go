package serve

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/model/chat"
	"github.com/lowbit-go/gq/model/generate"
)

// TestDamagedModel: weights that are no numbers are an error of the server, whose cause is in the log only.
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
