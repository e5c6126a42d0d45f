package workdir

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/internal/files"
)

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
