package gq

import (
	"bytes"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/hub"
	"github.com/lowbit-go/gq/internal/testremote"
)

// TestStreamedExtract has each fault at each request for a remote archive. Either the content is restored,
// or the job fails and leaves nothing: archives have checksums, so that a bit that changed on the way is noticed. No copy of the archive is kept.
func TestStreamedExtract(t *testing.T) {
	s, home := hubOfBooks(t)
	repo, dir := t.TempDir(), t.TempDir()
	// Two frames that do not shrink.
	want := make([]byte, 4<<20+100_000)
	state := uint32(1)
	for i := range want {
		state = state*1664525 + 1013904223
		want[i] = byte(state >> 24)
	}
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, want, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Archive(t.Context(), plain, filepath.Join(repo, "plain.zst"), ArchiveOptions{}); err != nil {
		t.Fatal(err)
	}
	s.AddRepo(t, "org/archives", repo)
	out := filepath.Join(dir, "out")
	if _, err := Extract(t.Context(), "hf://org/archives/plain.zst", out, ArchiveOptions{}); err != nil || !bytes.Equal(contents(t, out), want) {
		t.Fatalf("the content differs: %v", err)
	}
	if size := largest(t, home); size > 1e6 {
		t.Errorf("a file of %d bytes is in the cache", size)
	}

	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := remote.Parse("hf://org/archives/plain.zst")
	if err != nil {
		t.Fatal(err)
	}
	job := func(faults map[int]testremote.Fault) ([]byte, error) {
		s.SetFaults(nil)
		h, err := hub.Open(t.Context(), l, hub.Settings{Endpoint: u, Cache: t.TempDir()}, impatient())
		if err != nil {
			t.Fatal(err)
		}
		list, err := h.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.SetFaults(faults)
		out := filepath.Join(t.TempDir(), "out")
		if _, err := extract(t.Context(), &source{Name: h.String(), Path: "none", Store: h, Weights: list}, out, ArchiveOptions{Threads: 1}); err != nil {
			if left, e := os.ReadDir(filepath.Dir(out)); e != nil || len(left) > 0 {
				t.Errorf("%v: there are left %v, %v", err, left, e)
			}
			return nil, err
		}
		return contents(t, out), nil
	}
	if _, err := job(nil); err != nil {
		t.Fatal(err)
	}
	requests := len(s.Requests())
	for _, fault := range testremote.Faults() {
		for n := 1; n <= requests; n++ {
			got, err := job(map[int]testremote.Fault{n: fault})
			switch {
			case err == nil && !bytes.Equal(got, want):
				t.Errorf("%v at request %d: other bytes", fault, n)
			case err != nil && fault <= testremote.WrongRange:
				t.Errorf("%v at request %d: %v", fault, n, err)
			case err != nil && strings.Contains(err.Error(), testremote.Signature):
				t.Errorf("%v at request %d: the error has a signature: %v", fault, n, err)
			}
			if changed := new(remote.ChangedError); fault == testremote.OtherETag && err != nil && !errors.As(err, &changed) {
				t.Errorf("%v at request %d: %v", fault, n, err)
			}
		}
	}
	if requests < 4 {
		t.Errorf("%d requests only", requests)
	}
}

// TestReuseRemote: a file in a repository is an older file as one on this machine is.
func TestReuseRemote(t *testing.T) {
	s, _ := hubOfBooks(t)
	repo, dir := t.TempDir(), t.TempDir()
	old, got := filepath.Join(repo, "old.gqf"), filepath.Join(dir, "new.gqf")
	if _, err := Quantize(t.Context(), books, old, QuantizeOptions{}); err != nil {
		t.Fatal(err)
	}
	s.AddRepo(t, "org/old", repo)
	r, err := Quantize(t.Context(), books, got, QuantizeOptions{Reuse: "hf://org/old/old.gqf"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Reuse == nil || r.Reuse.Made != 0 || !strings.HasPrefix(r.Reuse.File, "hf://org/old@") || !bytes.Equal(contents(t, got), contents(t, old)) {
		t.Errorf("%+v", r.Reuse)
	}
	if _, err := Quantize(t.Context(), books, got, QuantizeOptions{Reuse: "hf://org/old"}); err == nil || !strings.Contains(err.Error(), "name it: hf://org/old@") {
		t.Error(err)
	}
}
