package gq

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServeAddress: the server listens where it was told to, and nowhere else.
func TestServeAddress(t *testing.T) {
	done := errors.New("done")
	for host, want := range map[string]string{"": "http://127.0.0.1:", "localhost": "http://127.0.0.1:", "127.0.0.2": "http://127.0.0.2:", "0.0.0.0": "http://0.0.0.0:"} {
		o := ServeOptions{Models: []ServeModel{{Path: books}}, Host: host, Ready: func(r ServeReport) error {
			if !strings.HasPrefix(r.URL, want) {
				t.Errorf("host %q: %s", host, r.URL)
			}
			return done
		}}
		if host == "0.0.0.0" {
			o.APIKey = []byte("0123456789abcdef")
		}
		if err := Serve(t.Context(), o); !errors.Is(err, done) {
			t.Errorf("host %q: %v", host, err)
		}
	}
	for host, option := range map[string]string{"0.0.0.0": "host", "::": "host", "192.0.2.1": "host", "::ffff:192.0.2.1": "host", "example.org": "host"} {
		err := Serve(t.Context(), ServeOptions{Models: []ServeModel{{Path: books}}, Host: host})
		if e, ok := errors.AsType[*OptionError](err); !ok || e.Option != option {
			t.Errorf("host %q: %v", host, err)
		}
	}
	for _, key := range []string{"", "short", "0123456789 abcdef", "0123456789abcdéf"} {
		err := Serve(t.Context(), ServeOptions{Models: []ServeModel{{Path: books}}, APIKey: []byte(key)})
		if e, ok := errors.AsType[*OptionError](err); !ok || e.Option != "api-key-file" {
			t.Errorf("key %q: %v", key, err)
		}
	}
}

// TestServeOpen: a model that cannot be served is an error that names it.
func TestServeOpen(t *testing.T) {
	template := t.TempDir()
	if err := os.CopyFS(template, os.DirFS(books)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(template, "chat_template.jinja"), []byte("{% if %}"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		model             string
		context, parallel int
		want              string
	}{
		{books, 1 << 30, 0, "context"},
		{books, 0, 1 << 30, "parallel"},
		{template, 0, 0, "chat template in chat_template.jinja"},
	} {
		o := ServeOptions{Models: []ServeModel{{Path: c.model}}, Context: c.context, Parallel: c.parallel}
		if err := Serve(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), c.model) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, context %d, parallel %d: %v", c.model, c.context, c.parallel, err)
		}
	}
}
