package generate

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

const books = "../../testdata/books1.3M-bf16"

func open(t *testing.T, path string, threads int) *Generator {
	t.Helper()
	g, err := Open(path, OpenOptions{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

func mustRun(t *testing.T, g *Generator, o Options) *Result {
	t.Helper()
	r, err := g.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRun: the streamed text is the result's text, the same for any number of threads, and the
// tokens decode to it.
func TestRun(t *testing.T) {
	var first *Result
	numbers := []int{1, 2, 5}
	if testing.Short() {
		numbers = numbers[1:2] // under emulation
	}
	for _, threads := range numbers {
		g := open(t, books, threads)
		for range 2 { // a Generator keeps no state between runs
			streamed := ""
			var ids []int32
			r := mustRun(t, g, Options{
				Prompt: "The old man said", MaxTokens: 60, Sampling: DefaultSampling, PricePerHour: 1,
				Text:  func(s string) error { streamed += s; return nil },
				Token: func(id int32, _ string, _ bool) error { ids = append(ids, id); return nil },
			})
			if first == nil {
				first = r
			}
			all := slices.Concat(r.PromptIDs, r.IDs)
			switch {
			case r.Text != first.Text || !slices.Equal(r.IDs, first.IDs):
				t.Errorf("%d threads: %q, want %q", threads, r.Text, first.Text)
			case streamed != r.Text || !slices.Equal(ids, all):
				t.Errorf("streamed %q and %v, want %q and %v", streamed, ids, r.Text, all)
			case g.tokenizer.Decode(all, true) != "The old man said"+r.Text:
				t.Errorf("tokens of %q make %q", r.Text, g.tokenizer.Decode(all, true))
			case len(r.IDs) != 60 || r.Stopped != MaxTokens || r.PromptIDs[0] != 1:
				t.Errorf("%d tokens after %v, stopped by %s", len(r.IDs), r.PromptIDs, r.Stopped)
			case !(r.PrefillTokensPerSecond > 0 && r.DecodeTokensPerSecond > 0 && r.FirstTokenSeconds >= r.PrefillSeconds && r.TotalSeconds >= r.FirstTokenSeconds+r.DecodeSeconds):
				t.Errorf("times: %+v", r)
			case r.Memory.Private <= 0 || len(r.Kernels) == 0 || r.Cost == nil || !(r.Cost.MillionOutput > 0) || r.Threads != threads || r.Activations != "float32":
				t.Errorf("%+v, cost %+v", r, r.Cost)
			}
		}
	}
	other := DefaultSampling
	other.Seed = 1
	if r := mustRun(t, open(t, books, 1), Options{Prompt: "The old man said", MaxTokens: 60, Sampling: other}); r.Text == first.Text {
		t.Errorf("another seed gives the same text")
	}
}

// TestStop: the text ends before a stop string, however tokens divide it.
func TestStop(t *testing.T) {
	testshared.SlowEmulated(t, "stop strings are found by the same code natively")
	g := open(t, books, 1)
	whole := mustRun(t, g, Options{Prompt: "The old man said", MaxTokens: 40}).Text
	for at := 1; at+4 <= len(whole); at += 7 {
		stop := whole[at : at+4]
		r := mustRun(t, g, Options{Prompt: "The old man said", MaxTokens: 40, Stop: []string{"not there", stop}})
		if want := whole[:strings.Index(whole, stop)]; r.Text != want || r.Stopped != StopString || r.StopString != stop {
			t.Errorf("%q: %q by %s %q, want %q", stop, r.Text, r.Stopped, r.StopString, want)
		}
	}
}

// TestEndOfText declares a token of the text to be an end token.
func TestEndOfText(t *testing.T) {
	g := open(t, books, 1)
	o := Options{Prompt: "The old man said", MaxTokens: 20}
	whole := mustRun(t, g, o)
	end := whole.IDs[10]
	g.eos = append(g.eos, end)
	r := mustRun(t, g, o)
	if at := slices.Index(whole.IDs, end); r.Stopped != EndOfText || !slices.Equal(r.IDs, whole.IDs[:at+1]) || !strings.HasPrefix(whole.Text, r.Text) {
		t.Errorf("%v by %s, want %v", r.IDs, r.Stopped, whole.IDs[:at+1])
	}
	o.IgnoreEOS = true
	if r := mustRun(t, g, o); r.Stopped != MaxTokens || slices.Contains(r.IDs, end) {
		t.Errorf("%v by %s with %d ignored", r.IDs, r.Stopped, end)
	}
}

func TestContext(t *testing.T) {
	testshared.SlowEmulated(t, "limits are the same natively")
	g := open(t, books, 1)
	r := mustRun(t, g, Options{Prompt: "The old man said", MaxTokens: 1000})
	if n := len(r.PromptIDs) + len(r.IDs); r.Stopped != ContextFull || n != 257 || r.Context != 256 {
		t.Errorf("%d tokens in a context of %d, stopped by %s", n, r.Context, r.Stopped)
	}
	if r := mustRun(t, g, Options{Prompt: "The old man said", MaxTokens: 1000, Context: 20}); r.Stopped != ContextFull || len(r.PromptIDs)+len(r.IDs) != 21 {
		t.Errorf("%d tokens, stopped by %s", len(r.IDs), r.Stopped)
	}
	if r := mustRun(t, g, Options{Prompt: "The old man said", MaxTokens: math.MaxInt, Stop: []string{" "}}); r.Context != 256 {
		t.Errorf("a context of %d", r.Context)
	}
	// A prompt longer than a step of prefill, in a context longer than the model's.
	long := strings.Repeat("It was. ", 150)
	if r := mustRun(t, g, Options{Prompt: long, MaxTokens: 3, Context: 2000}); len(r.PromptIDs) <= prefillAlone || len(r.IDs) != 3 {
		t.Errorf("%d tokens, then %d", len(r.PromptIDs), len(r.IDs))
	}
	for _, o := range []Options{{Prompt: long}, {Prompt: "The old man said", Context: 3}} {
		if _, err := g.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "the context is") {
			t.Errorf("too long a prompt: %v", err)
		}
	}
}

func TestBOS(t *testing.T) {
	g := open(t, books, 1)
	for _, c := range []struct {
		o    Options
		want string // first tokens
	}{
		{Options{Prompt: "The"}, "<s>▁The"},
		{Options{Prompt: "<s>The"}, "<s>The"},
		{Options{Prompt: "The", NoBOS: true}, "▁The"},
		{Options{Prompt: ""}, "<s>"},
	} {
		got := ""
		c.o.MaxTokens = 1
		for _, id := range mustRun(t, g, c.o).PromptIDs {
			got += g.tokenizer.Token(id)
		}
		if strings.ReplaceAll(got, "▁", "") != strings.ReplaceAll(c.want, "▁", "") {
			t.Errorf("%+v: %q, want %q", c.o, got, c.want)
		}
	}
	if _, err := g.Run(t.Context(), Options{NoBOS: true}); err == nil {
		t.Errorf("a text was made of nothing")
	}
	// A BOS that the files name, but that nothing puts before a text.
	tok, err := tokenizer.ParseFiles(tokenizer.Files{Tokenizer: []byte(`{"version":"1.0","added_tokens":[{"id":2,"content":"<b>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}],
		"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}}`), Config: []byte(`{"bos_token":"<b>"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if id, ok, err := tok.FirstBOS(); ok || err != nil {
		t.Errorf("BOS %d, %v", id, err)
	}
}

// TestInterrupted: a cancelled run returns the text so far, and so does a run whose output fails.
func TestInterrupted(t *testing.T) {
	g := open(t, books, 1)
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	r, err := g.Run(ctx, Options{Prompt: "The old man said", Token: func(_ int32, _ string, prompt bool) error {
		if n++; n == 20 {
			cancel()
		}
		return nil
	}})
	if !errors.Is(err, context.Canceled) || r == nil || r.Stopped != Interrupted || len(r.PromptIDs)+len(r.IDs) != 20 || r.Text == "" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = g.Run(ctx, Options{Prompt: "The old man said"}); !errors.Is(err, context.Canceled) || r == nil || len(r.IDs) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	broken := errors.New("broken")
	if r, err := g.Run(t.Context(), Options{Prompt: "The old man said", Text: func(string) error { return broken }}); !errors.Is(err, broken) || r == nil || r.Stopped != OutputFailed || len(r.IDs) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestOpenErrors removes files of the model, or replaces them.
func TestOpenErrors(t *testing.T) {
	for _, c := range []struct{ file, content, want string }{
		{"tokenizer.json", "", "holds no tokenizer.json: a prompt cannot be turned into tokens"},
		{"config.json", "", "holds no config.json: the model's architecture is unknown"},
		{"config.json", `{"model_type":"mamba"}`, "mamba"},
		{"tokenizer.json", `{"version":"1.0","model":{"type":"Unigram"}}`, "Unigram"},
		{"generation_config.json", `{`, "generation_config.json"},
		{"model.safetensors", "", "safetensors"},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(books)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, c.file)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if c.content != "" {
			if err := os.WriteFile(path, []byte(c.content), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Open(dir, OpenOptions{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.file, c.content, err, c.want)
		}
	}
	if _, err := Open("nowhere.gqf", OpenOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := Open(books, OpenOptions{CPU: "z80"}); err == nil || !strings.Contains(err.Error(), "z80") {
		t.Errorf("%v", err)
	}
}

func TestConfigEOS(t *testing.T) {
	for _, c := range []struct {
		raw  string
		want []int32
		ok   bool
	}{
		{`{}`, nil, true},
		{`{"eos_token_id": null}`, nil, true},
		{`{"eos_token_id": 2}`, []int32{2}, true},
		{`{"time_step_limit": [0.0, Infinity], "eos_token_id": 2}`, []int32{2}, true},
		{`{"eos_token_id": [128001, 128008]}`, []int32{128001, 128008}, true},
		{`{"text_config": {"eos_token_id": 106}, "eos_token_id": [1]}`, []int32{1, 106}, true},
		{`{"eos_token_id": "x"}`, nil, false},
		{`{"eos_token_id": 1e99}`, nil, false},
		{`[`, nil, false},
	} {
		if got, err := configEOS([]byte(c.raw)); !slices.Equal(got, c.want) || (err == nil) != c.ok {
			t.Errorf("%s: %v, %v", c.raw, got, err)
		}
	}
}

func TestParseStatus(t *testing.T) {
	m, ok := parseStatus([]byte("Name:\tgq\nVmRSS:\t   9 kB\nRssAnon:\t    4096 kB\nRssFile:\t      12 kB\nRssShmem:\t 8 kB\n"))
	if !ok || m != (Memory{Source: "linux", Private: 4 << 20, File: 20 << 10}) {
		t.Errorf("%+v, %v", m, ok)
	}
	for _, s := range []string{"", "RssAnon: 4 kB\n", "RssAnon: x kB\nRssFile: 1 kB\nRssShmem: 1 kB\n"} {
		if m, ok := parseStatus([]byte(s)); ok {
			t.Errorf("%q: %+v", s, m)
		}
	}
}
