package testshared

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func TestRootHasGoMod(t *testing.T) {
	if _, err := os.Stat(filepath.Join(Root(t), "internal", "test", "testshared", "doc.go")); err != nil {
		t.Error(err)
	}
}

func TestDirHasDesign(t *testing.T) {
	if _, err := os.Stat(filepath.Join(Dir(t), "design.md")); err != nil {
		t.Error(err)
	}
}

// recorder stands in for a test and notes how Dir ended it.
type recorder struct {
	testing.TB
	ended string
}

func (r *recorder) Helper()               {}
func (r *recorder) Skipf(string, ...any)  { r.end("skip") }
func (r *recorder) Fatalf(string, ...any) { r.end("fatal") }
func (r *recorder) Fatal(...any)          { r.end("fatal") }

func (r *recorder) end(how string) {
	r.ended = how
	panic(r)
}

// dirIn calls Dir as a test that runs in the folder dir would.
func dirIn(t *testing.T, dir string) *recorder {
	t.Helper()
	t.Chdir(dir)
	r := &recorder{TB: t}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
		}()
		Dir(r)
	}()
	return r
}

func TestDirMissing(t *testing.T) {
	root := filepath.Join(t.TempDir(), "gq")
	if err := os.Mkdir(root, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "go.mod"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ ci, want string }{{"", "skip"}, {"true", "fatal"}} {
		t.Setenv("CI", c.ci)
		if r := dirIn(t, root); r.ended != c.want {
			t.Errorf("CI=%q: test ended by %q, want %q", c.ci, r.ended, c.want)
		}
	}
}

func TestVectorsZst(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.zst")
	if err := os.WriteFile(path, enc.EncodeAll([]byte("content"), nil), 0o666); err != nil {
		t.Fatal(err)
	}
	if got := VectorsZst(t, path); string(got) != "content" {
		t.Errorf("got %q", got)
	}
}
