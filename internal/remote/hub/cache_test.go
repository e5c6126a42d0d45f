package hub_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/internal/hubpath"
	"github.com/lowbit-go/gq/internal/remote/hub"
	"github.com/lowbit-go/gq/internal/remote/transfer"
)

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestLinkAtOnce: several workers link the same files in one cache.
func TestLinkAtOnce(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links")
	}
	s, _ := start(t)
	h, err := fetch(t, s, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	list, err := h.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := os.RemoveAll(h.Dir()); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := h.Fetch(context.Background(), list, transfer.Options{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, o := range list {
			if to, err := os.Readlink(filepath.Join(h.Dir(), o.Name)); err != nil || filepath.Base(to) != o.ETag {
				t.Fatalf("%s leads to %q, %v", o.Name, to, err)
			}
		}
	}
}

// TestLayout: the cache is laid out as the Python library has it.
func TestLayout(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links")
	}
	s, _ := start(t)
	cache := t.TempDir()
	h, err := fetch(t, s, cache)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(cache, "models--org--model")
	if h.Dir() != filepath.Join(root, "snapshots", h.Commit()) {
		t.Error(h.Dir())
	}
	if ref, err := os.ReadFile(filepath.Join(root, "refs", "main")); err != nil || string(ref) != h.Commit() {
		t.Errorf("refs/main is %q, %v", ref, err)
	}
	list, _ := h.List(context.Background())
	for _, o := range list {
		up := strings.Repeat("../", 2+strings.Count(o.Name, "/"))
		if to, err := os.Readlink(filepath.Join(h.Dir(), o.Name)); err != nil || to != up+"blobs/"+o.ETag {
			t.Errorf("%s leads to %q, %v", o.Name, to, err)
		}
		if _, err := os.Stat(filepath.Join(cache, ".locks", "models--org--model", o.ETag+".lock")); err != nil {
			t.Error(err)
		}
	}
	repo, commit, ok := hubpath.Of(filepath.Join(h.Dir(), "config.json"))
	if repo != "org/model" || commit != h.Commit() || !ok {
		t.Error(repo, commit, ok)
	}
	if _, _, ok := hubpath.Of(root); ok {
		t.Error("a directory above is a snapshot")
	}
}

// TestPythonCache: files that the Python library has fetched are used, also offline.
func TestPythonCache(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links")
	}
	s, files := start(t)
	source := t.TempDir()
	h, err := fetch(t, s, source)
	if err != nil {
		t.Fatal(err)
	}
	list, _ := h.List(context.Background())
	cache := t.TempDir()
	root := filepath.Join(cache, "models--org--model")
	put(t, filepath.Join(root, "refs", "main"), h.Commit())
	for _, o := range list {
		put(t, filepath.Join(root, "blobs", o.ETag), string(files[o.Name]))
		link := filepath.Join(root, "snapshots", h.Commit(), o.Name)
		if err := os.MkdirAll(filepath.Dir(link), 0o777); err != nil {
			t.Fatal(err)
		}
		to, _ := filepath.Rel(filepath.Dir(link), filepath.Join(root, "blobs", o.ETag))
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	s.SetFaults(nil)
	if h, err = fetch(t, s, cache); err != nil {
		t.Fatal(err)
	}
	check(t, h, files)
	for _, q := range s.Requests() {
		if strings.Contains(q.Path, "/resolve/") {
			t.Errorf("%s is fetched again", q.Path)
		}
	}
}

// TestPrune: pruning removes commits without a branch, unfinished downloads, and blobs that no
// commit links.
func TestPrune(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links")
	}
	s, files := start(t)
	cache := t.TempDir()
	h, err := fetch(t, s, cache)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(cache, "models--org--model")
	old := filepath.Join(root, "snapshots", strings.Repeat("0", 40))
	put(t, filepath.Join(root, "blobs", strings.Repeat("1", 40)), "old content")
	if err := os.Mkdir(old, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../blobs/"+strings.Repeat("1", 40), filepath.Join(old, "config.json")); err != nil {
		t.Fatal(err)
	}
	busy := strings.Repeat("2", 64)
	put(t, filepath.Join(root, "blobs", busy+".gq-incomplete"), "12345")
	put(t, filepath.Join(root, "blobs", strings.Repeat("3", 64)+".incomplete"), "123")
	put(t, filepath.Join(cache, "datasets--a--b", "blobs", "x"), "another kind")
	unlock, err := transfer.Lock(context.Background(), filepath.Join(cache, ".locks", "models--org--model", busy+".lock"), func() {})
	if err != nil {
		t.Fatal(err)
	}
	list, err := hub.Scan(cache)
	if err != nil || len(list) != 1 || list[0].Repo != "org/model" || len(list[0].Revisions) != 2 || list[0].Incomplete != 8 {
		t.Fatalf("%+v, %v", list, err)
	}
	if n, err := list[0].Prune(false); err != nil || n != int64(len("old content")+3) {
		t.Errorf("%d bytes were removed, %v", n, err)
	}
	check(t, h, files)
	unlock()
	if list, err = hub.Scan(cache); err != nil || len(list[0].Revisions) != 1 || list[0].Incomplete != 5 {
		t.Fatalf("%+v, %v", list, err)
	}
	if _, err := list[0].Prune(true); err != nil {
		t.Fatal(err)
	}
	if list, err := hub.Scan(cache); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := os.Stat(filepath.Join(cache, "datasets--a--b", "blobs", "x")); err != nil {
		t.Error(err)
	}
}
