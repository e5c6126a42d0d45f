package gq

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/quantizer"
)

// TestForgottenFiles: a file that a web server had before, and has no longer, does not come from the cache.
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
	quantize := func(src, name string) []byte {
		name = filepath.Join(out, name)
		if _, err := Quantize(t.Context(), src, name, QuantizeOptions{Recipe: quantizer.Recipe{Bits: 4, Group: 32}}); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	with := quantize(s.URL, "with.gqf")
	if !bytes.Equal(with, quantize(dir, "local.gqf")) {
		t.Fatal("the file of the server's checkpoint differs from the local one's")
	}
	if err := os.Remove(template); err != nil {
		t.Fatal(err)
	}
	without := quantize(s.URL, "without.gqf")
	if bytes.Equal(with, without) || !bytes.Equal(without, quantize(dir, "local.gqf")) {
		t.Error("the chat template that the server no longer has is still in the file")
	}
}
