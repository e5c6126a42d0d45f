package gq_test

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/internal/test/testremote"
)

// hubWith starts a hub with the bundled model as org/books, and a new cache.
func hubWith(t *testing.T) (s *testremote.Server, model string) {
	t.Helper()
	s = testremote.Start(t)
	model = filepath.Join("testdata", "books1.3M-bf16")
	s.AddRepo(t, "org/books", model)
	home := t.TempDir()
	for name, value := range map[string]string{
		"HF_ENDPOINT": s.URL, "HF_HOME": home, "HF_TOKEN": "", "HF_HUB_CACHE": "", "HF_HUB_OFFLINE": "", "XDG_CACHE_HOME": filepath.Join(home, "xdg"),
		"HTTP_PROXY": "", "http_proxy": "",
	} {
		t.Setenv(name, value)
	}
	return s, model
}

// TestPull: a pulled model is as the original, and a job by name, on the cache and offline gives
// the same bytes.
func TestPull(t *testing.T) {
	s, model := hubWith(t)
	ctx := context.Background()
	r, err := gq.Pull(ctx, "org/books", gq.PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Files {
		if f.Cached {
			t.Errorf("%s was in the cache of a new directory", f.Name)
		}
		if !bytes.Equal(read(t, filepath.Join(r.Path, f.Name)), read(t, filepath.Join(model, f.Name))) {
			t.Errorf("%s differs", f.Name)
		}
	}
	again, err := gq.Pull(ctx, "org/books", gq.PullOptions{})
	if err != nil || r.FetchedBytes != r.Bytes || again.Bytes != r.Bytes || again.FetchedBytes != 0 {
		t.Errorf("%d of %d bytes were fetched, then %d of %d, %v", r.FetchedBytes, r.Bytes, again.FetchedBytes, again.Bytes, err)
	}
	s.SetFaults(nil)
	dir := t.TempDir()
	var files [][]byte
	for _, src := range []string{"hf://org/books", r.Path, r.Name} {
		out := filepath.Join(dir, filepath.Base(src)+".gqf")
		if _, err := gq.Quantize(ctx, src, out, gq.QuantizeOptions{}); err != nil {
			t.Fatal(err)
		}
		files = append(files, read(t, out))
	}
	for _, q := range s.Requests() {
		if q.Server == "cdn" {
			t.Errorf("a job on the cache downloads %s", q.Path)
		}
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	s.SetFaults(nil)
	out := filepath.Join(dir, "offline.gqf")
	if _, err := gq.Quantize(ctx, "hf://org/books", out, gq.QuantizeOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := len(s.Requests()); n > 0 {
		t.Errorf("%d requests although HF_HUB_OFFLINE is set", n)
	}
	files = append(files, read(t, out))
	for i := range files {
		if !bytes.Equal(files[i], files[0]) {
			t.Errorf("file %d has other bytes", i)
		}
	}
}
