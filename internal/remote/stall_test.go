package remote

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestStalledRequest: a server that takes no more of a request's body ends the request.
func TestStalledRequest(t *testing.T) {
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-end }))
	defer s.Close()
	defer close(end)
	c := NewClient()
	c.Stall = 50 * time.Millisecond
	q, err := http.NewRequest(http.MethodPut, s.URL, strings.NewReader(strings.Repeat("x", 64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.Transport().RoundTrip(q); err == nil || !strings.Contains(err.Error(), "stalled") {
		t.Errorf("error %v", err)
	}
}

// endless sends a byte at a time without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return copy(p, "x"), nil
}

// TestSlow: a body that gets a byte now and then ends, in either direction.
func TestSlow(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			io.Copy(io.Discard, r.Body)
			return
		}
		for r.Context().Err() == nil {
			io.WriteString(w, "x")
			w.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
	}))
	defer s.Close()
	c := NewClient()
	c.Stall = 100 * time.Millisecond
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		var body io.Reader
		if method == http.MethodPut {
			body = endless{}
		}
		q, err := http.NewRequest(method, s.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		a, err := c.Transport().RoundTrip(q)
		if err == nil {
			_, err = io.Copy(io.Discard, a.Body)
			a.Body.Close()
		}
		// Under load the pauses may be long enough to be a stall.
		if err == nil || !strings.Contains(err.Error(), "too slow") && !strings.Contains(err.Error(), "stalled") {
			t.Errorf("%s: error %v", method, err)
		}
	}
}

// TestCutBodies: a body that is always cut ends the job, however much of it arrives.
func TestCutBodies(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100000")
		io.WriteString(w, strings.Repeat("x", progress))
	}))
	defer s.Close()
	u, _ := url.Parse(s.URL)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	waits, c := 0, NewClient()
	c.Sleep = func(context.Context, time.Duration) error {
		if waits++; waits > attempts {
			cancel()
		}
		return ctx.Err()
	}
	if _, _, err := c.Get(ctx, &Request{Name: "x", URL: u}, 200_000); err == nil || !strings.Contains(err.Error(), "attempts") {
		t.Errorf("error %v after %d waits", err, waits)
	}
}
