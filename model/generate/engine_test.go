package generate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lowbit-go/gq/internal/test/testshared"
)

func newEngine(t *testing.T, g *Generator, o EngineOptions) *Engine {
	t.Helper()
	e, err := g.NewEngine(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// testRequest returns the options of a request that differs by i.
func testRequest(i int) Options {
	prompts := []string{"The old man said", "It was a dark night, and the old man", "The old man said that he", "<s>", "Mr. Darcy looked at her, and then at the window, where the rain ran down the glass"}
	o := Options{Prompt: prompts[i%len(prompts)], MaxTokens: 3 + i*7%40, Sampling: DefaultSampling}
	o.Sampling.Seed = uint64(i)
	switch i % 4 {
	case 1:
		o.Sampling = Sampling{RepeatPenalty: 1.1}
	case 2:
		o.Sampling.PresencePenalty, o.Sampling.FrequencyPenalty = 0.5, 0.25
		o.Logprobs, o.TopLogprobs, o.EchoLogprobs = true, i%5, i%8 == 2
	case 3:
		o.Stop = []string{" the", "ing"}
	}
	return o
}

// steps runs a request and returns its steps.
func steps(ctx context.Context, run func(context.Context, Options) (*Result, error), o Options) ([]Step, *Result, error) {
	var list []Step
	o.Step = func(s Step) error { list = append(list, s); return nil }
	r, err := run(ctx, o)
	return list, r, err
}

func sameSteps(a, b []Step) bool {
	return slices.EqualFunc(a, b, func(a, b Step) bool {
		return a.ID == b.ID && a.Prompt == b.Prompt && a.Token == b.Token && a.Text == b.Text && slices.Equal(a.Top, b.Top) &&
			math.Float64bits(a.Logprob) == math.Float64bits(b.Logprob)
	})
}

// TestEngineAlone: answers are equal to the answers of Generator.Run, whatever else is served.
func TestEngineAlone(t *testing.T) {
	g := open(t, books, 2)
	n, numbers := 24, []int{1, 3, 8}
	if testing.Short() {
		n, numbers = 8, numbers[1:2]
	}
	type answer struct {
		steps []Step
		r     *Result
	}
	want := make([]answer, n)
	for i := range want {
		s, r, err := steps(t.Context(), g.Run, testRequest(i))
		if err != nil {
			t.Fatal(err)
		}
		want[i] = answer{s, r}
	}
	for _, parallel := range numbers {
		e := newEngine(t, g, EngineOptions{Parallel: parallel, Queue: n})
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				s, r, err := steps(t.Context(), e.Run, testRequest(i))
				if err != nil {
					t.Errorf("request %d: %v", i, err)
					return
				}
				if w := want[i]; r.Text != w.r.Text || !slices.Equal(r.IDs, w.r.IDs) || r.Stopped != w.r.Stopped || r.StopString != w.r.StopString || !sameSteps(s, w.steps) {
					t.Errorf("%d at a time, request %d: %q by %s, want %q by %s", parallel, i, r.Text, r.Stopped, w.r.Text, w.r.Stopped)
				}
			})
		}
		wg.Wait()
		if s := e.Stats(); s.Running != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// TestEngineQueue fills sequences and queue.
func TestEngineQueue(t *testing.T) {
	g := open(t, books, 1)
	e := newEngine(t, g, EngineOptions{Parallel: 1, Queue: 1, Context: 30_000})
	ctx, cancel := context.WithCancel(t.Context())
	begun, results := make(chan bool), make(chan error)
	go func() {
		// The answer takes far longer than the test.
		_, err := e.Run(ctx, Options{Prompt: "The", MaxTokens: 25_000, IgnoreEOS: true, Step: func(Step) error { begun <- true; return nil }})
		results <- err
	}()
	<-begun
	waiting := make(chan error)
	go func() {
		_, err := e.Run(t.Context(), Options{Prompt: "The", MaxTokens: 2})
		waiting <- err
	}()
	for e.Stats().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := e.Run(t.Context(), Options{Prompt: "The"}); !errors.Is(err, ErrBusy) {
		t.Errorf("%v, want ErrBusy", err)
	}
	cancel()
	go func() {
		for range begun {
		}
	}()
	if err := <-results; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("the request that waited: %v", err)
	}
	close(begun)
	if s := e.Stats(); s.Running != 0 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
}

