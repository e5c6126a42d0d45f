package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/mirror"
	"github.com/lowbit-go/gq/internal/remote/transfer"
	"github.com/lowbit-go/gq/internal/remote/web"
	"github.com/lowbit-go/gq/internal/test/testremote"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// fetch mirrors two files of a web server, and asks for a third, which does not exist.
func fetch(t *testing.T, url string) (*mirror.Mirror, error) {
	t.Helper()
	return fetchQuery(t, url, "")
}

// fetchQuery is fetch with more parameters of the query.
func fetchQuery(t *testing.T, url, query string) (*mirror.Mirror, error) {
	t.Helper()
	l, err := remote.Parse(url + "?Signature=" + testremote.Signature + query)
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
	m, err := mirror.Of(s, l)
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

// newCache makes an empty cache, and returns its directory.
func newCache(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"XDG_CACHE_HOME", "HOME", "LocalAppData"} {
		t.Setenv(name, dir)
	}
	return dir
}

// TestFaults: each fault at each request gives the same files, or an error without the signature,
// after which the same call succeeds. A flipped bit stays, because a web server states no hash.
func TestFaults(t *testing.T) {
	testshared.SlowEmulated(t, "faults are met by the same code natively")
	s, url, files := start(t)
	newCache(t)
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
			newCache(t)
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
	newCache(t)
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

// TestModified: a file of the same size with another time is fetched again from a server without
// ETags, and so is an unfinished download.
func TestModified(t *testing.T) {
	newCache(t)
	dir := t.TempDir()
	var requests atomic.Int32
	handler := http.FileServer(http.Dir(dir))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "bytes=0-0" {
			requests.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	defer s.Close()
	files := map[string][]byte{}
	put := func(name, content string, seconds int64) {
		t.Helper()
		files[name] = []byte(content)
		path, at := filepath.Join(dir, name), time.Unix(1e9+seconds, 0)
		if err := errors.Join(os.WriteFile(path, files[name], 0o666), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	put("a.json", "{}", 0)
	put("b c.safetensors", "12345", 0)
	for i, want := range []int32{2, 0, 1, 0} {
		if i == 2 {
			put("a.json", "[]", 1)
		}
		requests.Store(0)
		m, err := fetch(t, s.URL)
		if err != nil {
			t.Fatal(err)
		}
		check(t, m, files)
		if n := requests.Load(); n != want {
			t.Errorf("call %d: %d requests for contents, want %d", i, n, want)
		}
	}
}

// TestQuery: parameters of the query that may choose the content have a mirror each, renewed
// credentials do not, and no file of the cache holds a query.
func TestQuery(t *testing.T) {
	_, url, _ := start(t)
	cache := newCache(t)
	const secret = "SECRET-of-the-query"
	dirs := map[string]string{}
	for _, c := range []struct{ query, same string }{
		{"", ""}, {"&v=1", "&v=1"}, {"&v=2", "&v=2"}, {"&X-Amz-Date=1&v=1", "&v=1"}, {"&v=1&X-Amz-Date=2&token=" + secret, "&v=1"}, {"&Expires=1", ""},
		{"&unknown=" + secret, "&unknown=" + secret},
	} {
		m, err := fetchQuery(t, url, c.query)
		if err != nil {
			t.Fatal(err)
		}
		if dirs[c.same] == "" {
			dirs[c.same] = m.Dir()
		}
		if m.Dir() != dirs[c.same] {
			t.Errorf("%s has another mirror than %s", c.query, c.same)
		}
	}
	distinct := map[string]bool{}
	for _, dir := range dirs {
		distinct[dir] = true
	}
	if len(distinct) != 4 {
		t.Errorf("%d mirrors: %v", len(distinct), dirs)
	}
	err := filepath.WalkDir(cache, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if text := path + string(data); strings.Contains(text, secret) || strings.Contains(text, testremote.Signature) {
			t.Errorf("%s holds a query", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestForget: a file that has left the server is removed from the cache, also if a killed job wrote
// no note for it.
func TestForget(t *testing.T) {
	_, url, files := start(t)
	newCache(t)
	m, err := fetch(t, url)
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"a.json", ".a.json.gq-object", "a.json.gq-incomplete", "a.json.gq-ranges"} {
		path := filepath.Join(m.Dir(), left)
		if err := os.WriteFile(path, []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
		if left != ".a.json.gq-object" {
			_ = os.Remove(filepath.Join(m.Dir(), ".a.json.gq-object"))
		}
		if err := m.Forget(context.Background(), func(name string) bool { return name == "a.json" }); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(m.Dir())
		if err != nil || len(entries) != 2 {
			t.Errorf("after %s: %v, %v", left, entries, err)
		}
	}
	delete(files, "a.json")
	check(t, m, files)
}
