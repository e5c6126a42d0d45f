package cluster

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForgottenFiles: a small file that has left the bucket is used no longer, although it was in
// the cache.
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
	// hasTemplate quantizes the checkpoint in the bucket. It reports whether the template is in the
	// file.
	hasTemplate := func() bool {
		t.Helper()
		c := s.command("quantize", "s3://bucket/books", "--bits", "4", "--group", "32", "-q", "-o", filepath.Join(home, "model.gqf"))
		c.Env = append(c.Env, "XDG_CACHE_HOME="+filepath.Join(home, "cache"))
		if out, err := output(t, c); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		out, err := s.run("inspect", "--json", filepath.Join(home, "model.gqf"))
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.Contains(out, `"chat_template.jinja"`)
	}
	if !hasTemplate() {
		t.Fatal("the bucket's chat template is not in the file")
	}
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
	if hasTemplate() {
		t.Error("the chat template that the bucket no longer has is still in the file")
	}
	if _, err := os.Stat(cached[0]); err == nil {
		t.Error("the chat template is still in the cache")
	}
}
