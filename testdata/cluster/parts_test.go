package cluster

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// largeCheckpoint has weights of 48 MiB, whose file at 8 bits has four pieces of an upload.
func largeCheckpoint(t *testing.T) string {
	t.Helper()
	const rows, cols, half = 8192, 3072, 25165824
	header := fmt.Sprintf(`{"a.up_proj.weight":{"dtype":"BF16","shape":[%d,%d],"data_offsets":[0,%d]},"b.up_proj.weight":{"dtype":"BF16","shape":[%d,%d],"data_offsets":[%d,%d]}}`, rows/2, cols, half, rows/2, cols, half, 2*half)
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i, v := range content(rows * cols) { // small numbers
		b = append(b, v, 0x3C|byte(i&1)<<7)
	}
	path := filepath.Join(t.TempDir(), "large.safetensors")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestParts: workers write parts as objects, and the merge joins them. Every kind of request fails
// once. The object equals the file of a single job.
func TestParts(t *testing.T) {
	s := newStore(t)
	for _, c := range []struct {
		name, src string
		of        int // parts
	}{
		{"small.gqf", model, 3},
		{"large.gqf", largeCheckpoint(t), 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := []string{"quantize", c.src, "--bits", "8", "-q"}
			want := local(t, c.name, args...)
			object := "s3://bucket/dir/" + c.name
			var mu sync.Mutex
			failed, puts := map[string]bool{}, 0
			s.setFault(func(_ int, w http.ResponseWriter, r *http.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				q := r.URL.Query()
				kind := fmt.Sprint(r.Method, r.URL.Path, q.Has("uploads"), q.Get("partNumber"))
				if !failed[kind] {
					failed[kind] = true
					reset(w)
					return true
				}
				if r.Method == http.MethodPut {
					puts++
				}
				return false
			})
			part := func(i int) string {
				t.Helper()
				out, err := s.run(with(args, "--part", fmt.Sprintf("%d/%d", i, c.of), "-o", object)...)
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				return out
			}
			for _, i := range []int{2, 0} {
				part(i)
			}
			merge := s.merge(object, with(args, "--part", fmt.Sprintf("0/%d", c.of), "-o", object))
			if out, err := s.run(merge...); err == nil || !strings.Contains(out, "missing: 1:") {
				t.Errorf("%v\n%s", err, out)
			}
			part(1)
			before := puts
			for i := range c.of {
				if out := part(i); !strings.Contains(out, "found ") {
					t.Errorf("part %d is made again:\n%s", i, out)
				}
			}
			if puts != before || s.get("dir/"+c.name) != nil {
				t.Errorf("%d pieces were sent again, or there is an object", puts-before)
			}
			if out, err := s.run(merge...); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := s.get("dir/" + c.name); !bytes.Equal(got, want) {
				t.Errorf("the object has %d bytes, and is not the file of %d bytes", len(got), len(want))
			}
			for i := range c.of {
				if s.get(fmt.Sprintf("dir/%s.part-%d-of-%d", c.name, i, c.of)) != nil {
					t.Errorf("part %d is left", i)
				}
			}
		})
	}
	s.setFault(nil)
	if list := s.uploads(); len(list) > 0 {
		t.Errorf("%d uploads are left", len(list))
	}
}
