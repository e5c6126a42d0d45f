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
	"strings"
	"syscall"

	"github.com/lowbit-go/gq/internal/atomicfile"
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
