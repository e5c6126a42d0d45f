package cluster

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
)

// TestArchives: an object is archived and restored in the store, and an older file in the store is copied from
// for a new object. Whichever request fails once, the objects are the files that the commands write on
// this machine.
func TestArchives(t *testing.T) {
	file := local(t, "model.gqf", "quantize", model, "-q")
	archive := local(t, "model.gqf.zst", "archive", write(t, "model.gqf", string(file)), "-q")
	rule := []string{"quantize", model, "-q", "--rule", "model.layers.0.mlp.down_proj.weight=6"}
	for _, c := range []struct {
		name, key string
		args      []string
		want      []byte
		out       string // in the output
	}{
		{"archive", "new.zst", []string{"archive", "s3://bucket/dir/model.gqf", "-q"}, archive, ""},
		{"extract", "new.gqf", []string{"archive", "--extract", "s3://bucket/dir/model.gqf.zst", "-q"}, file, ""},
		{"reuse", "new.gqf", with(rule, "--reuse", "s3://bucket/dir/model.gqf"), local(t, "ruled.gqf", rule...), "tensors copied from s3://bucket/dir/model.gqf, 1 made: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			s.put("dir/model.gqf", file)
			s.put("dir/model.gqf.zst", archive)
			run := func(fault func(n int, w http.ResponseWriter, r *http.Request) bool) {
				t.Helper()
				s.setFault(fault)
				out, err := s.run(with(c.args, "-o", "s3://bucket/"+c.key)...)
				if err != nil || !strings.Contains(out, c.out) {
					t.Errorf("%v\n%s", err, out)
				}
				if got := s.get(c.key); !bytes.Equal(got, c.want) {
					t.Errorf("the object has %d bytes, and is not the file of %d bytes", len(got), len(c.want))
				}
				_, _ = s.backend.DeleteObject(bucket, c.key)
			}
			run(nil)
			requests := s.count()
			for n := 1; n <= requests && !t.Failed(); n++ {
				run(func(i int, w http.ResponseWriter, r *http.Request) bool {
					if i == n {
						faults["reset"](s, w, r)
					}
					return i == n
				})
			}
			if list := s.uploads(); len(list) > 0 {
				t.Errorf("%d uploads are left", len(list))
			}
		})
	}
	s := newStore(t)
	for _, args := range [][]string{
		{"archive", "s3://bucket/model.gqf", "-o", "s3://bucket/model.gqf"},
		{"archive", "--extract", "s3://bucket/model.gqf", "-o", "s3://bucket/model.gqf"},
	} {
		if out, err := s.run(args...); err == nil || !strings.Contains(out, "is an input of this job") || s.count() > 0 {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
	s.put("model.gqf", file)
	if out, err := s.run(with(rule, "--reuse", "s3://bucket/model.gqf", "-o", "s3://bucket/model.gqf")...); err == nil || !strings.Contains(out, "is an input of this job") {
		t.Errorf("the older file was replaced: %v\n%s", err, out)
	}
}
