package gq

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/quantizer"
)

// TestForgottenFiles: a file that a web server had before, and has no longer, does not come from
// the cache.
func TestForgottenFiles(t *testing.T) {
	dir, cache, out := t.TempDir(), t.TempDir(), t.TempDir()
	for name, value := range map[string]string{"XDG_CACHE_HOME": cache, "HOME": cache, "LocalAppData": cache} {
		t.Setenv(name, value)
	}
	if err := os.CopyFS(dir, os.DirFS("testdata/books1.3M-bf16")); err != nil {
		t.Fatal(err)
	}
	template := filepath.Join(dir, "chat_template.jinja")
	if err := os.WriteFile(template, []byte("{{ messages[0].content }}"), 0o666); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer s.Close()
	hasTemplate := func() bool {
		name := filepath.Join(out, "model.gqf")
		if _, err := Quantize(t.Context(), s.URL, name, QuantizeOptions{Recipe: quantizer.Recipe{Bits: 4, Group: new(32)}}); err != nil {
			t.Fatal(err)
		}
		f, err := gqf.Open(name, gqf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return f.HasAsset("chat_template.jinja")
	}
	if !hasTemplate() {
		t.Fatal("the server's chat template is not in the file")
	}
	if err := os.Remove(template); err != nil {
		t.Fatal(err)
	}
	if hasTemplate() {
		t.Error("the chat template that the server no longer has is still in the file")
	}
}