// TestEngineErrors: requests that cannot be served, and callbacks that fail.
func TestEngineErrors(t *testing.T) {
	g := open(t, books, 1)
	e := newEngine(t, g, EngineOptions{Context: 64})
	var long *ContextError
	if _, err := e.Run(t.Context(), Options{PromptIDs: make([]int32, 65)}); !errors.As(err, &long) || long.Prompt != 65 || long.Context != 64 {
		t.Errorf("%v", err)
	}
	for _, o := range []Options{
		{Prompt: "x", Stop: []string{""}}, {Prompt: "x", TopLogprobs: 21}, {Prompt: "x", Sampling: Sampling{TopK: -1}},
		{PromptIDs: []int32{-1}}, {PromptIDs: []int32{1 << 30}}, {PromptIDs: []int32{}},
	} {
		if _, err := e.Run(t.Context(), o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	broken := errors.New("broken")
	r, err := e.Run(t.Context(), Options{Prompt: "The old man said", MaxTokens: 30, Text: func(string) error { return broken }})
	if !errors.Is(err, broken) || r == nil || r.Stopped != OutputFailed || len(r.IDs) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = e.Run(t.Context(), Options{Prompt: "The", MaxTokens: 1000})
	if err != nil || r.Stopped != ContextFull || len(r.PromptIDs)+len(r.IDs) != 65 {
		t.Errorf("%+v, %v", r, err)
	}
	if list, r, err := steps(t.Context(), e.Run, Options{Prompt: "The old", MaxTokens: -1, Logprobs: true, EchoLogprobs: true}); err != nil || len(r.IDs) != 0 || len(list) != len(r.PromptIDs) || !(list[1].Logprob < 0) {
		t.Errorf("the prompt alone: %+v, %+v, %v", list, r, err)
	}
}

// TestEngineClose ends running requests, and no goroutine stays.
func TestEngineClose(t *testing.T) {
	g := open(t, books, 2)
	before := runtime.NumGoroutine()
	// The answers are far too long to be complete before Close.
	e := newEngine(t, g, EngineOptions{Parallel: 2, Context: 30_000})
	results := make(chan error, 5)
	begun := make(chan bool, 1)
	for i := range 5 {
		go func() {
			_, err := e.Run(t.Context(), Options{Prompt: fmt.Sprint("The ", i), MaxTokens: 25_000, Sampling: DefaultSampling, IgnoreEOS: true, Step: func(Step) error {
				select {
				case begun <- true:
				default:
				}
				return nil
			}})
			results <- err
		}()
	}
	<-begun
	for s := e.Stats(); s.Running+s.Waiting < 5; s = e.Stats() {
		time.Sleep(time.Millisecond)
	}
	e.Close()
	for range 5 {
		if err := <-results; !errors.Is(err, ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	}
	if _, err := e.Run(t.Context(), Options{Prompt: "The"}); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	for wait := time.Now(); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Since(wait) > time.Minute {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// TestEnginePrefix: prompts with a common prefix compute it once, while the first one is still
// computing it and after it has ended.
func TestEnginePrefix(t *testing.T) {
	testshared.SlowEmulated(t, "TestEngineAlone runs there")
	g := open(t, books, 2)
	prompt := make([]int32, 150)
	for i := range prompt {
		prompt[i] = int32(3 + i*37%1000)
	}
	e := newEngine(t, g, EngineOptions{Parallel: 4, Queue: 20})
	// run returns the number of tokens of prompts that were computed, and that were there.
	run := func(n int, options func(i int) Options) (computed, cached int) {
		t.Helper()
		before := e.Stats()
		var shared atomic.Int64
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				o := options(i)
				want, err := g.Run(t.Context(), o)
				if err != nil {
					t.Error(err)
					return
				}
				r, err := e.Run(t.Context(), o)
				if err != nil || !slices.Equal(r.IDs, want.IDs) {
					t.Errorf("answer %d: %+v, %v", i, r, err)
					return
				}
				shared.Add(int64(r.CachedTokens))
			})
		}
		wg.Wait()
		return int(e.Stats().PrefillTokens - before.PrefillTokens), int(shared.Load())
	}
	sampling := func(seed int) Sampling {
		s := DefaultSampling
		s.Seed = uint64(seed)
		return s
	}
	// Answers of one prompt.
	computed, cached := run(9, func(i int) Options { return Options{PromptIDs: prompt, MaxTokens: 10, Sampling: sampling(i)} })
	if computed != 150+8 || cached != 8*149 {
		t.Errorf("answers of one prompt: %d tokens were computed, %d were there", computed, cached)
	}
	// Other ends.
	computed, cached = run(5, func(i int) Options {
		return Options{PromptIDs: append(slices.Clone(prompt[:140]), int32(10+i), 5), MaxTokens: 10}
	})
	if computed != 5*2 || cached != 5*140 {
		t.Errorf("other ends: %d tokens were computed, %d were there", computed, cached)
	}
	// Logits of a whole prompt need all of it.
	computed, cached = run(2, func(i int) Options {
		return Options{PromptIDs: prompt, MaxTokens: 2, EchoLogprobs: true, Logprobs: true}
	})
	if computed != 2*150 || cached != 0 {
		t.Errorf("logits of a whole prompt: %d tokens were computed, %d were there", computed, cached)
	}
}

// TestEngineWholePages: prompts share whole pages only.
func TestEngineWholePages(t *testing.T) {
	testshared.SlowEmulated(t, "TestEngineAlone runs there")
	g := open(t, books, 1)
	e := newEngine(t, g, EngineOptions{Context: 2000, WholePages: true})
	prompt := make([]int32, 150)
	for i := range prompt {
		prompt[i] = int32(3 + i*37%1000)
	}
	if _, err := e.Run(t.Context(), Options{PromptIDs: prompt, MaxTokens: 2}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ common, cached int }{{0, 0}, {1, 0}, {63, 0}, {64, 64}, {100, 64}, {127, 64}, {128, 128}, {149, 128}, {150, 128}} {
		ids := slices.Clone(prompt)
		for i := c.common; i < len(ids); i++ {
			ids[i] = 5
		}
		o := Options{PromptIDs: ids, MaxTokens: 10}
		want := mustRun(t, g, o)
		r, err := e.Run(t.Context(), o)
		if err != nil || r.CachedTokens != c.cached || !slices.Equal(r.IDs, want.IDs) {
			t.Errorf("%d common tokens: %+v, %v, want %d cached", c.common, r, err, c.cached)
		}
	}
}

// TestEngineCancelled: cancelled requests, running and waiting, free their places, and the others
// do not change.
func TestEngineCancelled(t *testing.T) {
	testshared.SlowEmulated(t, "TestEngineAlone runs there")
	g := open(t, books, 2)
	e := newEngine(t, g, EngineOptions{Parallel: 3, Queue: 100, Context: 30_000})
	want := mustRun(t, g, Options{Prompt: "The old man said", MaxTokens: 100, IgnoreEOS: true})
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n := 0
			// The answer is far too long to be complete before it is cancelled.
			o := Options{Prompt: "The old man said", MaxTokens: 25_000, IgnoreEOS: true, Step: func(Step) error {
				if n++; n == i {
					cancel()
				}
				return nil
			}}
			if i == 0 {
				cancel()
			}
			r, err := e.Run(ctx, o)
			if !errors.Is(err, context.Canceled) || r == nil || r.Stopped != Interrupted || len(r.IDs) < n {
				t.Errorf("request %d: %d tokens, %+v, %v", i, n, r, err)
				return
			}
			if both := min(len(r.IDs), len(want.IDs)); !slices.Equal(r.IDs[:both], want.IDs[:both]) {
				t.Errorf("request %d: tokens %v, want %v", i, r.IDs, want.IDs)
			}
		})
	}
	wg.Wait()
	if s := e.Stats(); s.Running != 0 || s.Waiting != 0 || s.PagesUsed != 0 {
		t.Errorf("%+v", s)
	}
}

// TestEngineSlowReader: a callback that waits holds up nobody else.
func TestEngineSlowReader(t *testing.T) {
	testshared.SlowEmulated(t, "TestEngineAlone runs there")
	g := open(t, books, 1)
	e := newEngine(t, g, EngineOptions{Parallel: 2})
	stuck, done := make(chan bool), make(chan error)
	first := make(chan bool, 1)
	go func() {
		_, err := e.Run(t.Context(), Options{Prompt: "The old", MaxTokens: 50, Step: func(Step) error {
			select {
			case first <- true:
			default:
			}
			<-stuck
			return nil
		}})
		done <- err
	}()
	<-first
	for range 3 {
		if _, err := e.Run(t.Context(), Options{Prompt: "The old man said", MaxTokens: 50}); err != nil {
			t.Fatal(err)
		}
	}
	for s := e.Stats(); s.Running != 0; s = e.Stats() {
		time.Sleep(time.Millisecond)
	}
	if s := e.Stats(); s.Waiting != 0 {
		t.Errorf("a slow reader has a place: %+v", s)
	}
	close(stuck)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
