package gqf

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForeign opens files of other formats.
func TestForeign(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for _, c := range []struct{ head, want string }{
		{"", "this is an empty file, not a .gqf file: copy or download it again"},
		{"GGUF\x03\x00\x00\x00", "this is a GGUF file, not a .gqf file"},
		{"PK\x03\x04", "zip archive"},
		{"\x80\x02}q", "Python pickle"},
		{"\x02\x00\x00\x00\x00\x00\x00\x00{}", "this is a safetensors file"},
		{"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
		{"{\"a\": 12}", `a file that begins with "{\"a\": 12", not a .gqf`},
	} {
		for _, tail := range []int{0, 1000} {
			if c.head == "" && tail > 0 {
				continue
			}
			if err := os.WriteFile(path, append([]byte(c.head), make([]byte, tail)...), 0o666); err != nil {
				t.Fatal(err)
			}
			_, err := Open(path, Options{})
			if e, ok := errors.AsType[*ForeignError](err); !ok || e.File != path {
				t.Fatalf("%q: %T %v", c.head, err, err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q: %v, want %q", c.head, err, c.want)
			}
		}
	}
}
