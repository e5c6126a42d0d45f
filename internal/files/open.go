package files

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/internal/atomicfile"
)

// Open opens the regular file at path for reading; symbolic links are followed. Open never waits:
// named pipes and devices are refused. Errors are *fs.PathError.
func Open(path string) (*os.File, fs.FileInfo, error) {
	// Check before opening: opening some devices has effects.
	st, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if err := checkRegular(path, st); err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, nil, err
	}
	// Check again after opening: the path may lead elsewhere by now.
	if st, err = f.Stat(); err == nil {
		err = checkRegular(path, st)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, st, nil
}

func checkRegular(path string, st fs.FileInfo) error {
	if st.Mode().IsRegular() {
		return nil
	}
	e := &NotRegularError{Mode: st.Mode()}
	if inside, _ := filepath.Glob(filepath.Join(path, "*.g[qg]*f")); len(inside) > 0 && st.IsDir() {
		e.Inside = inside[0]
	}
	return &fs.PathError{Op: "open", Path: path, Err: e}
}

type NotRegularError struct {
	Mode   fs.FileMode
	Inside string // a model in a directory; "": none
}

func (e *NotRegularError) Error() string {
	what := "a special file"
	switch {
	case e.Inside != "":
		return "is a directory: name a file in it, such as " + e.Inside
	case e.Mode.IsDir():
		return "is a directory, not a file"
	case e.Mode&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case e.Mode&fs.ModeSocket != 0:
		what = "a socket"
	case e.Mode&fs.ModeDevice != 0:
		what = "a device"
	}
	return "is " + what + ", not a regular file: save its content to a file and name that one"
}

type SizeError struct {
	Limit int64 // in bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("is larger than the limit of %d bytes", e.Limit)
}

// Read returns the content, of at most limit bytes, of the regular file at path. A Git LFS pointer
// is refused: its content is elsewhere. Errors are *fs.PathError.
func Read(path string, limit int64) ([]byte, error) {
	return ReadContext(context.Background(), path, limit)
}

// ReadContext is Read, and returns an error that wraps ctx.Err() as soon as ctx is done.
func ReadContext(ctx context.Context, path string, limit int64) ([]byte, error) {
	f, st, err := Open(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > limit {
		f.Close()
		return nil, &fs.PathError{Op: "read", Path: path, Err: &SizeError{limit}}
	}
	// The size is a hint only: files of /proc have none.
	b, err := Await(ctx, func() ([]byte, error) {
		defer f.Close()
		return readAll(ctx, f, st.Size(), limit)
	})
	if err == nil && Recognize(b) == LFSPointer {
		err = errors.New("is " + LFSPointer.String() + ": " + LFSPointer.Advice(path))
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: atomicfile.Cause(err)}
	}
	return b, nil
}

// ReadStream reads r to its end, at most limit bytes; name names r in errors. ReadStream returns as
// soon as ctx is done. A read that is still waiting then consumes later input.
func ReadStream(ctx context.Context, r io.Reader, name string, limit int64) ([]byte, error) {
	b, err := Await(ctx, func() ([]byte, error) { return readAll(ctx, r, 0, limit) })
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: atomicfile.Cause(err)}
	}
	return b, nil
}

// Await returns the result of read, or the error of ctx once ctx is done, without ending read.
func Await[T any](ctx context.Context, read func() (T, error)) (v T, err error) {
	if err := ctx.Err(); err != nil {
		return v, err
	}
	if ctx.Done() == nil {
		return read()
	}
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := read()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return v, ctx.Err()
	}
}

func readAll(ctx context.Context, r io.Reader, size, limit int64) ([]byte, error) {
	b := make([]byte, 0, max(size, 511)+1) // room for the read that finds the end
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		const piece = 8 << 20 // between two looks at ctx
		n, err := r.Read(b[len(b):min(cap(b), len(b)+piece)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return nil, &SizeError{limit}
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		case len(b) == cap(b):
			b = append(b, 0)[:len(b)]
		}
	}
}

