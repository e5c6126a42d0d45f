package serve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/lowbit-go/gq/model/generate"
)

// patience ends tests that would hang. No test depends on its length otherwise.
const patience = 5 * time.Minute

// listening is a server on a port.
type listening struct {
	*Server
	url, address string
	stop         func() // as SIGTERM does
	ended        chan error
}

// listen starts a server. It must end by itself, without goroutines left.
func listen(t *testing.T, o Options) *listening {
	t.Helper()
	s := newServer(t, o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &listening{Server: s, url: "http://" + l.Addr().String(), address: l.Addr().String(), stop: cancel, ended: make(chan error, 1)}
	go pprof.Do(ctx, pprof.Labels(serverLabel, a.address), func(ctx context.Context) { a.ended <- s.Serve(ctx, l) })
	until(t, "the server does not start", a.hasGoroutines)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		select {
		case <-a.ended:
		case <-time.After(patience):
			t.Error("the server does not end")
		}
		until(t, "goroutines are left", func() bool { return !a.hasGoroutines() })
	})
	return a
}

// serverLabel is the label of a server's goroutines: a goroutine inherits the labels of the
// goroutine that starts it. The number of all goroutines would tell nothing while other servers
// start or end.
const serverLabel = "server"

// hasGoroutines reports whether a goroutine of the server exists.
func (a *listening) hasGoroutines() bool {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1) // a buffer takes everything
	return strings.Contains(b.String(), fmt.Sprintf("%q:%q", serverLabel, a.address))
}

// until waits for a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b := make([]byte, 1<<16)
			t.Fatalf("%s\n%s", what, b[:runtime.Stack(b, true)])
		}
	}
}

// idle waits until no sequence is in use.
func (a *listening) idle(t *testing.T) {
	t.Helper()
	until(t, "a sequence is still in use", func() bool {
		g := a.models[0].gate
		g.mu.Lock()
		defer g.mu.Unlock()
		s := a.models[0].Engine.Stats()
		return g.taken == 0 && s.Running == 0 && s.Waiting == 0
	})
}

// long asks for an answer that takes far longer than a test.
const long = `{"prompt":"The old man","max_tokens":1000000,"ignore_eos":true,"stream":true}`

// longModel has room for long answers, few at a time.
func longModel(t *testing.T, parallel, queue int) []*Model {
	return []*Model{newModel(t, "books", generate.EngineOptions{Context: 30_000, Parallel: parallel, Queue: queue})}
}

// post sends a body and returns the answer, whose body the caller closes.
func (a *listening) post(t *testing.T, ctx context.Context, path, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// begin starts a long answer and reads its first event.
func (a *listening) begin(t *testing.T, ctx context.Context) *http.Response {
	t.Helper()
	r := a.post(t, ctx, "/v1/completions", long)
	line, err := bufio.NewReader(r.Body).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "data: {") {
		t.Fatalf("%d %q %v", r.StatusCode, line, err)
	}
	return r
}

// status posts a body and returns status and code.
func (a *listening) status(t *testing.T, body string) (int, string, http.Header) {
	t.Helper()
	r := a.post(t, t.Context(), "/v1/completions", body)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b), r.Header
}

// TestGone: a client that goes away frees its sequence, before the first token and after it.
func TestGone(t *testing.T) {
	a := listen(t, Options{Models: longModel(t, 1, 2)})
	ctx, cancel := context.WithCancel(t.Context())
	r := a.begin(t, ctx)
	// One more waits in the queue, and goes away there.
	waiting, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		q, err := http.NewRequestWithContext(waiting, http.MethodPost, a.url+"/v1/completions", strings.NewReader(long))
		if err == nil {
			q.Header.Set("Content-Type", "application/json")
			_, err = http.DefaultClient.Do(q)
		}
		left <- err
	}()
	until(t, "nobody waits", func() bool { return a.models[0].Engine.Stats().Waiting == 1 })
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	until(t, "the queue is not free", func() bool { return a.models[0].Engine.Stats().Waiting == 0 })
	cancel()
	r.Body.Close()
	a.idle(t)
	if status, body, _ := a.status(t, `{"prompt":"The","max_tokens":1}`); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
}

// TestBusy: a full server answers 429 with Retry-After, and serves again when there is room.
func TestBusy(t *testing.T) {
	a := listen(t, Options{Models: longModel(t, 1, -1)})
	ctx, cancel := context.WithCancel(t.Context())
	r := a.begin(t, ctx)
	status, body, header := a.status(t, `{"prompt":"The","max_tokens":1}`)
	if status != http.StatusTooManyRequests || header.Get("Retry-After") != "1" || !strings.Contains(body, `"code":"server_busy"`) || !strings.Contains(body, `"type":"rate_limit_error"`) {
		t.Errorf("%d %v %s", status, header, body)
	}
	cancel()
	r.Body.Close()
	a.idle(t)
	if status, body, _ := a.status(t, `{"prompt":["The","A"],"max_tokens":1}`); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	if w := do(t, a, "/metrics", ""); !strings.Contains(w.Body.String(), "\ngq_refused_busy_total{model=\"books\"} 1\n") {
		t.Errorf("%s", w.Body)
	}
}

// TestRequestTime: an answer that takes too long ends with an error, as an event if it has begun.
func TestRequestTime(t *testing.T) {
	a := listen(t, Options{Models: longModel(t, 1, 1), Limits: Limits{Request: 50 * time.Millisecond}})
	for _, body := range []string{long, strings.Replace(long, `"stream":true`, `"stream":false`, 1)} {
		status, answer, _ := a.status(t, body)
		stream := strings.Contains(body, `"stream":true`)
		if !strings.Contains(answer, `"code":"request_timeout"`) || !stream && status != http.StatusGatewayTimeout || strings.Contains(answer, "[DONE]") {
			t.Errorf("%d %s", status, answer[max(0, len(answer)-300):])
		}
	}
	a.idle(t)
}

