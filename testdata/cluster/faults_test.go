package cluster

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// faults are failures that pass. Each answers a request in place of the server.
var faults = map[string]func(s *store, w http.ResponseWriter, r *http.Request){
	"503": func(_ *store, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>")
	},
	"429": func(_ *store, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
	},
	"expired token": func(_ *store, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, "<Error><Code>ExpiredToken</Code><Message>The provided token "+session+" has expired.</Message></Error>")
	},
	"reset": func(_ *store, w http.ResponseWriter, _ *http.Request) { reset(w) },
	"lost answer": func(s *store, w http.ResponseWriter, r *http.Request) {
		s.proxy.ServeHTTP(httptest.NewRecorder(), r)
		reset(w)
	},
	"short answer": func(s *store, w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		s.proxy.ServeHTTP(answer, r)
		body := answer.Body.Bytes()
		for k, v := range answer.Header() {
			w.Header()[k] = v
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body[:len(body)/2])
		if len(body) > 0 {
			_ = http.NewResponseController(w).Flush()
			reset(w)
		}
	},
}

// TestFaults: whichever request fails once, gq writes the object that it writes without faults.
func TestFaults(t *testing.T) {
	args := []string{"quantize", model, "-q"}
	want := local(t, "model.gqf", args...)
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			if out, err := s.run(with(args, "-o", "s3://bucket/first.gqf")...); err != nil {
				t.Fatalf("without a fault: %v\n%s", err, out)
			}
			for n := 1; n <= s.count() && !t.Failed(); n++ {
				total := s.count()
				s.setFault(func(i int, w http.ResponseWriter, r *http.Request) bool {
					if i == n {
						fault(s, w, r)
					}
					return i == n
				})
				out, err := s.run(with(args, "-o", "s3://bucket/model.gqf")...)
				if err != nil {
					t.Errorf("request %d of %d: %v\n%s", n, total, err, out)
				}
				if got := s.get("model.gqf"); !bytes.Equal(got, want) {
					t.Errorf("request %d of %d: the object is not the file", n, total)
				}
				s.setFault(nil)
				_, _ = s.backend.DeleteObject(bucket, "model.gqf")
				s.requests = make([]string, total)
			}
			// The answer to the request that begins an upload may be lost: the next job aborts the upload.
			if out, err := s.run(with(args, "-o", "s3://bucket/model.gqf")...); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if list := s.uploads(); len(list) > 0 {
				t.Errorf("%d uploads are left", len(list))
			}
		})
	}
}

// TestDenied: a failure that does not pass aborts the upload and leaves the object that was there.
func TestDenied(t *testing.T) {
	s := newStore(t)
	s.put("model.gqf", []byte("old"))
	s.setFault(func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "<Error><Code>AccessDenied</Code><Message>%s may not write</Message></Error>", accessKey)
		return true
	})
	out, err := s.run("quantize", model, "-q", "-o", "s3://bucket/model.gqf")
	if err == nil || !strings.Contains(out, "AccessDenied: [credential] may not write") {
		t.Errorf("%v\n%s", err, out)
	}
	if got := s.get("model.gqf"); string(got) != "old" {
		t.Errorf("the object has %d bytes now", len(got))
	}
	s.setFault(nil)
	if list := s.uploads(); len(list) > 0 {
		t.Errorf("%d uploads are left", len(list))
	}
}

// TestKilled: after a kill the object is the old one and an upload is left, which the same command
// aborts.
func TestKilled(t *testing.T) {
	s := newStore(t)
	s.put("model.gqf", []byte("old"))
	reached, release := make(chan struct{}, 10), make(chan struct{})
	s.setFault(func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			reached <- struct{}{}
			<-release
		}
		return false
	})
	c := s.command("quantize", model, "-q", "-o", "s3://bucket/model.gqf")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-reached:
	case <-time.After(time.Minute):
		t.Error("no part was sent")
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	s.setFault(nil)
	close(release)
	if got := s.get("model.gqf"); string(got) != "old" {
		t.Errorf("the object has %d bytes now", len(got))
	}
	if list := s.uploads(); len(list) != 1 {
		t.Errorf("%d uploads are left, expected 1", len(list))
	}
	args := []string{"quantize", model, "-q"}
	if out, err := s.run(with(args, "-o", "s3://bucket/model.gqf")...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !bytes.Equal(s.get("model.gqf"), local(t, "model.gqf", args...)) {
		t.Error("the object is not the file")
	}
	if list := s.uploads(); len(list) > 0 {
		t.Errorf("%d uploads are left", len(list))
	}
}

// TestNoCredentials: the error says where credentials were looked for.
func TestNoCredentials(t *testing.T) {
	s := newStore(t)
	s.setFault(func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
			return true
		}
		return false
	})
	c := s.command("quantize", model, "-q", "-o", "s3://bucket/model.gqf")
	for i, v := range c.Env {
		if strings.HasPrefix(v, "AWS_ACCESS") || strings.HasPrefix(v, "AWS_SE") {
			c.Env[i] = "UNUSED="
		}
	}
	out, err := output(t, c)
	want := "no credentials were found (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: not set; the shared configuration: not set)"
	if _, failed := err.(*exec.ExitError); !failed || !strings.Contains(out, want) {
		t.Errorf("%v, expected %q:\n%s", err, want, out)
	}
}
