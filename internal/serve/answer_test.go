package serve

import (
	"bytes"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lowbit-go/gq/internal/lm/chat"
	"github.com/lowbit-go/gq/model/generate"
)

// template opens a chat template.
func template(t *testing.T, text string) *chat.Template {
	t.Helper()
	opened, err := chat.Open(func(name string) ([]byte, error) {
		if name == "chat_template.jinja" {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	})
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// TestTemplateErrors: a conversation that the template refuses is the client's error, a template
// that fails is the server's.
func TestTemplateErrors(t *testing.T) {
	const secret = "Bartholomew"
	for _, c := range []struct {
		template    string
		status      int
		param, code string
		message     string
	}{
		{"{{ raise_exception('no ' + messages[0].content) }}", http.StatusBadRequest, "messages", codeValue, "no " + secret},
		{"{# nothing #}", http.StatusBadRequest, "messages", codeValue, "the prompt has no tokens"},
		{"{{ messages[0].content.nothing() }}", http.StatusInternalServerError, "", "internal_error", "its log says why"},
		{"{% for i in range(30000) %}{% for j in range(30000) %}{% endfor %}{% endfor %}", http.StatusInternalServerError, "", "internal_error", "its log says why"},
	} {
		m := newModel(t, "books", generate.EngineOptions{})
		m.Template = template(t, c.template)
		var log bytes.Buffer
		s := newServer(t, Options{Models: []*Model{m}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		w := do(t, s, "/v1/chat/completions", `{"messages":[{"role":"user","content":"`+secret+`"}],"max_tokens":1}`)
		checkFailure(t, c.template, w.Code, decode[failure](t, w), c.status, c.param, c.code, c.message)
		if strings.Contains(log.String(), secret) || (c.status == http.StatusInternalServerError) != strings.Contains(log.String(), "chat template in chat_template.jinja") {
			t.Errorf("%s: the log: %s", c.template, log.String())
		}
	}
}

// TestTemplateTime: --max-time includes the chat template.
func TestTemplateTime(t *testing.T) {
	m := newModel(t, "books", generate.EngineOptions{})
	// what takes too long need not be right
	m.Template = template(t, "{{ messages[0].content.nothing() }}")
	s := newServer(t, Options{Models: []*Model{m}, Limits: Limits{Request: time.Nanosecond}})
	w := do(t, s, "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],"max_tokens":1}`)
	checkFailure(t, "no time", w.Code, decode[failure](t, w), http.StatusGatewayTimeout, "", codeTimeout, "the answer took more than 1ns")
}

// TestHeld: log probabilities that are held back have a limit. A stream sends them at once.
func TestHeld(t *testing.T) {
	s := newServer(t, Options{Limits: Limits{Held: 100}})
	// On a busy machine nobody may take the events of an answer before all are computed, and they pile
	// up to the same limit: such a request is sent again.
	ask := func(path, body string) (w *httptest.ResponseRecorder) {
		t.Helper()
		until(t, "the events of an answer are taken too late in all attempts", func() bool {
			w = do(t, s, path, body)
			return !strings.Contains(w.Body.String(), errSlow.message)
		})
		return w
	}
	w := ask("/v1/completions", `{"prompt":"The old man","max_tokens":20,"logprobs":5,"stream":true,"ignore_eos":true}`)
	events(t, w.Body.String())
	w = ask("/v1/completions", `{"prompt":[1`+strings.Repeat(",5", 30)+`],"max_tokens":1,"logprobs":5,"stream":true,"echo":true}`)
	if strings.Contains(w.Body.String(), "[DONE]") || !strings.Contains(w.Body.String(), "more than 100 log probabilities") {
		t.Errorf("an echoed prompt: %s", w.Body)
	}
	for _, c := range []struct {
		path, fields string
		ok           bool
	}{
		{"/v1/completions", `"prompt":"The old","max_tokens":16,"logprobs":5`, true},
		{"/v1/completions", `"prompt":"The old","max_tokens":17,"logprobs":5`, false},
		{"/v1/completions", `"prompt":["The old","The"],"max_tokens":16,"logprobs":5`, false},
		{"/v1/completions", `"prompt":"The old","max_tokens":110`, true},
		{"/v1/chat/completions", `"messages":[{"role":"user","content":"Hi"}],"max_tokens":20,"logprobs":true,"top_logprobs":5`, false},
	} {
		w := ask(c.path, `{"ignore_eos":true,`+c.fields+`}`)
		switch {
		case c.ok && w.Code != http.StatusOK:
			t.Errorf("%s: %d %s", c.fields, w.Code, w.Body)
		case !c.ok:
			checkFailure(t, c.fields, w.Code, decode[failure](t, w), http.StatusBadRequest, "logprobs", codeValue, "more than 100 log probabilities")
		}
	}
}

// TestMailbox: events that nobody takes pile up to a limit, alternatives included.
func TestMailbox(t *testing.T) {
	b := &mailbox{most: 4, ready: make(chan struct{}, 1)}
	step := event{step: generate.Step{Top: make([]generate.Alternative, 1)}}
	for i, want := range []error{nil, nil, errSlow} {
		if err := b.put(step); err != nil && err != want || err == nil && want != nil {
			t.Errorf("event %d: %v, want %v", i, err, want)
		}
	}
	if n := len(b.take()); n != 3 {
		t.Errorf("%d events", n)
	}
	if err := b.put(step); err != nil {
		t.Errorf("an empty mailbox: %v", err)
	}
}