// TestSlowReader: a client that does not read holds its sequence only as long as it may.
func TestSlowReader(t *testing.T) {
	a := listen(t, Options{Models: longModel(t, 1, 1), Limits: Limits{Send: 50 * time.Millisecond}})
	c, err := net.Dial("tcp", a.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(long), long)
	until(t, "nothing runs", func() bool { return a.models[0].Engine.Stats().Rows > 0 })
	a.idle(t)
}

// TestUndelivered: an answer ends if the client does not take its events, before all are computed.
func TestUndelivered(t *testing.T) {
	a := listen(t, Options{Models: longModel(t, 1, 1), Limits: Limits{Send: patience, Held: 100}})
	c, err := net.Dial("tcp", a.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(long), long)
	engine := a.models[0].Engine
	until(t, "nothing runs", func() bool { return engine.Stats().Rows > 0 })
	until(t, "the answer goes on", func() bool { return engine.Stats().Running == 0 })
	if n := engine.Stats().Rows; n > 20_000 {
		t.Errorf("%d tokens were computed for a client that does not read", n)
	}
}

// TestOptions: requests that http.Server would answer itself.
func TestOptions(t *testing.T) {
	a := listen(t, Options{})
	conn, err := net.Dial("tcp", a.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	if b, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 404") || !strings.Contains(string(b), codeURL) {
		t.Errorf("%v %s", err, b)
	}
}

// TestOversized: bodies and headers above the limits are refused before they are read.
func TestOversized(t *testing.T) {
	a := listen(t, Options{Limits: Limits{Body: 1000, Header: 1000}})
	raw := func(request string) string {
		conn, err := net.Dial("tcp", a.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		io.WriteString(conn, request)
		b, _ := io.ReadAll(conn)
		return string(b)
	}
	const head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
	for name, request := range map[string]string{
		"length":  head + "Content-Length: 1000000000000\r\n\r\n{",
		"chunked": head + "Transfer-Encoding: chunked\r\n\r\n7d0\r\n" + strings.Repeat(" ", 2000) + "\r\n0\r\n\r\n",
	} {
		if got := raw(request); !strings.HasPrefix(got, "HTTP/1.1 413 ") || !strings.Contains(got, `"code":"request_too_large"`) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := raw(head + "X-Long: " + strings.Repeat("x", 20_000) + "\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 431 ") {
		t.Errorf("%s", got)
	}
	if got := raw(head + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"); !strings.HasPrefix(got, "HTTP/1.1 415 ") {
		t.Errorf("%s", got)
	}
}

// TestDrain: a server that was told to end refuses new work, finishes what runs, and ends.
func TestDrain(t *testing.T) {
	a := listen(t, Options{Models: longModel(t, 1, 2)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := a.begin(t, ctx)
	defer r.Body.Close()
	a.stop()
	until(t, "it does not drain", a.work.draining)
	status, body, header := a.status(t, `{"prompt":"The","max_tokens":1}`)
	if status != http.StatusServiceUnavailable || !strings.Contains(body, codeDraining) || header.Get("Retry-After") == "" {
		t.Errorf("%d %s", status, body)
	}
	health, err := http.Get(a.url + "/health")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(health.Body)
	health.Body.Close()
	if health.StatusCode != http.StatusServiceUnavailable || string(text) != "{\"status\":\"draining\"}\n" {
		t.Errorf("%d %s", health.StatusCode, text)
	}
	select {
	case err := <-a.ended:
		t.Fatalf("it ended while an answer was running: %v", err)
	default:
	}
	cancel() // the answer ends, here because its client goes away
	select {
	case err := <-a.ended:
		if err != nil {
			t.Error(err)
		}
		a.ended <- nil
	case <-time.After(patience):
		t.Error("the server does not end")
	}
}

// TestDrainLimit: answers that are not finished in time are cut off and say so.
func TestDrainLimit(t *testing.T) {
	a := listen(t, Options{Models: longModel(t, 1, 1), Limits: Limits{Drain: 50 * time.Millisecond}})
	r := a.begin(t, t.Context())
	defer r.Body.Close()
	a.stop()
	rest, err := io.ReadAll(r.Body)
	if err != nil || !strings.Contains(string(rest), `"code":"server_draining"`) || strings.Contains(string(rest), "[DONE]") {
		t.Errorf("%v %s", err, rest[max(0, len(rest)-300):])
	}
	err = <-a.ended
	if err == nil || !strings.Contains(err.Error(), "were cut off: 1") {
		t.Errorf("%v", err)
	}
	a.ended <- nil
	if _, err := net.Dial("tcp", a.address); err == nil {
		t.Error("the port is still open")
	}
}

// TestClosedEngine: an engine that was closed under the server is a clear answer.
func TestClosedEngine(t *testing.T) {
	s := newServer(t, Options{})
	s.models[0].Engine.Close()
	w := do(t, s, "/v1/completions", `{"prompt":"x"}`)
	checkFailure(t, "closed", w.Code, decode[failure](t, w), http.StatusServiceUnavailable, "", codeDraining, "shutting down")
}

func TestMain(m *testing.M) {
	// The goroutine that moves the windows of summaries on starts with the first one and stays.
	if _, err := New(Options{Models: []*Model{{ID: "x"}}}); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
