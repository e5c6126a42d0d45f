package cluster

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/s3"
)

// open opens a location of the store in this process.
func (s *store) open(t *testing.T, name string) *s3.Bucket {
	t.Helper()
	for k, v := range map[string]string{
		"AWS_ENDPOINT_URL": s.url, "AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secretKey, "AWS_SESSION_TOKEN": session,
		"AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
	} {
		t.Setenv(k, v)
	}
	l, err := remote.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s3.Open(l, remote.NewClient())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func content(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// TestWriter writes four parts from several goroutines in any order, all but two gaps. A part is
// sent when it is complete, the first part last. One request of each kind fails.
func TestWriter(t *testing.T) {
	const size, piece = 3*8<<20 + 1234567, 300_000
	want := content(size)
	gaps := [][2]int64{{8<<20 - 1000, 8<<20 + 5000}, {size - 77, size}}
	for _, g := range gaps {
		clear(want[g[0]:g[1]])
	}
	s := newStore(t)
	failed := map[string]bool{}
	var order []string
	var mu sync.Mutex
	s.setFault(func(_ int, w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		number := r.URL.Query().Get("partNumber")
		kind := r.Method + number
		if !failed[kind] {
			failed[kind] = true
			reset(w)
			return true
		}
		if r.Method == http.MethodPut {
			order = append(order, number)
		}
		return false
	})
	w, err := s.open(t, "s3://bucket/model.gqf").Create(t.Context(), size, func(yield func(from, to int64) bool) {
		for _, g := range gaps {
			if !yield(g[0], g[1]) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	var next atomic.Int64
	var wg sync.WaitGroup
	pieces := rand.New(rand.NewPCG(1, 2)).Perm(size/piece + 1)
	for range 4 {
		wg.Go(func() {
			for {
				i := int(next.Add(1) - 1)
				if i >= len(pieces) {
					return
				}
				from := int64(pieces[i]) * piece
				to := min(from+piece, size)
				for _, g := range gaps { // the piece before a gap, and the piece behind it
					if from < g[1] && to > g[0] {
						if from < g[0] {
							writeAt(t, w, want[from:g[0]], from)
						}
						from = min(g[1], to)
					}
				}
				writeAt(t, w, want[from:to], from)
			}
		})
	}
	wg.Wait()
	if s.get("model.gqf") != nil {
		t.Error("the object is there before Commit")
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := s.get("model.gqf"); !bytes.Equal(got, want) {
		t.Errorf("the object has %d bytes and is not what was written", len(got))
	}
	if last := order[len(order)-1]; last != "1" || len(order) != 4 {
		t.Errorf("parts were sent in the order %q, expected part 1 last", order)
	}
	if _, err := w.WriteAt([]byte("x"), 0); err == nil {
		t.Error("a byte was written after Commit")
	}
}

func writeAt(t *testing.T, w *s3.Writer, p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	if n, err := w.WriteAt(p, off); n != len(p) || err != nil {
		t.Errorf("%d of %d bytes at %d: %v", n, len(p), off, err)
	}
}

// TestReader lists objects and reads ranges. Each of its requests fails in each way.
func TestReader(t *testing.T) {
	s := newStore(t)
	files := map[string][]byte{"dir/a.safetensors": content(200_000), "dir/sub/config.json": []byte("{}"), "dir/": nil, "directory": []byte("x"), "other": []byte("y")}
	for name, data := range files {
		s.put(name, data)
	}
	for _, location := range []string{"s3://bucket/dir", "s3://bucket/dir/"} {
		b := s.open(t, location)
		list, err := b.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, o := range list {
			names = append(names, o.Name)
		}
		if !slices.Equal(names, []string{"a.safetensors", "sub/config.json"}) {
			t.Errorf("%s has %q", location, names)
		}
	}
	b := s.open(t, "s3://bucket/dir")
	list, _ := b.List(t.Context())
	for name, fault := range faults {
		s.setFault(func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n == 1 {
				fault(s, w, r)
			}
			return n == 1
		})
		got := make([]byte, 100_000)
		if err := b.ReadAt(t.Context(), list[0], got, 50_001); err != nil || !bytes.Equal(got, files["dir/a.safetensors"][50_001:150_001]) {
			t.Errorf("%s: %v", name, err)
		}
		if s.count() != 2 {
			t.Errorf("%s: %q", name, s.requests)
		}
	}
	s.setFault(nil)

	got := make([]byte, 10)
	if err := b.ReadAt(t.Context(), list[0], got, 199_991); err == nil {
		t.Error("bytes behind the end were read")
	}
	s.put("dir/a.safetensors", content(200_001))
	var changed *remote.ChangedError
	if err := b.ReadAt(t.Context(), list[0], got, 0); !errors.As(err, &changed) {
		t.Errorf("the object changed: %v", err)
	}
	for location, want := range map[string]string{"s3://bucket/none": "there are no objects", "s3://bucket/none/": "there are no objects", "s3://nobucket": "there is no bucket"} {
		if _, err := s.open(t, location).List(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", location, err)
		}
	}
}

// TestCancelled: a job that is stopped aborts its upload.
func TestCancelled(t *testing.T) {
	s := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := s.open(t, "s3://bucket/model.gqf").Create(ctx, 20<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	writeAt(t, w, make([]byte, 9<<20), 8<<20)
	cancel()
	if err := w.Commit(); err == nil {
		t.Error("committed")
	}
	w.Abort()
	if list := s.uploads(); len(list) > 0 {
		t.Errorf("%d uploads are left", len(list))
	}
}

func TestPartSize(t *testing.T) {
	for _, c := range []struct{ size, want int64 }{
		{0, 8 << 20}, {1, 8 << 20}, {80 << 30, 9 << 20}, {689e9, 66 << 20}, {48 << 40, 5034 << 20}, {60 << 40, 0},
	} {
		got, err := s3.PartSize(c.size)
		if got != c.want && c.want != 0 || (err != nil) != (c.want == 0) {
			t.Errorf("%d bytes: parts of %d MiB (%v), expected %d MiB", c.size, got>>20, err, c.want>>20)
		}
		if err == nil && (c.size+got-1)/got > 10_000 {
			t.Errorf("%d bytes: too many parts of %d", c.size, got)
		}
	}
}
