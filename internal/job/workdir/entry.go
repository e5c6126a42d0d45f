package workdir

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/files"
)

const magic = "gqwork1\n"

const (
	headerSize  = len(magic) + sha256.Size + 8
	trailerSize = sha256.Size
)

type Entry struct {
	*io.SectionReader
	file *os.File
}

func (e *Entry) Close() error { return e.file.Close() }

func (d *Dir) entryPath(name string) string { return filepath.Join(d.path, name+entrySuffix) }

func header(name, key string, size int64) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q", name, key)
	b := h.Sum([]byte(magic))
	return binary.LittleEndian.AppendUint64(b, uint64(size))
}

// writer writes and hashes a file from its beginning to its end.
type writer struct {
	file *atomicfile.File
	sum  hash.Hash
	at   int64
}

func (w *writer) Write(p []byte) (int, error) {
	n, err := w.file.WriteAt(p, w.at)
	w.sum.Write(p[:n])
	w.at += int64(n)
	return n, err
}

// Put writes an entry of size bytes and replaces the entry of the same name.
func (d *Dir) Put(name, key string, size int64, write func(w io.Writer) error) error {
	if d == nil {
		return nil
	}
	f, err := atomicfile.Create(d.entryPath(name))
	if err != nil {
		return err
	}
	defer f.Abort()
	w := &writer{file: f, sum: sha256.New()}
	b := bufio.NewWriterSize(w, 1<<18)
	_, _ = b.Write(header(name, key, size)) // Flush returns its error
	if err := write(b); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return err
	}
	if n := w.at - int64(headerSize); n != size {
		return fmt.Errorf("entry %s: %d bytes were announced, %d written", name, size, n)
	}
	if _, err := w.Write(w.sum.Sum(nil)); err != nil {
		return err
	}
	return f.Commit()
}

// Get opens and verifies an entry; nil if the entry is missing or damaged or has another key.
func (d *Dir) Get(name, key string) *Entry {
	if d == nil {
		return nil
	}
	f, st, err := files.Open(d.entryPath(name))
	if err != nil {
		return nil
	}
	size, ok := verify(f, st.Size(), name, key)
	if !ok {
		f.Close()
		return nil
	}
	return &Entry{io.NewSectionReader(f, int64(headerSize), size), f}
}

// verify reads an entry's file to its end and returns the size of the content.
func verify(f *os.File, fileSize int64, name, key string) (size int64, ok bool) {
	size = fileSize - int64(headerSize+trailerSize)
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(f, head); err != nil || size < 0 || !bytes.Equal(head, header(name, key, size)) {
		return 0, false
	}
	h := sha256.New()
	h.Write(head)
	if n, err := io.Copy(h, io.LimitReader(f, size)); err != nil || n != size {
		return 0, false
	}
	tail := make([]byte, trailerSize)
	if _, err := io.ReadFull(f, tail); err != nil {
		return 0, false
	}
	return size, bytes.Equal(tail, h.Sum(nil))
}

// PutIndexed is Put for size bytes behind an index: the length of v as JSON, then v.
func (d *Dir) PutIndexed(name, key string, v any, size int64, write func(w io.Writer) error) error {
	if d == nil {
		return nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return d.Put(name, key, 8+int64(len(raw))+size, func(w io.Writer) error {
		if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(raw))), raw...)); err != nil {
			return err
		}
		return write(w)
	})
}

// Index reads the index of an entry into v. The rest of the entry begins at base.
func (e *Entry) Index(v any) (base int64, err error) {
	var n uint64
	if err := binary.Read(e, binary.LittleEndian, &n); err != nil {
		return 0, err
	}
	if n > uint64(e.Size()-8) {
		return 0, fmt.Errorf("an index of %d bytes in %d bytes", n, e.Size())
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(e, raw); err != nil {
		return 0, err
	}
	return 8 + int64(n), json.Unmarshal(raw, v)
}

// PutJSON writes an entry with v as JSON.
func (d *Dir) PutJSON(name, key string, v any) error {
	return d.PutIndexed(name, key, v, 0, func(io.Writer) error { return nil })
}

// GetJSON reads an entry of PutJSON into v, and returns false if Get returns nil.
func (d *Dir) GetJSON(name, key string, v any) bool {
	e := d.Get(name, key)
	if e == nil {
		return false
	}
	defer e.Close()
	_, err := e.Index(v)
	return err == nil
}

func (d *Dir) Delete(name string) error {
	if d == nil {
		return nil
	}
	err := os.Remove(d.entryPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Prune removes the entries with other keys that begin with prefix.
func (d *Dir) Prune(prefix, key string) error {
	if d == nil {
		return nil
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), entrySuffix)
		if !ok || !strings.HasPrefix(name, prefix) || d.ofKey(name, key) {
			continue
		}
		if err := d.Delete(name); err != nil {
			return err
		}
	}
	return nil
}

// ofKey reports whether an entry's header names the key. The content is not verified.
func (d *Dir) ofKey(name, key string) bool {
	f, _, err := files.Open(d.entryPath(name))
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, headerSize-8)
	_, err = io.ReadFull(f, head)
	return err == nil && bytes.Equal(head, header(name, key, 0)[:len(head)])
}

