package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Serve answers requests on the listener until ctx is cancelled. Then new requests are refused with
// status 503, and running answers get at most Limits.Drain. Serve closes the listener and returns
// nil, or an error if answers were cut off.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	base, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: s.limits.Receive,
		IdleTimeout:       s.limits.Idle,
		MaxHeaderBytes:    s.limits.Header,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       s.connections.add,
		ConnState:         s.connections.state,
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),

		DisableGeneralOptionsHandler: true, // OPTIONS * is an unknown path
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	// The listener stays open meanwhile: clients get a clear answer.
	err := s.work.wait(s.limits.Drain)
	stop(errStopped)
	// Answers that were cut off get the time to say so.
	closing, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if server.Shutdown(closing) != nil {
		_ = server.Close() // the connections that are left are lost either way
	}
	if failure := <-failed; !errors.Is(failure, http.ErrServerClosed) {
		err = errors.Join(err, failure)
	}
	return err
}

// closeTime is how long connections may stay after the last answer.
const closeTime = 5 * time.Second

// connections bounds the number of connections. To make room for a new connection, the connection
// that has waited longest for a request is closed: strangers can take no place for long.
type connections struct {
	most  int
	mu    sync.Mutex
	since map[net.Conn]int // the clock when the connection began to wait, or busy
	clock int
}

// busy connections have sent a request with the API key, or a request that is being answered, and
// are never closed for others.
const busy = math.MaxInt

// sendBuffer is the size of a connection's send buffer in bytes, some hundred events. With a
// system's own buffer of some megabytes, a client that does not read holds up Write only after
// minutes.
const sendBuffer = 64 << 10

// connectionKey finds the net.Conn in the context of a request.
type connectionKey struct{}

// add is called by http.Server with a new connection.
func (c *connections) add(ctx context.Context, conn net.Conn) context.Context {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // a system that cannot has its own size
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	c.since[conn] = c.clock
	if len(c.since) > c.most {
		oldest := conn
		for other, since := range c.since {
			if since < c.since[oldest] {
				oldest = other
			}
		}
		oldest.Close()
		delete(c.since, oldest)
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// state is called by http.Server when the state of a connection changes.
func (c *connections) state(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch _, there := c.since[conn]; {
	case there && state == http.StateIdle:
		c.clock++
		c.since[conn] = c.clock
	case state == http.StateClosed:
		delete(c.since, conn)
	}
}

// keep makes the connection of a request busy until the answer is complete.
func (c *connections) keep(r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn, _ := r.Context().Value(connectionKey{}).(net.Conn)
	if _, there := c.since[conn]; there {
		c.since[conn] = busy
	}
}

// A drain counts running answers. When the server ends, the drain waits for these answers.
type drain struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // set while draining; closed when nothing runs
}

// enter counts an answer, unless the server is draining.
func (d *drain) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.idle != nil {
		return false
	}
	d.running++
	return true
}

func (d *drain) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running--; d.running == 0 && d.idle != nil {
		close(d.idle)
	}
}

func (d *drain) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running
}

func (d *drain) draining() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.idle != nil
}

// wait refuses new answers and waits until none is running, for at most the given time. It is
// called once.
func (d *drain) wait(most time.Duration) error {
	d.mu.Lock()
	idle := make(chan struct{})
	if d.idle = idle; d.running == 0 {
		close(idle)
	}
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("answers that were not complete %v after the server was told to end were cut off: %d", most, d.count())
	}
}

// errDraining refuses requests while the server ends.
var errDraining = &apiError{status: http.StatusServiceUnavailable, code: codeDraining, retryAfter: 5, message: "the server is shutting down"}

// counted wraps handles that compute.
func (s *Server) counted(h handle) handle {
	return func(x *exchange, r *http.Request) error {
		if !s.work.enter() {
			return errDraining
		}
		defer s.work.leave()
		return h(x, r)
	}
}

// health answers GET /health. A server that is draining or has a failing model has status 503, so
// that a balancer sends no requests.
func (s *Server) health(x *exchange, r *http.Request) error {
	x.routine = true
	status, word := http.StatusOK, "ok"
	if s.work.draining() {
		status, word = http.StatusServiceUnavailable, "draining"
	} else if slices.ContainsFunc(s.models, func(m *Model) bool { return m.failing(r.Context()) }) {
		status, word = http.StatusServiceUnavailable, "failing"
	}
	writeJSON(x, status, map[string]string{"status": word})
	return nil
}
