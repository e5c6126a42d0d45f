package hub

import (
	"errors"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/lowbit-go/gq/internal/hubpath"
)

// A Name says which file or files are meant: org/model[@revision][/file].
type Name struct {
	Repo     string // "org/model"; "model" for a few old ones
	Revision string // a branch, tag or commit
	// File is a file or a directory in the repository; "" for all of it.
	File string
}

const defaultRevision = "main"

// deepRevision matches the revisions that have slashes. Slashes of other revisions are written %2F.
var deepRevision = regexp.MustCompile(`^(refs/(?:pr|convert)/[^/]+)(?:/(.*))?$`)

// ParseName reads what follows hf://.
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

// String returns the name as it follows hf://.
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
