package hub_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/hub"
	"github.com/lowbit-go/gq/internal/remote/transfer"
	"github.com/lowbit-go/gq/internal/test/testremote"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

const token = "hf_TOKEN-that-nobody-must-see"

// content has a small file in Git, an LFS file of one chunk and one of two.
func content() map[string][]byte {
	r := rand.NewChaCha8([32]byte{1})
	random := func(n int) []byte {
		b := make([]byte, n)
		_, _ = r.Read(b) // never fails
		return b
	}
	return map[string][]byte{
		"config.json": []byte(`{"model_type":"x"}`), "empty.txt": nil, "model.safetensors": random(1<<20 + 5), "sub dir/ü %.safetensors": random(1000),
	}
}

func start(t testing.TB) (*testremote.Server, map[string][]byte) {
	t.Helper()
	s, files := testremote.Start(t), content()
	r := &testremote.Repo{Name: "org/model", Commit: strings.Repeat("a1", 20), Files: map[string]*testremote.File{}, Refs: map[string]string{}, Private: true}
	r.Refs["main"], r.Refs["refs/pr/1"], r.Refs["a/branch"] = r.Commit, r.Commit, r.Commit
	for name, data := range files {
		r.Add(name, data, strings.HasSuffix(name, ".safetensors"))
	}
	s.AddRepository(r)
	s.Token = token
	t.Setenv("HF_TOKEN", token)
	return s, files
}

// open opens the repository with an empty cache and without waits.
func open(t testing.TB, s *testremote.Server, name, cache string) (*hub.Store, error) {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := remote.Parse("hf://" + name)
	if err != nil {
		t.Fatal(err)
	}
	client := remote.NewClient()
	client.Sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	return hub.Open(context.Background(), l, hub.Settings{Endpoint: u, Cache: cache}, client)
}

// fetch fetches all files into a cache.
func fetch(t testing.TB, s *testremote.Server, cache string) (*hub.Store, error) {
	t.Helper()
	h, err := open(t, s, "org/model", cache)
	if err != nil {
		return nil, err
	}
	list, err := h.List(context.Background())
	if err != nil {
		return nil, err
	}
	return h, h.Fetch(context.Background(), list, transfer.Options{})
}

// check compares the snapshot with the original files.
func check(t *testing.T, h *hub.Store, files map[string][]byte) {
	t.Helper()
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(h.Dir(), name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of %d, or others: %v", name, len(got), len(want), err)
		}
	}
}

// secret reports whether a text has a credential.
func secret(s string) bool {
	return strings.Contains(s, token) || strings.Contains(s, testremote.Signature)
}

// checkRequests looks for credentials where they do not belong.
func checkRequests(t *testing.T, s *testremote.Server) {
	t.Helper()
	for _, q := range s.Requests() {
		if got := q.Header.Get("Authorization"); q.Server == "hub" && got != "Bearer "+token || q.Server == "cdn" && got != "" {
			t.Errorf("%s %s: Authorization %q", q.Server, q.Path, got)
		}
		if q.Header.Get("Referer") != "" {
			t.Errorf("%s: a Referer is sent", q.Path)
		}
	}
}

