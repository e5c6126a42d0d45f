package serve

import (
	"bytes"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/model/generate"
)

// TestMetrics checks the text format line by line, and counts.
func TestMetrics(t *testing.T) {
	s := newServer(t, Options{Version: "v1.2.3", Models: []*Model{newModel(t, "books", generate.EngineOptions{}), newModel(t, `a "b" \ c`, generate.EngineOptions{})}})
	do(t, s, "/v1/completions", `{"model":"books","prompt":[1,393],"max_tokens":5,"ignore_eos":true}`)
	// no first token
	do(t, s, "/v1/completions", `{"model":"books","prompt":[1],"max_tokens":0,"echo":true}`)
	do(t, s, "/v1/completions", `{"model":"books"}`)
	do(t, s, "/nowhere/1", "")
	do(t, s, "/nowhere/2", "")
	w := do(t, s, "/metrics", "")
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	line := regexp.MustCompile(`^([a-z_]+)(\{[a-zA-Z_]+="([^"\\]|\\["\\n])*"(, ?[a-zA-Z_]+="([^"\\]|\\["\\n])*")*\})? -?[0-9.e+-]+$`)
	text := w.Body.String()
	meta := regexp.MustCompile(`^# (?:HELP ([a-z_]+)( [A-Z0-9].*\.)?|TYPE ([a-z_]+) (counter|gauge|summary|histogram))$`)
	helped, kinds := map[string]bool{}, map[string]string{}
	family := "" // of the samples that may come
	for l := range strings.Lines(text) {
		l = strings.TrimSuffix(l, "\n")
		if m := meta.FindStringSubmatch(l); m != nil {
			if name := m[1]; name != "" {
				if helped[name] || strings.HasPrefix(name, "gq_") && m[2] == "" {
					t.Errorf("no help, or twice: %s", l)
				}
				helped[name] = true
			} else if family = m[3]; kinds[family] != "" || !helped[family] {
				t.Errorf("a type twice, or before the help: %s", l)
			} else {
				kinds[family] = m[4]
			}
			continue
		}
		m := line.FindStringSubmatch(l)
		if m == nil {
			t.Errorf("not a line of the format: %s", l)
			continue
		}
		rest, ok := strings.CutPrefix(m[1], family)
		fits := rest == "" && kinds[family] != "histogram"
		switch kinds[family] {
		case "summary":
			fits = fits && strings.Contains(m[2], `quantile="`) || rest == "_sum" || rest == "_count"
		case "histogram":
			fits = rest == "_bucket" || rest == "_sum" || rest == "_count"
		}
		if family == "" || !ok || !fits {
			t.Errorf("no line of the %s %s: %s", kinds[family], family, l)
		}
	}
	for _, want := range []string{
		`gq_build_info{version="v1.2.3"} 1`,
		`gq_http_requests_total{path="/v1/completions",status="200"} 2`,
		`gq_http_requests_total{path="/v1/completions",status="400"} 1`,
		`gq_http_requests_total{path="other",status="404"} 2`,
		`gq_prompt_tokens_total{model="books"} 3`,
		`gq_completion_tokens_total{model="books"} 5`,
		`gq_completion_tokens_total{model="a \"b\" \\ c"} 0`,
		`gq_sequences_running{model="books"} 0`,
		`gq_sequences_parallel{model="books"} 4`,
		`gq_sequences_queue{model="books"} 16`,
		`gq_first_token_seconds_count{model="books"} 1`,
		`gq_draining 0`,
		`# TYPE gq_http_requests_total counter`,
		`# TYPE gq_sequences_running gauge`,
		`# TYPE gq_first_token_seconds summary`,
		`# TYPE process_cpu_seconds_total counter`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestLog: prompts and answers are in the log only if they are asked for.
func TestLog(t *testing.T) {
	m := newModel(t, "books", generate.EngineOptions{})
	for _, prompts := range []bool{false, true} {
		var b bytes.Buffer
		s := newServer(t, Options{Models: []*Model{m}, Log: slog.New(slog.NewTextHandler(&b, nil)), LogPrompts: prompts})
		answer := decode[completion](t, do(t, s, "/v1/completions", `{"prompt":"Bartholomew said","max_tokens":12,"seed":5,"ignore_eos":true}`)).Choices[0].Text
		do(t, s, "/v1/completions", `{"prompt":"Bartholomew said","temperature":-1}`)
		do(t, s, "/health", "") // no record
		do(t, s, "/v1/completions?secret=Bartholomew", `{"prompt":7}`)
		do(t, s, "/v1/completions", `{"prompt":{"Bartholomew":"said"}}`)
		log := b.String()
		if strings.Contains(log, "Bartholomew") != prompts || strings.Contains(log, strings.TrimSpace(answer)) != prompts || strings.Count(log, "\n") != 4 || !strings.Contains(log, "error=invalid_value param=prompt") || !strings.Contains(log, "status=200") || !strings.Contains(log, "completion_tokens=12") {
			t.Errorf("prompts %v: %s", prompts, log)
		}
	}
}
