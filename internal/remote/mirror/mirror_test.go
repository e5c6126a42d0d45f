package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/mirror"
	"github.com/lowbit-go/gq/internal/remote/transfer"
	"github.com/lowbit-go/gq/internal/remote/web"
	"github.com/lowbit-go/gq/internal/testremote"
)

// fetch mirrors two files of a web server, of which one more does not exist.
func fetch(t *testing.T, url string) (*mirror.Mirror, error) {
	t.Helper()
	l, err := remote.Parse(url + "?Signature=" + testremote.Signature)
	if err != nil {
		t.Fatal(err)
	}
	client := remote.NewClient()
	client.Sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	s := web.Open(l, client)
	refused, err := s.Add(context.Background(), "a.json", "b c.safetensors", "none.json")
	if err != nil {
		return nil, err
	}
	m, err := mirror.Of(s, l.String())
	if err != nil {
		t.Fatal(err)
	}
	list, err := m.List(context.Background())
	if err != nil {
		return nil, err
	}
	if len(list) != 2 {
		if refused == nil {
			return nil, errors.New("127.0.0.1: files are missing without a reason")
		}
		return nil, refused
	}
	return m, m.Fetch(context.Background(), list, transfer.Options{})
}

func start(t *testing.T) (s *testremote.Server, url string, files map[string][]byte) {
	t.Helper()
	files = map[string][]byte{"a.json": []byte("{}"), "b c.safetensors": bytes.Repeat([]byte("12345"), 300_000)}
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	s = testremote.Start(t)
	return s, s.AddPlain(t, "model", dir), files
}

func check(t *testing.T, m *mirror.Mirror, files map[string][]byte) {
	t.Helper()
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(m.Dir(), name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, or others: %v", name, len(got), err)
		}
	}
}

// TestFaults: each fault at each request gives the same files, or an error without the signature, after
// which the same call succeeds. A flipped bit stays, because a web server states no hash.
func TestFaults(t *testing.T) {
	s, url, files := start(t)
	cache := func() {
		dir := t.TempDir()
		t.Setenv("XDG_CACHE_HOME", dir)
		t.Setenv("HOME", dir)
		t.Setenv("LocalAppData", dir)
	}
	cache()
	s.SetFaults(nil)
	if _, err := fetch(t, url); err != nil {
		t.Fatal(err)
	}
	requests := len(s.Requests())
	for _, fault := range testremote.Faults() {
		if fault == testremote.Flipped || fault == testremote.OtherCommit {
			continue
		}
		for n := 1; n <= requests; n++ {
			cache()
			s.SetFaults(map[int]testremote.Fault{n: fault})
			m, err := fetch(t, url)
			if err != nil {
				if text := err.Error(); strings.Contains(text, testremote.Signature) || !strings.Contains(text, "127.0.0.1") {
					t.Errorf("%v at request %d: the error is not fit to print: %s", fault, n, text)
				}
				s.SetFaults(nil)
				if m, err = fetch(t, url); err != nil {
					t.Fatalf("%v at request %d: the second call: %v", fault, n, err)
				}
			}
			check(t, m, files)
		}
	}
}

// TestChanged: a file with another ETag is fetched again, others are not. Scan lists the mirror.
func TestChanged(t *testing.T) {
	s, url, files := start(t)
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv("HOME", dir)
	t.Setenv("LocalAppData", dir)
	if _, err := fetch(t, url); err != nil {
		t.Fatal(err)
	}
	files["a.json"] = []byte("[]")
	changed := t.TempDir()
	if err := os.WriteFile(filepath.Join(changed, "a.json"), files["a.json"], 0o666); err != nil {
		t.Fatal(err)
	}
	s.AddPlain(t, "model", changed)
	s.SetFaults(nil)
	m, err := fetch(t, url)
	if err != nil {
		t.Fatal(err)
	}
	check(t, m, files)
	whole := 0
	for _, q := range s.Requests() {
		if q.Header.Get("Range") != "bytes=0-0" {
			whole++
		}
	}
	if whole != 1 {
		t.Errorf("%d files were fetched again, 1 was changed", whole)
	}
	list, err := mirror.Scan()
	if err != nil || len(list) != 1 || list[0].Location != url || list[0].Path != m.Dir() || list[0].Bytes < 1_500_000 {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := list[0].Remove(); err != nil {
		t.Fatal(err)
	}
	if list, err := mirror.Scan(); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}