// Limits in bytes of the files that are read into memory, so that a mistaken path does not fill the
// memory. Each is several times the size of the largest known file of its kind.
const (
	MaxModelFile = 64 << 20 // config.json, tokenizer.json (33 MB with Gemma 3), chat templates
	MaxText      = 1 << 30  // texts and token ids
	MaxImatrix   = 4 << 30  // importance matrices (1 GB with 671B parameters)
	MaxReport    = 1 << 30  // reports of gq accuracy
	MaxFold      = 1 << 30  // records of a folded checkpoint: 12 bytes or so a column
	MaxYAML      = 4 << 20  // recipes and gates: 38,000 rules (250 MB while parsing)
)

// A Kind is a kind of file, recognized by its first bytes.
type Kind int

// The kinds that Recognize knows.
const (
	Unknown Kind = iota
	Empty
	Safetensors
	GQF
	GGUF
	Zip
	Pickle
	LFSPointer
	HTML
	Compressed
)

// kinds has the name of each kind with its article, and the advice if given as a checkpoint.
var kinds = [...]struct{ name, advice string }{
	Unknown:     {"an unknown file", ""},
	Empty:       {"an empty file", "copy or download it again"},
	Safetensors: {"a safetensors file", ""},
	GQF:         {"a .gqf file", "it is quantized already: name the checkpoint that it was made of"},
	GGUF:        {"a GGUF file", "name the safetensors checkpoint that it was made of"},
	Zip:         {"a zip archive (as PyTorch's .bin, .pt and .pth files are)", "convert it to safetensors: load it in Python, write it with safetensors.torch.save_file"},
	Pickle:      {"a Python pickle (as PyTorch's old .bin, .pt and .pth files are)", "convert it to safetensors: load it in Python, write it with safetensors.torch.save_file"},
	LFSPointer:  {"a Git LFS pointer without its content", "run git lfs pull in its directory"},
	HTML:        {"an HTML page", "download the file itself"},
	Compressed:  {"a compressed file", "decompress it"},
}

func (k Kind) String() string { return kinds[k].name }

// Advice says what to do if the file at path is given as a safetensors checkpoint, or is "".
func (k Kind) Advice(path string) string {
	return cmp.Or(k.Rename(path), kinds[k].advice)
}

// Rename says how to rename the file at path, of kind k, if a GGUF file has the ending of another
// format: commands would take the file with the ending .gguf. Else Rename returns "".
func (k Kind) Rename(path string) string {
	ext := filepath.Ext(path)
	if k != GGUF || !strings.EqualFold(ext, ".gqf") && !strings.EqualFold(ext, ".safetensors") {
		return ""
	}
	return "rename it to " + strings.TrimSuffix(filepath.Base(path), ext) + ".gguf, because commands go by the ending"
}

// HeadSize is the number of bytes that Recognize needs.
const HeadSize = 512

// Recognize returns the kind of a file from its first HeadSize bytes, or from a whole shorter file.
func Recognize(head []byte) Kind {
	head = head[:min(len(head), HeadSize)]
	has := func(prefixes ...string) bool {
		for _, p := range prefixes {
			if bytes.HasPrefix(head, []byte(p)) {
				return true
			}
		}
		return false
	}
	text := bytes.ToLower(bytes.TrimLeft(head, "\xef\xbb\xbf \t\r\n"))
	switch {
	case len(head) == 0:
		return Empty
	// This case must come first: a header of 640 bytes begins like a pickle of protocol 2.
	case len(head) > 8 && head[8] == '{' && binary.LittleEndian.Uint64(head) < 1<<32:
		return Safetensors
	case len(head) >= 4 && string(head[1:4]) == "GQF":
		return GQF
	case has("GGUF"):
		return GGUF
	case has("PK\x03\x04", "PK\x05\x06"):
		return Zip
	case len(head) > 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 && bytes.IndexByte([]byte("}](c\x8a\x95X\x8c"), head[2]) >= 0:
		return Pickle
	case has("version https://git-lfs.github.com/spec/"):
		return LFSPointer
	case bytes.HasPrefix(text, []byte("<!doctype html")), bytes.HasPrefix(text, []byte("<html")):
		return HTML
	case has("\x1f\x8b", "\x28\xb5\x2f\xfd", "BZh", "\xfd7zXZ\x00", "7z\xbc\xaf\x27\x1c"):
		return Compressed
	}
	return Unknown
}

func KindOf(path string) (Kind, error) {
	f, _, err := Open(path)
	if err != nil {
		return Unknown, err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, HeadSize))
	if err != nil {
		return Unknown, err
	}
	return Recognize(head), nil
}
