// Package mirror keeps files of a remote store in a cache of gq's own, for stores without a cache
// like the Hugging Face Hub's. A note next to each file identifies the object. If the object has
// another size or version now, the file is fetched again.
package mirror

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/transfer"
)

// A Mirror is a remote store with its directory in the cache.
type Mirror struct {
	remote.Store
	location string
	dir      string
}

// Of returns the mirror of the directory that a location names. Locations with the same
// [remote.Location.Key] have the same mirror.
func Of(store remote.Store, l remote.Location) (*Mirror, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	location := l.String()
	sum := sha256.Sum256([]byte(l.Key()))
	base := strings.Trim(path.Base(strings.TrimSuffix(location, "/")), ". ")
	if base == "" || !filepath.IsLocal(base) || strings.ContainsAny(base, `\:*?"<>|`) {
		base = "files"
	}
	return &Mirror{store, location, filepath.Join(root, hex.EncodeToString(sum[:8]), base)}, nil
}

func Root() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no directory for gq's cache: set XDG_CACHE_HOME (%w)", err)
	}
	return filepath.Join(cache, "gq", "sources"), nil
}

func (m *Mirror) Dir() string { return m.dir }

func (m *Mirror) path(o remote.Object) string {
	return filepath.Join(m.dir, filepath.FromSlash(o.Name))
}

func (m *Mirror) Cached(o remote.Object) bool {
	if !transfer.IsComplete(m.path(o), o.Size) {
		return false
	}
	text, err := os.ReadFile(remote.NoteOf(m.path(o)))
	return err == nil && string(text) == o.Note()
}

func (m *Mirror) Missing(o remote.Object) int64 {
	if m.Cached(o) {
		return 0
	}
	return m.copyOf(o, nil, nil).Missing()
}

func (m *Mirror) copyOf(o remote.Object, slots transfer.Slots, progress func(n int64)) *transfer.Copy {
	return &transfer.Copy{
		Store: m.Store, Object: o, Path: m.path(o), Slots: slots, Progress: progress,
		Sum: transfer.Sum{Name: "SHA-256", New: sha256.New, Want: o.SHA256},
	}
}

// Hold keeps [Copy.Remove] out until unlock. During a removal, Hold calls waiting and waits.
func (m *Mirror) Hold(ctx context.Context, waiting func()) (unlock func(), err error) {
	return transfer.Hold(ctx, lockOf(filepath.Dir(m.dir)), waiting)
}

// lockOf is the file that jobs lock while using the mirror in a directory below Root. The lock lies
// outside of the directory, because Windows removes no file that is open.
func lockOf(dir string) string { return dir + ".lock" }

func (m *Mirror) Fetch(ctx context.Context, objects []remote.Object, opts transfer.Options) error {
	missing := int64(0)
	for _, o := range objects {
		if !filepath.IsLocal(filepath.FromSlash(o.Name)) || strings.ContainsAny(o.Name, "\\:") {
			return fmt.Errorf("%s: %q cannot be the name of a file", m, o.Name)
		}
		missing += m.Missing(o)
	}
	if err := os.MkdirAll(m.dir, 0o777); err != nil {
		return err
	}
	if err := transfer.CheckRoom(m.dir, missing); err != nil {
		return fmt.Errorf("%s: %w", m, err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(m.dir), locationFile), []byte(m.location+"\n"), 0o666); err != nil {
		return err
	}
	unlock, err := transfer.Lock(ctx, m.dir+".lock", func() { opts.WaitingFor(path.Base(m.String())) })
	if err != nil {
		return err
	}
	defer unlock()
	return transfer.Each(ctx, objects, func(ctx context.Context, o remote.Object, slots transfer.Slots) error {
		if m.Cached(o) {
			return nil
		}
		if err := os.MkdirAll(filepath.Dir(m.path(o)), 0o777); err != nil {
			return err
		}
		if err := m.copyOf(o, slots, opts.Progress).Run(ctx); err != nil {
			return err
		}
		return atomicfile.WriteFile(remote.NoteOf(m.path(o)), []byte(o.Note()))
	})
}

// Forget removes the files, finished or not, for which gone is true: the store no longer has these
// files, and the next job would still use the copies.
func (m *Mirror) Forget(ctx context.Context, gone func(name string) bool) error {
	var names []string
	err := filepath.WalkDir(m.dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(m.dir, filepath.Join(filepath.Dir(file), objectOf(d.Name())))
		if name := filepath.ToSlash(rel); err == nil && !slices.Contains(names, name) && gone(name) {
			names = append(names, name)
		}
		return err
	})
	if os.IsNotExist(err) || err == nil && len(names) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	unlock, err := transfer.Lock(ctx, m.dir+".lock", func() {})
	if err != nil {
		return err
	}
	defer unlock()
	for _, name := range names {
		o := remote.Object{Name: name}
		for _, file := range append(transfer.PartialFiles(m.path(o)), m.path(o), remote.NoteOf(m.path(o))) {
			if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	return nil
}

// objectOf is the base name of the object that a file in the mirror belongs to: its content, its
// note or an unfinished download. A job that was killed may have left a content without a note.
func objectOf(file string) string {
	if base, ok := strings.CutSuffix(file, remote.NoteEnding); ok {
		return strings.TrimPrefix(base, ".")
	}
	for _, suffix := range transfer.PartialFiles("") {
		file = strings.TrimSuffix(file, suffix)
	}
	return file
}

const locationFile = "location"

// A Copy is a mirror on this machine.
type Copy struct {
	Location string `json:"location"` // without credentials
	Bytes    int64  `json:"bytes"`
	Path     string `json:"path"`

	dir string
}

func Scan() (list []Copy, err error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if os.IsNotExist(err) {
		return nil, nil
	}
	for _, e := range entries {
		c := Copy{dir: filepath.Join(root, e.Name())}
		location, err := files.Read(filepath.Join(c.dir, locationFile), maxLocation)
		if err != nil {
			continue // not a mirror
		}
		c.Location = strings.TrimSpace(string(location))
		err = filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == c.dir {
				return err
			}
			if d.IsDir() && c.Path == "" {
				c.Path = path
			}
			if st, err := d.Info(); err == nil && st.Mode().IsRegular() {
				c.Bytes += st.Size()
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, err
}

const maxLocation = 16 << 10

// Remove removes the mirror, unless a running job holds the mirror: [transfer.ErrInUse].
func (c *Copy) Remove() error {
	unlock, err := transfer.TryLock(lockOf(c.dir))
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.RemoveAll(c.dir); err != nil {
		return err
	}
	// An empty file. Windows does not remove an open file.
	_ = os.Remove(lockOf(c.dir))
	return nil
}
