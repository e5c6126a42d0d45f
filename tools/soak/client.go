package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// counts are how requests ended.
type counts struct {
	finished, aborted, refused int
	tokens                     int // of finished answers
}

// load lets the clients ask until the time is over and their last answers are complete.
func load(ctx context.Context, url string, clients int, took time.Duration, cases []testCase, seed uint64) (sum counts, err error) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	end := time.Now().Add(took)
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for i := range clients {
		c := &client{http: &http.Client{Transport: transport}, url: url, random: rand.New(rand.NewPCG(seed, uint64(i))), cases: cases}
		all.Go(func() {
			err := c.run(ctx, end)
			mu.Lock()
			defer mu.Unlock()
			sum.finished += c.counts.finished
			sum.aborted += c.counts.aborted
			sum.refused += c.counts.refused
			sum.tokens += c.counts.tokens
			errs = append(errs, err)
		})
	}
	all.Wait()
	return sum, errors.Join(errs...)
}

// A client asks for one answer after the other.
type client struct {
	http   *http.Client
	url    string
	random *rand.Rand
	cases  []testCase
	counts counts
}

// run asks until the time is over.
func (c *client) run(ctx context.Context, end time.Time) error {
	for time.Now().Before(end) {
		wait, err := c.ask(ctx, &c.cases[c.random.IntN(len(c.cases))])
		if err != nil {
			return err
		}
		select {
		case <-time.After(min(wait, time.Until(end))):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// ask sends a request. A quarter of the clients leave: after a time, or after a number of events.
// wait is how long the server wants the client to wait.
func (c *client) ask(ctx context.Context, t *testCase) (wait time.Duration, err error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	events := -1
	if c.random.IntN(4) == 0 {
		if t.stream && c.random.IntN(2) == 0 {
			events = c.random.IntN(40)
		} else {
			timer := time.AfterFunc(time.Duration(c.random.IntN(300))*time.Millisecond, leave)
			defer timer.Stop()
		}
	}
	got, err := c.answer(ctx, t, events)
	switch {
	case got != nil && got.retry > 0:
		c.counts.refused++
		return got.retry, nil
	case ctx.Err() != nil || got != nil && got.left: // the client left
		c.counts.aborted++
		if got != nil && !strings.HasPrefix(t.text, got.text) {
			return 0, fmt.Errorf("%s %s: cut off at %q, want the beginning of %q", t.path, t.body, got.text, t.text)
		}
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("%s %s: an answer was lost: %w", t.path, t.body, err)
	case got.text != t.text || got.finish != t.finish:
		return 0, fmt.Errorf("%s %s: %q by %s, want %q by %s", t.path, t.body, got.text, got.finish, t.text, t.finish)
	}
	c.counts.finished++
	c.counts.tokens += t.tokens
	return 0, nil
}

// received is what came of an answer.
type received struct {
	text, finish string
	left         bool          // after the number of events
	retry        time.Duration // above 0: refused
}

// answer reads an answer, at most the given number of events if that is not negative.
func (c *client) answer(ctx context.Context, t *testCase, events int) (*received, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+t.path, bytes.NewReader(t.body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	w, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer w.Body.Close()
	if w.StatusCode == http.StatusTooManyRequests {
		after, err := strconv.Atoi(w.Header.Get("Retry-After"))
		if err != nil || after < 1 {
			return nil, fmt.Errorf("status 429 with Retry-After %q", w.Header.Get("Retry-After"))
		}
		return &received{retry: time.Duration(after) * time.Second}, nil
	}
	if w.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(w.Body, 1000))
		return nil, fmt.Errorf("%s: %s", w.Status, body)
	}
	got := &received{}
	if t.stream {
		return got, got.stream(w.Body, events)
	}
	body, err := io.ReadAll(w.Body)
	if err != nil {
		return nil, err
	}
	return got, got.add(body)
}

// stream reads server-sent events up to the last one.
func (got *received) stream(body io.Reader, events int) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return nil
		}
		if err := got.add([]byte(data)); err != nil {
			return err
		}
		if events--; events == -1 {
			got.left = true
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// add takes in an answer, or an event of one.
func (got *received) add(data []byte) error {
	var v struct {
		Choices []struct {
			Text           string
			Message, Delta struct{ Content string }
			Finish         *string `json:"finish_reason"`
		}
		Error *struct{ Message string }
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	if v.Error != nil {
		return errors.New(v.Error.Message)
	}
	for _, choice := range v.Choices {
		got.text += choice.Text + choice.Message.Content + choice.Delta.Content
		if choice.Finish != nil {
			got.finish = *choice.Finish
		}
	}
	return nil
}
