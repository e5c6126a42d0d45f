package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/hubpath"
	"github.com/lowbit-go/gq/internal/remote"
)

// A Store is a remote.Store: a commit of a repository.
type Store struct {
	set    Settings
	client *remote.Client
	name   Name
	commit string

	mu    sync.Mutex
	list  []remote.Object // of the commit; nil: not asked for yet
	files map[string]*remote.File
}

var _ remote.Store = (*Store)(nil)

// Open finds the commit of the revision that l names, by asking the hub, or, offline, the cache.
func Open(ctx context.Context, l remote.Location, set Settings, client *remote.Client) (*Store, error) {
	name, err := ParseName(l.Path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l, err)
	}
	s := &Store{set: set, client: client, name: name, files: map[string]*remote.File{}}
	if set.Offline {
		s.commit, err = s.cachedCommit()
	} else {
		s.commit, err = s.resolveRevision(ctx)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Store) String() string {
	n := s.name
	if s.commit != "" {
		n.Revision = s.commit
	}
	return "hf://" + n.String()
}

func (s *Store) Repo() string { return s.name.Repo }

func (s *Store) Commit() string { return s.commit }

// File returns the named file or directory in the repository, "" for the whole repository.
func (s *Store) File() string { return s.name.File }

// List returns the files of the commit, or, offline, its files in the cache. If the name has a file
// or a directory, List returns that file, or the files below the directory. Names are always
// relative to the repository.
func (s *Store) List(ctx context.Context) (list []remote.Object, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		if s.set.Offline {
			s.list, err = s.cached()
		} else {
			s.list, err = s.tree(ctx)
		}
	}
	list = slices.Clone(s.list)
	if err != nil || s.name.File == "" {
		return list, err
	}
	list = slices.DeleteFunc(list, func(o remote.Object) bool {
		return o.Name != s.name.File && !strings.HasPrefix(o.Name, s.name.File+"/")
	})
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: the repository has no such file or directory%s", s, s.offlineNote())
	}
	return list, nil
}

func (s *Store) offlineNote() string {
	if s.set.Offline {
		return " in the cache, and HF_HUB_OFFLINE is set"
	}
	return ""
}

// ReadAt fills dst with the object's bytes from off on, from the cache or else from the hub.
func (s *Store) ReadAt(ctx context.Context, o remote.Object, dst []byte, off int64) error {
	if path := s.local(o); path != "" {
		return readFile(path, dst, off)
	}
	if s.set.Offline {
		return fmt.Errorf("%s: %s is not in the cache, and HF_HUB_OFFLINE is set", s, o.Name)
	}
	return s.file(o).ReadAt(ctx, dst, off)
}

func readFile(path string, dst []byte, off int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.ReadAt(dst, off); err != nil && !(errors.Is(err, io.EOF) && len(dst) == 0) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (s *Store) file(o remote.Object) *remote.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[o.Name]; f != nil {
		return f
	}
	u := s.set.address("/"+s.name.Repo+"/resolve/"+s.commit+"/"+escapePath(o.Name), "")
	r := s.request(u, o.Name)
	r.Check = func(status int, h http.Header) error { return s.same(r.Name, o, status, h) }
	f := s.client.File(r, o.Size, remote.Head{})
	s.files[o.Name] = f
	return f
}

// same fails unless the hub's answer for a file has the size and hash of the list of files.
func (s *Store) same(name string, o remote.Object, status int, h http.Header) error {
	if c := h.Get("X-Repo-Commit"); c != "" && c != s.commit {
		return &remote.ChangedError{File: name, What: "commit", Before: s.commit, Now: c}
	}
	etag := h.Get("X-Linked-Etag")
	if etag == "" && (status == http.StatusOK || status == http.StatusPartialContent) {
		etag = h.Get("ETag")
	}
	if etag = remote.NormalETag(etag); etagForm.MatchString(etag) && etag != o.ETag {
		return &remote.ChangedError{File: name, What: "ETag", Before: o.ETag, Now: etag}
	}
	return nil
}

func (s *Store) folder() string { return filepath.Join(s.set.Cache, hubpath.Folder(s.name.Repo)) }

