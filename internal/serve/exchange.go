package serve

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

// An exchange is a request and its answer, with the facts for the log.
type exchange struct {
	http.ResponseWriter
	send       time.Duration // the client's time limit for each write
	status     int           // 0: nothing was written
	events     bool          // the answer is a stream of events
	routine    bool          // a program asks again and again: not worth a line in the log
	logPrompts bool
	body       int64 // bytes of the request's body in Server.bodies
	attrs      []any
}

func (x *exchange) log(args ...any) { x.attrs = append(x.attrs, args...) }

// WriteHeader records the status.
func (x *exchange) WriteHeader(status int) {
	x.status = status
	x.ResponseWriter.WriteHeader(status)
}

// Write gives the client time to take the bytes, then closes the connection.
func (x *exchange) Write(b []byte) (int, error) {
	x.status = cmp.Or(x.status, http.StatusOK)
	// A ResponseWriter without deadlines is a test's.
	_ = http.NewResponseController(x.ResponseWriter).SetWriteDeadline(time.Now().Add(x.send))
	return x.ResponseWriter.Write(b)
}

// receive gives the client time to send the body; 0: without end.
func (x *exchange) receive(most time.Duration) error {
	end := time.Time{}
	if most > 0 {
		end = time.Now().Add(most)
	}
	err := http.NewResponseController(x.ResponseWriter).SetReadDeadline(end)
	if errors.Is(err, http.ErrNotSupported) { // a test's
		return nil
	}
	return err
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// startEvents sends the header of a stream of events, once.
func (x *exchange) startEvents() {
	if x.events {
		return
	}
	x.events = true
	h := x.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no") // nginx must not collect events
	x.WriteHeader(http.StatusOK)
}

// fail answers with an error. In a stream the error is an event, because the status was sent.
// Messages may quote a prompt.
func (x *exchange) fail(e *apiError) {
	x.log("error", e.code)
	if e.param != "" {
		x.log("param", clip(e.param))
	}
	if x.logPrompts {
		x.log("message", e.message)
	}
	switch {
	case e.status == statusGone:
		x.status = cmp.Or(x.status, statusGone)
	case x.events:
		_, _ = x.Write([]byte("data: " + string(mustJSON(e)) + "\n\n"))
	case x.status == 0:
		if e.retryAfter > 0 {
			x.Header().Set("Retry-After", strconv.Itoa(e.retryAfter))
		}
		if e.status == http.StatusUnauthorized {
			x.Header().Set("WWW-Authenticate", `Bearer realm="gq"`)
		}
		writeJSON(x, e.status, e)
	}
}

// slog writes the record of the exchange.
func (x *exchange) slog(l *slog.Logger, r *http.Request, took time.Duration) {
	level := slog.LevelInfo
	switch {
	case x.routine:
		level = slog.LevelDebug
	case x.status >= http.StatusInternalServerError:
		level = slog.LevelError
	}
	args := append([]any{"method", r.Method, "path", clip(r.URL.Path), "status", x.status, "from", r.RemoteAddr, "took", took.Round(time.Microsecond)}, x.attrs...)
	l.Log(r.Context(), level, "request", args...)
}
