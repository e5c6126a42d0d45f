package hub

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/filelock"
	"github.com/lowbit-go/gq/internal/hubpath"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/transfer"
)

func (s *Store) Cached(o remote.Object) bool { return s.local(o) != "" }

// local is the path of the object's content in the cache: of the blob, or of the file in the
// snapshot on systems without symbolic links; "" if not in the cache.
func (s *Store) local(o remote.Object) string {
	if path := s.blob(o); transfer.IsComplete(path, o.Size) {
		return path
	}
	path := s.link(o)
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() && st.Size() == o.Size {
		return path
	}
	return ""
}

func (s *Store) Missing(o remote.Object) int64 {
	if s.Cached(o) {
		return 0
	}
	return s.copyOf(o, nil, nil).Missing()
}

// Fetch fetches objects that the cache lacks, and links all objects in the commit's snapshot.
func (s *Store) Fetch(ctx context.Context, objects []remote.Object, o transfer.Options) error {
	if s.set.Offline {
		for _, object := range objects {
			if !s.Cached(object) {
				return fmt.Errorf("%s: %s is not in the cache, and HF_HUB_OFFLINE is set", s, object.Name)
			}
		}
		return nil
	}
	for _, dir := range []string{filepath.Join(s.folder(), "blobs"), s.Dir(), filepath.Dir(s.lock("x"))} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	missing := int64(0)
	for _, object := range objects {
		missing += s.Missing(object)
	}
	if err := transfer.CheckRoom(s.folder(), missing); err != nil {
		return fmt.Errorf("%s: %w, or set HF_HUB_CACHE to a directory with more", s, err)
	}
	err := transfer.Each(ctx, objects, func(ctx context.Context, object remote.Object, slots transfer.Slots) error {
		return s.fetch(ctx, object, slots, o)
	})
	if err != nil {
		return err
	}
	return s.writeRef()
}

func (s *Store) fetch(ctx context.Context, object remote.Object, slots transfer.Slots, o transfer.Options) error {
	if s.local(object) == s.link(object) {
		return nil
	}
	if path := s.blob(object); !transfer.IsComplete(path, object.Size) {
		unlock, err := transfer.Lock(ctx, s.lock(object.ETag), func() { o.WaitingFor(object.Name) })
		if err != nil {
			return err
		}
		defer unlock()
		if !transfer.IsComplete(path, object.Size) {
			if err := s.copyOf(object, slots, o.Progress).Run(ctx); err != nil {
				return err
			}
		}
	}
	return s.linkBlob(object)
}

func (s *Store) copyOf(o remote.Object, slots transfer.Slots, progress func(n int64)) *transfer.Copy {
	c := &transfer.Copy{Store: s, Object: o, Path: s.blob(o), Slots: slots, Progress: progress}
	switch {
	case o.SHA256 != "":
		c.Sum = transfer.Sum{Name: "SHA-256", New: sha256.New, Want: o.SHA256}
	case len(o.ETag) == 40: // the hash of a blob in Git
		c.Sum = transfer.Sum{Name: "Git hash", Want: o.ETag, New: func() hash.Hash {
			h := sha1.New()
			fmt.Fprintf(h, "blob %d\x00", o.Size)
			return h
		}}
	}
	return c
}

func (s *Store) lock(etag string) string {
	return filepath.Join(s.set.Cache, ".locks", hubpath.Folder(s.name.Repo), etag+".lock")
}

// Hold keeps [CachedModel.Prune] from removing files of the repository until unlock is called.
// waiting is called if Prune is removing files: then Hold waits.
func (s *Store) Hold(ctx context.Context, waiting func()) (unlock func(), err error) {
	return transfer.Hold(ctx, s.lock(pullLock), waiting)
}

// pullLock is the name of the lock that running jobs share. Blobs' locks have hashes for names.
const pullLock = "gq-pull"

func (s *Store) link(o remote.Object) string {
	return filepath.Join(s.Dir(), filepath.FromSlash(o.Name))
}

// linkBlob makes the symbolic link from the snapshot to the blob. Without symbolic links the file
// itself moves to the snapshot, as in the Python library.
func (s *Store) linkBlob(o remote.Object) error {
	link, blob := s.link(o), s.blob(o)
	if err := os.MkdirAll(filepath.Dir(link), 0o777); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(link), blob)
	if err != nil {
		return err
	}
	if now, err := os.Readlink(link); err == nil && now == target {
		return nil
	}
	// The name is random: other processes may make the same link at the same time.
	temp := link + "." + rand.Text() + ".gq-link"
	if err := os.Symlink(target, temp); err != nil {
		if noSymlinks(err) {
			return os.Rename(blob, link)
		}
		return err
	}
	if err := os.Rename(temp, link); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// noSymlinks reports whether an error of os.Symlink means that the file system has no symbolic
// links, or that the user may not make links: Linux has EPERM for FAT, Windows
// ERROR_PRIVILEGE_NOT_HELD (1314) or ERROR_INVALID_FUNCTION (1).
func noSymlinks(err error) bool {
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) {
		return true
	}
	code, ok := errors.AsType[syscall.Errno](err)
	return ok && runtime.GOOS == "windows" && (code == 1314 || code == 1)
}

func (s *Store) writeRef() error {
	if s.name.Revision == s.commit {
		return nil
	}
	path := filepath.Join(s.folder(), "refs", filepath.FromSlash(s.name.Revision))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	if now, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(now)) == s.commit {
		return nil
	}
	return atomicfile.WriteFile(path, []byte(s.commit))
}

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