func (s *Store) blob(o remote.Object) string { return filepath.Join(s.folder(), "blobs", o.ETag) }

func (s *Store) Dir() string { return filepath.Join(s.folder(), "snapshots", s.commit) }

const maxRef = 1000

func (s *Store) cachedCommit() (string, error) {
	commit := s.name.Revision
	if !hubpath.IsCommit(commit) {
		data, err := files.Read(filepath.Join(s.folder(), "refs", filepath.FromSlash(s.name.Revision)), maxRef)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		commit = strings.TrimSpace(string(data))
	}
	if hubpath.IsCommit(commit) {
		if st, err := os.Stat(filepath.Join(s.folder(), "snapshots", commit)); err == nil && st.IsDir() {
			return commit, nil
		}
	}
	return "", fmt.Errorf("%s is not in the cache %s, and HF_HUB_OFFLINE is set: unset it, or run gq pull %s where there is a network", s, s.set.Cache, s.name.Repo)
}

func (s *Store) cached() (list []remote.Object, err error) {
	root := s.Dir()
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		st, err := os.Stat(path)
		if err != nil || !st.Mode().IsRegular() {
			return nil // a link to a missing blob
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		o := remote.Object{Name: filepath.ToSlash(name), Size: st.Size()}
		if target, err := os.Readlink(path); err == nil && etagForm.MatchString(filepath.Base(target)) {
			if o.ETag = filepath.Base(target); len(o.ETag) == 64 {
				o.SHA256 = o.ETag
			}
		}
		list = append(list, o)
		return nil
	})
	slices.SortFunc(list, func(a, b remote.Object) int { return strings.Compare(a.Name, b.Name) })
	return list, err
}

// A Name says which file or files are meant: org/model[@revision][/file].
type Name struct {
	Repo     string // "org/model"; "model" for a few old repositories
	Revision string // a branch, tag or commit
	// File is a file or a directory in the repository; "" for the whole repository.
	File string
}

const defaultRevision = "main"

// deepRevision matches the revisions that have slashes. Slashes of other revisions are written %2F.
var deepRevision = regexp.MustCompile(`^(refs/(?:pr|convert)/[^/]+)(?:/(.*))?$`)

func ParseName(s string) (n Name, err error) {
	repo, revision, pinned := strings.Cut(s, "@")
	if pinned {
		n.Revision, n.File, _ = strings.Cut(revision, "/")
		if m := deepRevision.FindStringSubmatch(revision); m != nil {
			n.Revision, n.File = m[1], m[2]
		}
		if n.Revision, err = url.PathUnescape(n.Revision); err != nil || !isRelative(n.Revision) {
			return Name{}, errors.New("the revision after @ is not valid: expected a branch, a tag or a commit, with %2F for a slash")
		}
		n.Repo = repo
	} else {
		parts := strings.SplitN(s, "/", 3)
		n.Repo, n.Revision = strings.Join(parts[:min(2, len(parts))], "/"), defaultRevision
		if len(parts) == 3 {
			n.File = parts[2]
		}
	}
	if n.File = strings.TrimSuffix(n.File, "/"); n.File != "" && !isRelative(n.File) {
		return Name{}, errors.New("the path of the file is not valid")
	}
	return n, hubpath.Check(n.Repo)
}

// isRelative reports whether a name of the hub can be a path below a directory, on every system.
func isRelative(name string) bool {
	if name == "" || len(name) > 1000 {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		// Windows drops dots and spaces at the end, so "... " would be a directory that leads upwards.
		if strings.Trim(part, ". ") == "" || strings.ContainsAny(part, "\\:") {
			return false
		}
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) && filepath.IsLocal(filepath.FromSlash(name))
}

func (n Name) String() string {
	s := n.Repo
	if n.Revision != defaultRevision {
		s += "@" + n.Revision
		if deepRevision.FindString(n.Revision) == "" {
			s = n.Repo + "@" + strings.ReplaceAll(url.PathEscape(n.Revision), "@", "%40")
		}
	}
	if n.File != "" {
		s += "/" + n.File
	}
	return s
}