// Key is the hash of everything that an entry's content depends on: parts, as JSON, and the build
// of gq, because another version may make other content from the same parts.
func Key(parts ...any) (string, error) {
	raw, err := json.Marshal(append([]any{build()}, parts...))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

const module = "github.com/lowbit-go/gq"

// build names this module's version in the running program, and the commit of a program of its own.
var build = sync.OnceValue(func() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	if info.Main.Path != module {
		for _, m := range info.Deps {
			if m.Path == module {
				return []string{m.Version, m.Sum}
			}
		}
		return nil
	}
	id := []string{info.Main.Version}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
			id = append(id, s.Value)
		}
	}
	return id
})

type sum struct {
	Path   string `json:"path"` // within the tree, with slashes
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Tree returns the path of a tree. If the tree is missing or damaged or has another key, make is
// called with the path of an empty directory to fill. found reports whether the tree was there.
func (d *Dir) Tree(ctx context.Context, name, key string, make func(dir string) error) (path string, found bool, err error) {
	path = filepath.Join(d.path, name+treeSuffix)
	var want []sum
	if d.GetJSON(name, key, &want) {
		have, err := sums(ctx, path)
		if ctx.Err() != nil {
			return "", false, ctx.Err()
		}
		if err == nil && slices.Equal(have, want) {
			return path, true, nil
		}
	}
	// The entry goes first: nothing may vouch for a tree that is not complete.
	if err := d.Delete(name); err != nil {
		return "", false, err
	}
	if path, err = d.Scratch(name); err != nil {
		return "", false, err
	}
	err = make(path)
	if err == nil {
		if want, err = sums(ctx, path); err == nil {
			err = d.PutJSON(name, key, want)
		}
	}
	if err != nil {
		_ = os.RemoveAll(path) // else the next job does
		return "", false, err
	}
	return path, false, nil
}

// Scratch makes an empty directory in place of a tree, for work that no later job takes up.
func (d *Dir) Scratch(name string) (path string, err error) {
	path = filepath.Join(d.path, name+treeSuffix)
	if err := os.RemoveAll(path); err != nil {
		return "", err
	}
	return path, os.Mkdir(path, 0o777)
}

// sums reads all files of a tree, in the order of paths: only directories and regular files.
func sums(ctx context.Context, root string) ([]sum, error) {
	list := []sum{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if !e.Type().IsRegular() {
			return &fs.PathError{Op: "read", Path: path, Err: errors.New("is not a regular file")}
		}
		s, err := sumFile(ctx, path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		s.Path = filepath.ToSlash(rel)
		list = append(list, s)
		return err
	})
	return list, err
}

// Loose returns the path of a directory, made if necessary, for files that jobs check themselves.
func (d *Dir) Loose(name string) (path string, err error) {
	path = filepath.Join(d.path, name+treeSuffix)
	if err := os.Mkdir(path, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return path, nil
}

// SHA256 reads a file and returns the size and the hash of its content.
func SHA256(ctx context.Context, path string) (size int64, hash string, err error) {
	s, err := sumFile(ctx, path)
	return s.Size, s.SHA256, err
}

func sumFile(ctx context.Context, path string) (s sum, err error) {
	f, _, err := files.Open(path)
	if err != nil {
		return s, err
	}
	defer f.Close()
	h := sha256.New()
	for n := int64(1); n > 0; s.Size += n {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		if n, err = io.CopyN(h, f, 1<<24); err != nil && err != io.EOF {
			return s, err
		}
	}
	s.SHA256 = hex.EncodeToString(h.Sum(nil))
	return s, nil
}
