package hub

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/filelock"
	"github.com/lowbit-go/gq/internal/hubpath"
	"github.com/lowbit-go/gq/internal/remote/transfer"
)

type CachedModel struct {
	Repo       string           `json:"repo"`
	Bytes      int64            `json:"bytes"` // of all blobs, and of incomplete downloads
	Revisions  []CachedRevision `json:"revisions"`
	Incomplete int64            `json:"incomplete_bytes"`

	dir, locks string
}

type CachedRevision struct {
	Commit string   `json:"commit"`
	Refs   []string `json:"refs"` // branches and tags that were last seen at the commit
	Files  int      `json:"files"`
	Bytes  int64    `json:"bytes"` // size of its files; other commits may share some
	Path   string   `json:"path"`

	blobs []string
}

func Scan(cache string) (list []CachedModel, err error) {
	entries, err := os.ReadDir(cache)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		repo, ok := hubpath.Repo(e.Name())
		if !ok || !e.IsDir() {
			continue
		}
		m := CachedModel{Repo: repo, dir: filepath.Join(cache, e.Name()), locks: filepath.Join(cache, ".locks", e.Name())}
		if err := m.scan(); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

func (m *CachedModel) scan() error {
	blobs, err := readDir(filepath.Join(m.dir, "blobs"))
	if err != nil {
		return err
	}
	for _, b := range blobs {
		if st, err := b.Info(); err == nil && st.Mode().IsRegular() {
			m.Bytes += st.Size()
			if isIncomplete(b.Name()) {
				m.Incomplete += st.Size()
			}
		}
	}
	refs, err := m.refs()
	if err != nil {
		return err
	}
	snapshots, err := readDir(filepath.Join(m.dir, "snapshots"))
	if err != nil {
		return err
	}
	for _, s := range snapshots {
		if !s.IsDir() || !hubpath.IsCommit(s.Name()) {
			continue
		}
		r := CachedRevision{Commit: s.Name(), Refs: refs[s.Name()], Path: filepath.Join(m.dir, "snapshots", s.Name())}
		if err := r.scan(); err != nil {
			return err
		}
		m.Revisions = append(m.Revisions, r)
	}
	return nil
}

// isIncomplete reports whether a file in the directory of blobs belongs to an unfinished download,
// of gq or of the Python library.
func isIncomplete(name string) bool {
	if strings.HasSuffix(name, ".incomplete") {
		return true
	}
	return slices.ContainsFunc(transfer.PartialFiles(""), func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

func readDir(path string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	return entries, err
}

func (m *CachedModel) refs() (map[string][]string, error) {
	list := map[string][]string{}
	root := filepath.Join(m.dir, "refs")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		if commit := strings.TrimSpace(string(data)); err == nil && len(data) <= maxRef && hubpath.IsCommit(commit) {
			list[commit] = append(list[commit], filepath.ToSlash(name))
		}
		return err
	})
	return list, err
}

func (r *CachedRevision) scan() error {
	return filepath.WalkDir(r.Path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if target, err := os.Readlink(path); err == nil {
			r.blobs = append(r.blobs, filepath.Base(target))
		}
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			r.Files++
			r.Bytes += st.Size()
		}
		return nil
	})
}

// Prune removes everything from the model in the cache that no branch or tag needs: commits that no
// branch or tag was last seen at, contents of these commits only, and incomplete downloads. With
// all, Prune removes everything. Blobs that a process is downloading stay. If a running job of gq
// holds the model, the error is [transfer.ErrInUse] and everything stays. Prune returns how many
// bytes were removed.
func (m *CachedModel) Prune(all bool) (removed int64, err error) {
	unlock, err := transfer.TryLock(filepath.Join(m.locks, pullLock+".lock"))
	if err != nil {
		return 0, err
	}
	defer unlock()
	// The Python library takes no such lock. A blob free before links are read has its link by then.
	blobs, err := m.freeBlobs()
	if err != nil {
		return 0, err
	}
	now := CachedModel{Repo: m.Repo, dir: m.dir, locks: m.locks}
	if err := now.scan(); err != nil {
		return 0, err
	}
	needed := map[string]bool{}
	for _, r := range now.Revisions {
		if len(r.Refs) > 0 && !all {
			for _, b := range r.blobs {
				needed[b] = true
			}
			continue
		}
		if r.blobs == nil { // copies, on a system without symbolic links
			removed += r.Bytes
		}
		if err := os.RemoveAll(r.Path); err != nil {
			return removed, err
		}
	}
	for _, b := range blobs {
		if needed[b.Name()] {
			continue
		}
		if err := os.Remove(filepath.Join(m.dir, "blobs", b.Name())); err != nil {
			return removed, err
		}
		removed += b.Size()
	}
	if all {
		err = errors.Join(os.RemoveAll(filepath.Join(m.dir, "refs")), os.RemoveAll(filepath.Join(m.dir, ".no_exist")))
		for _, dir := range []string{"blobs", "snapshots", ""} {
			_ = os.Remove(filepath.Join(m.dir, dir)) // unless a process is downloading
		}
	}
	return removed, err
}

// freeBlobs lists the blobs and the unfinished downloads that no process is downloading.
func (m *CachedModel) freeBlobs() (list []fs.FileInfo, err error) {
	blobs, err := readDir(filepath.Join(m.dir, "blobs"))
	for _, b := range blobs {
		if st, err := b.Info(); err == nil && st.Mode().IsRegular() && m.free(b.Name()) {
			list = append(list, st)
		}
	}
	return list, err
}

func (m *CachedModel) free(file string) bool {
	etag, _, _ := strings.Cut(file, ".")
	path := filepath.Join(m.locks, etag+".lock")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return os.IsNotExist(err)
	}
	defer f.Close()
	held, err := filelock.Try(f)
	return held && err == nil
}
