package cluster

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/internal/remote/s3"
)

// killAt runs gq and kills it at its request n, before or after the store has executed it. It
// returns false if gq ended by itself before.
func (s *store) killAt(n int, executed bool, args ...string) bool {
	s.t.Helper()
	reached, dead := make(chan struct{}), make(chan struct{})
	s.setFault(func(i int, w http.ResponseWriter, r *http.Request) bool {
		if i < n {
			return false
		}
		if i == n {
			if executed {
				s.forward(httptest.NewRecorder(), r)
			}
			close(reached)
		}
		<-dead
		reset(w)
		return true
	})
	c := s.command(args...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	killed := false
	select {
	case err := <-ended:
		if err != nil {
			s.t.Fatalf("%q before request %d: %v\n%s", args, n, err, out.String())
		}
	case <-reached:
		killed = true
		_ = c.Process.Kill()
		<-ended
	}
	close(dead)
	s.setFault(nil)
	return killed
}

// TestPartsKilled: a worker and a merge are killed at each of their requests, and started again
// with the same command. The object is the file of one job, and nothing else is left.
func TestPartsKilled(t *testing.T) {
	src := largeCheckpoint(t)
	args := []string{"quantize", src, "--bits", "8", "--algorithm", "rtn", "-q"}
	want := local(t, "model.gqf", args...)
	for _, executed := range []bool{false, true} {
		t.Run(fmt.Sprint("executed ", executed), func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			part := func(i int) []string {
				return with(args, "--part", fmt.Sprintf("%d/2", i), "-o", "s3://bucket/model.gqf")
			}
			merge := s.merge("s3://bucket/model.gqf", part(0))
			kills := func(args []string, least int) {
				n := 1
				for s.killAt(n, executed, args...) {
					n++
				}
				if n <= least {
					t.Errorf("%q ended after %d requests, expected more than %d", args, n-1, least)
				}
			}
			kills(part(0), 5)
			if out, err := s.run(part(1)...); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			kills(merge, 3)
			if got := s.get("model.gqf"); !bytes.Equal(got, want) {
				t.Errorf("the object has %d bytes, and is not the file of %d bytes", len(got), len(want))
			}
			for again := range 2 {
				if out, err := s.run(merge...); err != nil || !strings.Contains(out, "nothing to do") {
					t.Errorf("a merge after the merge: %v\n%s", err, out)
				}
				if out, err := s.run(part(again)...); err != nil || !strings.Contains(out, "wrote ") {
					t.Errorf("a worker after the merge: %v\n%s", err, out)
				}
				if out, err := s.run(merge...); err != nil || !strings.Contains(out, "is complete already") {
					t.Errorf("a merge after that worker: %v\n%s", err, out)
				}
				if s.get(fmt.Sprintf("model.gqf.part-%d-of-2", again)) != nil {
					t.Errorf("part %d is left", again)
				}
			}
			if !bytes.Equal(s.get("model.gqf"), want) {
				t.Error("the object has changed")
			}
			if list := s.uploads(); len(list) > 0 {
				t.Errorf("%d uploads are left", len(list))
			}
		})
	}
}

// TestPartsTwice: two workers make each part at the same time in a store whose ETags are not MD5s,
// as with SSE-KMS.
func TestPartsTwice(t *testing.T) {
	s := newStore(t)
	s.encrypt()
	src := largeCheckpoint(t)
	args := []string{"quantize", src, "--bits", "8", "--algorithm", "rtn", "-q"}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if out, err := s.run(with(args, "--part", fmt.Sprintf("%d/2", i/2), "-o", "s3://bucket/model.gqf")...); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	if out, err := s.run(s.merge("s3://bucket/model.gqf", with(args, "--part", "0/2", "-o", "s3://bucket/model.gqf"))...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !bytes.Equal(s.get("model.gqf"), local(t, "model.gqf", args...)) {
		t.Error("the object is not the file")
	}
	if list := s.uploads(); len(list) > 0 {
		t.Errorf("%d uploads are left", len(list))
	}
}

// TestLostCompletion: the store completes an upload, the answer is lost, and the repeated request
// fails in any way. The object counts only if it is made of this upload.
func TestLostCompletion(t *testing.T) {
	for _, c := range []struct {
		name     string
		complete bool // the store completes the upload
		replace  bool // another job then replaces the object by one of the same size
		want     bool
	}{
		{"completed", true, false, true},
		{"refused", false, false, false},
		{"replaced", true, true, false},
	} {
		for _, encrypted := range []bool{false, true} {
			s := newStore(t)
			if encrypted {
				s.encrypt()
			}
			b := s.open(t, "s3://bucket/model.gqf")
			data := content(100_000)
			begin := func(mark string) func() error {
				u, err := b.Begin(t.Context(), mark)
				if err != nil {
					t.Fatal(err)
				}
				p, err := u.Put(t.Context(), 1, data)
				if err != nil {
					t.Fatal(err)
				}
				return func() error { return u.Complete(t.Context(), []s3.Part{p}) }
			}
			complete, other := begin("mine"), begin("other")
			posts := 0
			s.setFault(func(_ int, w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost {
					return false
				}
				if posts++; posts == 1 && c.complete {
					s.forward(httptest.NewRecorder(), r)
					reset(w)
					return true
				}
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprint(w, "<Error><Code>InvalidRequest</Code><Message>no</Message></Error>")
				return true
			})
			if c.replace {
				fault := s.fault
				s.setFault(func(n int, w http.ResponseWriter, r *http.Request) bool {
					lost := r.Method == http.MethodPost && posts == 0
					done := fault(n, w, r)
					if lost {
						s.setFault(nil)
						if err := other(); err != nil {
							t.Error(err)
						}
						s.setFault(fault)
					}
					return done
				})
			}
			if err := complete(); (err == nil) != c.want {
				t.Errorf("%s, encrypted %v: %v", c.name, encrypted, err)
			}
		}
	}
}