// TestFaults: each fault at each request gives the same files, or one error without a secret, after
// which the same call succeeds.
func TestFaults(t *testing.T) {
	testshared.SlowEmulated(t, "faults are met by the same code natively")
	s, files := start(t)
	if _, err := fetch(t, s, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	requests := len(s.Requests())
	for _, fault := range testremote.Faults() {
		t.Run(fault.String(), func(t *testing.T) {
			failed := 0
			for n := 1; n <= requests; n++ {
				cache := t.TempDir()
				s.SetFaults(map[int]testremote.Fault{n: fault})
				h, err := fetch(t, s, cache)
				checkRequests(t, s)
				if err != nil {
					failed++
					if secret(err.Error()) || strings.Contains(err.Error(), "\n") {
						t.Errorf("request %d: the error is not fit to print: %q", n, err)
					}
					s.SetFaults(nil)
					if h, err = fetch(t, s, cache); err != nil {
						t.Fatalf("request %d: the second call: %v", n, err)
					}
				}
				check(t, h, files)
			}
			t.Logf("%d of %d requests ended the call", failed, requests)
			passing := map[testremote.Fault]bool{
				testremote.Reset: true, testremote.TooMany: true, testremote.ServerError: true, testremote.Unavailable: true, testremote.ShortBody: true, testremote.WrongRange: true,
			}
			if passing[fault] && failed > 0 {
				t.Errorf("%d calls failed although the fault passes", failed)
			}
		})
	}
}

// TestAlways: a fault at every request is one error that names the place.
func TestAlways(t *testing.T) {
	s, _ := start(t)
	for _, fault := range testremote.Faults() {
		all := map[int]testremote.Fault{}
		for n := range 1000 {
			all[n+1] = fault
		}
		s.SetFaults(all)
		_, err := fetch(t, s, t.TempDir())
		if err == nil {
			t.Errorf("%v: no error", fault)
			continue
		}
		t.Log(fault, err)
		if secret(err.Error()) || !strings.Contains(err.Error(), "org/model") && !strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%v: %q", fault, err)
		}
	}
}

// TestSignatures: addresses of the content network expire while files are read.
func TestSignatures(t *testing.T) {
	s, files := start(t)
	s.SetSignatureUses(1)
	h, err := fetch(t, s, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	check(t, h, files)
	checkRequests(t, s)
}

// TestReadAt reads ranges without the cache.
func TestReadAt(t *testing.T) {
	s, files := start(t)
	h, err := open(t, s, "org/model@refs/pr/1", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	list, err := h.List(context.Background())
	if err != nil || len(list) != len(files) {
		t.Fatal(list, err)
	}
	for _, o := range list {
		want := files[o.Name]
		if o.Size != int64(len(want)) || o.SHA256 != "" && o.SHA256 != fmt.Sprintf("%x", sha256.Sum256(want)) {
			t.Errorf("%+v", o)
		}
		for _, r := range [][2]int{{0, 0}, {0, len(want)}, {0, min(1, len(want))}, {len(want) / 2, len(want) - len(want)/2}, {len(want), 0}} {
			got := make([]byte, r[1])
			if err := h.ReadAt(context.Background(), o, got, int64(r[0])); err != nil || !bytes.Equal(got, want[r[0]:r[0]+r[1]]) {
				t.Errorf("%s: %d bytes at %d: %v", o.Name, r[1], r[0], err)
			}
		}
		if err := h.ReadAt(context.Background(), o, make([]byte, 2), o.Size-1); err == nil {
			t.Errorf("%s: a range beyond the end", o.Name)
		}
	}
}

// TestRefused: errors say what to do.
func TestRefused(t *testing.T) {
	s, _ := start(t)
	gated := &testremote.Repo{Name: "org/gated", Commit: strings.Repeat("b2", 20), Refs: map[string]string{"main": strings.Repeat("b2", 20)}, Gated: true, Files: map[string]*testremote.File{}}
	gated.Add("config.json", []byte("{}"), false)
	s.AddRepository(gated)
	for _, c := range []struct{ name, token, want string }{
		{"org/none", token, "HF_TOKEN"},
		{"org/model", "", "or it is private"},
		{"org/model", "hf_EXPIRED", "renew it"},
		{"org/model@none", token, "no revision \"none\""},
		{"org/model@" + strings.Repeat("0", 40), token, "no revision"},
		{"org/model/none.safetensors", token, "no such file"},
		{"org/gated", "", "accept its licence at " + s.URL + "/org/gated"},
	} {
		t.Setenv("HF_TOKEN", c.token)
		h, err := open(t, s, c.name, t.TempDir())
		if err == nil {
			var list []remote.Object
			if list, err = h.List(context.Background()); err == nil {
				err = h.Fetch(context.Background(), list, transfer.Options{})
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || secret(err.Error()) || c.token != "" && strings.Contains(err.Error(), c.token) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
