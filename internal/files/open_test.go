package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func put(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	big := strings.Repeat("x", 100_000)
	for _, c := range []struct{ content, want string }{
		{"", ""},
		{"abc", "abc"},
		{big, big},
	} {
		path := put(t, filepath.Join(dir, "file"), c.content)
		b, err := Read(path, int64(len(c.content)))
		if err != nil || string(b) != c.want {
			t.Errorf("%d bytes: got %d, %v", len(c.content), len(b), err)
		}
		if c.content == "" {
			continue
		}
		_, err = Read(path, int64(len(c.content))-1)
		if _, ok := errors.AsType[*SizeError](err); !ok || !strings.Contains(err.Error(), path) {
			t.Errorf("%d bytes with a smaller limit: %v", len(c.content), err)
		}
	}
	if _, err := Read(filepath.Join(dir, "missing"), 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	_, err := Read(dir, 1)
	if e, ok := errors.AsType[*NotRegularError](err); !ok || !e.Mode.IsDir() {
		t.Errorf("a directory: %v", err)
	}
	pointer := put(t, filepath.Join(dir, "pointer"), "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n")
	if _, err := Read(pointer, 1000); err == nil || !strings.Contains(err.Error(), "git lfs pull") {
		t.Errorf("an LFS pointer: %v", err)
	}
}

// endless never ends, and says when it is read first.
type endless struct{ reads int }

func (e *endless) Read(p []byte) (int, error) {
	e.reads++
	return len(p), nil
}

func TestReadStream(t *testing.T) {
	ctx := context.Background()
	b, err := ReadStream(ctx, io.MultiReader(strings.NewReader("abc"), strings.NewReader("def")), "standard input", 6)
	if err != nil || string(b) != "abcdef" {
		t.Errorf("got %q, %v", b, err)
	}
	e := &endless{}
	_, err = ReadStream(ctx, e, "standard input", 1<<20)
	if _, ok := errors.AsType[*SizeError](err); !ok || e.reads > 100 {
		t.Errorf("an endless stream: %v after %d reads", err, e.reads)
	}
}

// TestCancelled has a stream that never gives anything: only the context ends the wait.
func TestCancelled(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(context.Background())
	waiting := make(chan struct{})
	go func() { <-waiting; cancel() }()
	_, err := ReadStream(ctx, io.MultiReader(readFunc(func([]byte) (int, error) { close(waiting); return 0, io.EOF }), r), "standard input", 10)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	path := put(t, filepath.Join(t.TempDir(), "file"), "abc")
	if _, err := ReadContext(ctx, path, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("a file after the end: %v", err)
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func TestRecognize(t *testing.T) {
	for _, c := range []struct {
		head string
		want Kind
	}{
		{"", Empty},
		{"x", Unknown},
		{"\x10\x00\x00\x00\x00\x00\x00\x00{", Safetensors},
		{"\x80\x02\x00\x00\x00\x00\x00\x00{", Safetensors}, // not a pickle
		{"\x80\x02\x8a\x00\x00\x00\x00\x00{", Safetensors},
		{"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", Pickle},
		{"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00}", Pickle},
		{"\x89GQF\r\n\x1a\n", GQF},
		{"\x09GQF", GQF},
		{"GGUF\x03\x00\x00\x00", GGUF},
		{"PK\x03\x04\x00", Zip},
		{"version https://git-lfs.github.com/spec/v1\n", LFSPointer},
		{"\r\n  <!DOCTYPE HTML>", HTML},
		{"\x1f\x8b\x08", Compressed},
		{"{\"a\": 1}", Unknown},
		{"bits: 4\n", Unknown},
	} {
		if got := Recognize([]byte(c.head)); got != c.want {
			t.Errorf("%q is %v, want %v", c.head, got, c.want)
		}
	}
}

// FuzzRecognize: no bytes are too few or too strange.
func FuzzRecognize(f *testing.F) {
	f.Add([]byte("GGUF"))
	f.Add([]byte("\x80\x02\x8a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if k := Recognize(b); k.String() == "" || k == Empty != (len(b) == 0) {
			t.Errorf("%q is %d", b, k)
		}
		if len(b) > HeadSize && Recognize(b) != Recognize(bytes.Clone(b[:HeadSize])) {
			t.Errorf("%q: bytes behind the head count", b)
		}
	})
}
