// Package hubpath knows the names of directories in the cache of the Hugging Face Hub, and the
// names of repositories. Unlike package hub it links no HTTP client.
package hubpath

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	// repoPart matches an organization or a model. The hub allows no "-" and no "." at either end;
	// otherwise r-/o and r/-o would share a directory in the cache.
	repoPart   = regexp.MustCompile(`^[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?$`)
	commitForm = regexp.MustCompile(`^[0-9a-f]{40}$`)
	// snapshotForm matches a snapshot, or a path in a snapshot, with slashes.
	snapshotForm = regexp.MustCompile(`^(?:.*/)?(models--[^/]+)/snapshots/([0-9a-f]{40})(?:/.*)?$`)
)

const prefix = "models--"

func IsCommit(s string) bool { return commitForm.MatchString(s) }

// Check returns an error unless repo can be the name of a model's repository: "org/model", or
// "model" for a few old repositories.
func Check(repo string) error {
	parts := strings.Split(repo, "/")
	if first := parts[0]; first == "datasets" || first == "spaces" {
		return fmt.Errorf("%s are no models: expected hf://org/model", first)
	}
	for _, part := range parts {
		if len(parts) > 2 || !repoPart.MatchString(part) || strings.Contains(part, "--") || strings.Contains(part, "..") || strings.HasSuffix(part, ".git") {
			return errors.New("expected hf://org/model[@revision][/file], org and model of letters, digits, \"_\" and, between them, \".\" and \"-\"")
		}
	}
	return nil
}

// Folder is the name of a repository's directory in the cache.
func Folder(repo string) string { return prefix + strings.ReplaceAll(repo, "/", "--") }

// Repo is the repository of a directory in the cache. ok is false for other names.
func Repo(folder string) (repo string, ok bool) {
	name, ok := strings.CutPrefix(folder, prefix)
	repo = strings.Replace(name, "--", "/", 1)
	return repo, ok && Check(repo) == nil
}

// Of returns the repository and the commit of a path in a snapshot of a cache, if the path is one.
func Of(path string) (repo, commit string, ok bool) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", "", false
	}
	m := snapshotForm.FindStringSubmatch(filepath.ToSlash(abs))
	if m == nil {
		return "", "", false
	}
	repo, ok = Repo(m[1])
	return repo, m[2], ok
}
