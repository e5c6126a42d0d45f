package generate

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/lowbit-go/gq/internal/lm/forward"
)

// EngineOptions are the options of NewEngine.
type EngineOptions struct {
	// Context is the most tokens of a sequence, including the prompt. Default:
	// max_position_embeddings of config.json, at most 8,192.
	Context  int
	Parallel int // sequences at a time; default 4
	Queue    int // requests that may wait; default 4 * Parallel; below 0: none
	// WholePages lets prompts share keys and values in whole pages of 64 tokens only, so that clients
	// cannot find out each other's prompts token by token. Default: all tokens that are the same.
	WholePages bool
}

// Defaults of EngineOptions.
const (
	defaultContext  = 8192
	defaultParallel = 4
)

// Limits of EngineOptions.
const (
	maxContext  = 1 << 24
	maxParallel = 1 << 10
)

// ErrBusy is returned if the queue is full.
var ErrBusy = errors.New("all sequences are in use and the queue is full: try again later")

// ErrClosed is returned for requests of a closed Engine.
var ErrClosed = errors.New("the engine is closed")

// EngineStats are counts since NewEngine, except for those that say "now".
type EngineStats struct {
	Running, Waiting int   // requests now
	Parallel, Queue  int   // the limits of Running and Waiting
	PrefillTokens    int64 // computed tokens of prompts
	Passes           int64 // through the layers
	Rows             int64 // tokens of all passes
	PagesUsed        int   // pages of keys and values that running requests use now
	PagesCached      int   // pages that hold prefixes of earlier requests now
	Pages            int   // the limit of both together
}

// Engine serves many requests at a time. Requests join and leave between passes through the layers.
// A pass takes a token of each sequence that decodes, and chunks of prompts.
type Engine struct {
	g     *Generator
	o     EngineOptions
	batch *forward.Batch
	wake  chan struct{} // there is something to do
	ended chan struct{} // closed when the loop has ended

	mu      sync.Mutex
	closed  bool
	queued  int        // calls of Run without a sequence
	waiting []*request // their requests in order of arrival, without those that are being encoded
	stats   EngineStats

	// These belong to the loop.
	running []*request // in order of arrival
	slots   []int      // free sequences of the batch
	chunks  []forward.Chunk
	planned []*request // the requests of chunks
	short   bool       // the pass is for short prompts only
	logits  []float32
}

// NewEngine makes an Engine. Close the Engine before the Generator.
func (g *Generator) NewEngine(o EngineOptions) (*Engine, error) {
	e, err := g.newEngine(o)
	if err != nil {
		return nil, err
	}
	e.publish(func(*EngineStats) {})
	go e.loop()
	return e, nil
}

// newEngine makes an Engine without starting the loop.
func (g *Generator) newEngine(o EngineOptions) (*Engine, error) {
	if o.Context == 0 {
		o.Context = defaultContext
		if most := g.model.Config().MaxPositions; most > 0 {
			o.Context = min(o.Context, most)
		}
	}
	o.Parallel = cmp.Or(o.Parallel, defaultParallel)
	switch {
	case o.Context < 1 || o.Context > maxContext:
		return nil, fmt.Errorf("a context of %d tokens is not from 1 to %d", o.Context, maxContext)
	case o.Parallel < 1 || o.Parallel > maxParallel:
		return nil, fmt.Errorf("%d sequences in parallel are not from 1 to %d", o.Parallel, maxParallel)
	}
	o.Queue = cmp.Or(o.Queue, 4*o.Parallel)
	o.Queue = max(0, o.Queue)
	e := &Engine{g: g, o: o, batch: g.model.NewBatch(o.Parallel, o.Context), wake: make(chan struct{}, 1), ended: make(chan struct{})}
	e.batch.WholePages = o.WholePages
	for slot := range o.Parallel {
		e.slots = append(e.slots, slot)
	}
	return e, nil
}

// Context returns the most tokens of a sequence.
func (e *Engine) Context() int { return e.o.Context }

// Bytes returns the memory of keys, values and buffers when all sequences are full. Memory is
// allocated at first use.
func (e *Engine) Bytes() int64 {
	// Logits, and for each sequence a copy of its logits, candidates and exponentials.
	perToken := 4*(e.o.Parallel+echoStep) + e.o.Parallel*(4+int(unsafe.Sizeof(candidate{}))+8)
	return e.batch.Bytes() + int64(perToken)*int64(e.g.model.VocabSize())
}

func (e *Engine) Stats() EngineStats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Waiting, s.Parallel, s.Queue = e.queued, e.o.Parallel, e.o.Queue
	return s
}

// Close ends all requests with ErrClosed, and returns when the current pass has ended.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.notify()
	<-e.ended
	return nil
}

func (e *Engine) notify() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Run continues a prompt, together with the other requests. The result has the same tokens as
// Generator.Run with the same options, whatever else is served. EngineOptions.Context limits
// Options.Context. Run returns ErrBusy at once if the queue is full. If ctx is cancelled or a
// callback fails, Run returns the error and the Result so far, and the sequence is free after the
// current pass. The callbacks run in the caller's goroutine and do not hold up other requests.
func (e *Engine) Run(ctx context.Context, o Options) (*Result, error) {
	start := time.Now()
	if err := e.enter(); err != nil {
		return nil, err
	}
	a, err := e.g.newAnswer(o, e.o.Context)
	if err != nil {
		e.leave()
		return nil, err
	}
	out := e.g.newOutput(a, start)
	if err := out.prompt(); err != nil {
		e.leave()
		return out.finish(err, false, "")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := newRequest(ctx, a)
	if err := e.enqueue(q); err != nil {
		e.leave()
		return nil, err
	}
	defer context.AfterFunc(ctx, e.notify)()
	return q.result(out, q.deliver(out, cancel))
}

// enter takes a place in the queue.
func (e *Engine) enter() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	if e.stats.Running+e.queued >= e.o.Parallel+e.o.Queue {
		return ErrBusy
	}
	e.queued++
	return nil
}

// leave gives up the place of a request that did not reach the loop.
func (e *Engine) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queued--
}

func (e *Engine) enqueue(q *request) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	e.waiting = append(e.waiting, q)
	e.notify()
	return nil
}

// Memory is the memory of the process at the end of the text.
type Memory struct {
	// Source is the origin of the numbers: "linux" is /proc/self/status, "go" the Go runtime without
	// maps.
	Source  string `json:"source"`
	Private int64  `json:"private_bytes"` // RssAnon: the process itself with keys and values
	// File is RssFile and, for files on a tmpfs, RssShmem: pages of mapped files, also of the
	// program.
	File int64 `json:"file_bytes"`
}

func readMemory() Memory {
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		if m, ok := parseStatus(status); ok {
			return m
		}
	}
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return Memory{Source: "go", Private: int64(s[0].Value.Uint64() - s[1].Value.Uint64())}
}

// parseStatus parses /proc/self/status, see proc(5).
func parseStatus(status []byte) (m Memory, ok bool) {
	m.Source = "linux"
	found := 0
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		to := map[string]*int64{"RssAnon": &m.Private, "RssFile": &m.File, "RssShmem": &m.File}[name]
		if to == nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return m, false
		}
		*to += n << 10
		found++
	}
	return m, found == 3
}
