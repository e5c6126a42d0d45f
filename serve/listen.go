package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Serve answers requests on the listener until ctx is cancelled. Then it refuses new requests with
// status 503, finishes running answers for at most Limits.Drain, and returns nil, or an error if
// answers were cut off. It closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	base, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: s.limits.Receive,
		IdleTimeout:       s.limits.Idle,
		MaxHeaderBytes:    s.limits.Header,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnState:         newConnections(s.limits.Connections).state,
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

// connections closes connections beyond the limit.
type connections struct {
	most int
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

func newConnections(most int) *connections {
	return &connections{most: most, open: map[net.Conn]struct{}{}}
}

// sendBuffer is the size of a connection's send buffer in bytes, some hundred events. With a system's
// own, of some megabytes, it takes minutes until a client that does not read holds up Write.
const sendBuffer = 64 << 10

// state is called by http.Server when the state of a connection changes.
func (c *connections) state(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(c.open) >= c.most {
			conn.Close()
			return
		}
		c.open[conn] = struct{}{}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(sendBuffer) // a system that cannot has its own size
		}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}
