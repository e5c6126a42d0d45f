package cluster

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForgottenFiles: a small file that has left the bucket is used no longer, although it was in the cache.
func TestForgottenFiles(t *testing.T) {
	s := newStore(t)
	entries, err := os.ReadDir(model)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(model, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		s.put("books/"+e.Name(), b)
	}
	s.put("books/chat_template.jinja", []byte("{{ messages[0].content }}"))
	home := t.TempDir()
	quantize := func(name string) []byte {
		t.Helper()
		c := s.command("quantize", "s3://bucket/books", "--bits", "4", "--group", "32", "-q", "-o", filepath.Join(home, name))
		c.Env = append(c.Env, "XDG_CACHE_HOME="+filepath.Join(home, "cache"))
		if out, err := output(t, c); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		b, err := os.ReadFile(filepath.Join(home, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	quantize("with.gqf")
	cached, err := filepath.Glob(filepath.Join(home, "cache", "gq", "sources", "*", "books", "chat_template.jinja"))
	if err != nil || len(cached) != 1 {
		t.Fatalf("the chat template is not in the cache: %v, %v", cached, err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, s.url+"/"+bucket+"/books/chat_template.jinja", strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil || a.StatusCode/100 != 2 {
		t.Fatalf("%v, %v", a, err)
	}
	a.Body.Close()
	if want := local(t, "local.gqf", "quantize", model, "--bits", "4", "--group", "32", "-q"); !bytes.Equal(quantize("without.gqf"), want) {
		t.Error("the chat template that the bucket no longer has is still in the file")
	}
	if _, err := os.Stat(cached[0]); err == nil {
		t.Error("the chat template is still in the cache")
	}
}
