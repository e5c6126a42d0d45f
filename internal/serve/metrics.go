package serve

import (
	"bytes"
	_ "embed"
	"net/http"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/lowbit-go/gq/model/generate"
)

// metricsSet is what /metrics shows.
type metricsSet struct {
	set *metrics.Set
}

// helpTexts has a line for each metric: its name and its help.
//
//go:embed metrics.txt
var helpTexts string

// modelMetrics count the work of a model.
type modelMetrics struct {
	busy                       *metrics.Counter
	prompt, cached, completion *metrics.Counter
	firstToken, decodeSpeed    *metrics.Summary
	computed, passes, rows     *metrics.Counter // copied from the engine's counts
}

// window is the time over which summaries compute quantiles.
const window = 5 * time.Minute

var quantiles = []float64{.5, .9, .99, 1}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func labelled(name string, labels ...string) string {
	var list []string
	for i := 0; i < len(labels); i += 2 {
		list = append(list, labels[i]+`="`+labelEscapes.Replace(labels[i+1])+`"`)
	}
	return name + "{" + strings.Join(list, ",") + "}"
}

func newMetrics(s *Server) *metricsSet {
	metrics.ExposeMetadata(true)
	m := &metricsSet{set: metrics.NewSet()}
	m.set.NewGauge(labelled("gq_build_info", "version", s.version), func() float64 { return 1 })
	m.set.NewGauge("gq_answers_running", func() float64 { return float64(s.work.count()) })
	m.set.NewGauge("gq_draining", func() float64 {
		if s.work.draining() {
			return 1
		}
		return 0
	})
	return m
}

func (m *metricsSet) model(of *Model) *modelMetrics {
	name := func(name string) string { return labelled(name, "model", of.ID) }
	gauge := func(metric string, value func(generate.EngineStats) int) {
		m.set.NewGauge(name(metric), func() float64 { return float64(value(of.Engine.Stats())) })
	}
	gauge("gq_sequences_running", func(s generate.EngineStats) int { return s.Running })
	gauge("gq_sequences_waiting", func(s generate.EngineStats) int { return s.Waiting })
	gauge("gq_sequences_parallel", func(s generate.EngineStats) int { return s.Parallel })
	gauge("gq_sequences_queue", func(s generate.EngineStats) int { return s.Queue })
	gauge("gq_cache_pages", func(s generate.EngineStats) int { return s.Pages })
	gauge("gq_cache_pages_used", func(s generate.EngineStats) int { return s.PagesUsed })
	gauge("gq_cache_pages_prefixes", func(s generate.EngineStats) int { return s.PagesCached })
	m.set.NewGauge(name("gq_cache_bytes"), func() float64 { return float64(of.Engine.Bytes()) })
	return &modelMetrics{
		busy:        m.set.NewCounter(name("gq_refused_busy_total")),
		prompt:      m.set.NewCounter(name("gq_prompt_tokens_total")),
		cached:      m.set.NewCounter(name("gq_prompt_tokens_cached_total")),
		completion:  m.set.NewCounter(name("gq_completion_tokens_total")),
		firstToken:  m.set.NewSummaryExt(name("gq_first_token_seconds"), window, quantiles),
		decodeSpeed: m.set.NewSummaryExt(name("gq_decode_tokens_per_second"), window, quantiles),
		computed:    m.set.NewCounter(name("gq_engine_prefill_tokens_total")),
		passes:      m.set.NewCounter(name("gq_engine_passes_total")),
		rows:        m.set.NewCounter(name("gq_engine_rows_total")),
	}
}

func (m *modelMetrics) count(u *usage, t *timings) {
	m.prompt.Add(u.Prompt)
	m.cached.Add(u.Details.Cached)
	m.completion.Add(u.Completion)
	if u.Completion > 0 {
		m.firstToken.Update(t.FirstToken)
	}
	if t.DecodeTokens > 0 {
		m.decodeSpeed.Update(t.DecodeTokens)
	}
}

func (s *Server) writeMetrics(x *exchange, _ *http.Request) error {
	x.routine = true
	for _, m := range s.models {
		stats := m.Engine.Stats()
		m.metrics.computed.Set(uint64(stats.PrefillTokens))
		m.metrics.passes.Set(uint64(stats.Passes))
		m.metrics.rows.Set(uint64(stats.Rows))
	}
	var b bytes.Buffer
	s.metrics.set.WritePrometheus(&b)
	metrics.WriteProcessMetrics(&b)
	x.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	// The library writes no help, and a word for summaries that Prometheus refuses.
	text := strings.ReplaceAll(b.String(), " unsupported\n", " summary\n")
	for line := range strings.Lines(helpTexts) {
		name, _, _ := strings.Cut(line, " ")
		text = strings.Replace(text, "# HELP "+name+"\n", "# HELP "+line, 1)
	}
	_, _ = x.Write([]byte(text))
	return nil
}
