package repository

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReplace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(file, []byte("a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n<!-- begin y -->\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Replace(file, "x", "new\n"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if want := "a\n<!-- begin x -->\nnew\n<!-- end x -->\nb\n<!-- begin y -->\n"; err != nil || string(got) != want {
		t.Errorf("%v, %q instead of %q", err, got, want)
	}
	if got, err := Section(file, "x"); err != nil || got != "new\n" {
		t.Errorf("%v, %q between the comments", err, got)
	}
	for _, name := range []string{"y", "z"} {
		if _, err := Section(file, name); err == nil {
			t.Errorf("%s: no error", name)
		}
		if err := Replace(file, name, ""); err == nil || !strings.Contains(err.Error(), "<!-- end "+name+" -->") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
