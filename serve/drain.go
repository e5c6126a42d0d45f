package serve

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// A drain counts running answers and, when the server ends, waits for them.
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

// wait refuses new answers and waits until none is running, for at most the given time. It is called
// once.
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

// health answers GET /health. A draining server has status 503, so that a balancer sends it nothing.
func (s *Server) health(x *exchange, _ *http.Request) error {
	x.routine = true
	status, word := http.StatusOK, "ok"
	if s.work.draining() {
		status, word = http.StatusServiceUnavailable, "draining"
	}
	writeJSON(x, status, map[string]string{"status": word})
	return nil
}
