package gq

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/lowbit-go/gq/internal/remote"
)

// A source is the checkpoint or file that a job reads.
type source struct {
	// Name is the source in reports and errors: the path as the caller names it, or the remote name
	// without credentials and with the commit, if there is one.
	Name string
	// Path is the file or directory on this machine. A directory holds all small files: config.json,
	// the index, the tokenizer and so on.
	Path string
	// Store has Weights: the weight files that are not in Path, because the job streams them. Both are
	// nil if everything is in Path. The file's name in Path would be the last element of the object's.
	Store   remote.Store
	Weights []remote.Object

	unlock func() // nil: nothing is held
}

// release lets PruneCache remove the files of the source. A job calls it when it needs no file of the source
// any more. It may be called twice, and of a nil source.
func (s *source) release() {
	if s != nil && s.unlock != nil {
		s.unlock()
		s.unlock = nil
	}
}

// isRemote reports whether the job names a remote place.
func (s *source) isRemote() bool { return s.Name != s.Path }

// resolveSource finds the source of a job. A path stays as it is. The files of a remote name are
// copied into a cache: all of them if whole is true, else those that a job does not stream. They stay there
// until the caller releases the source. s shows the progress of a download.
func resolveSource(ctx context.Context, name string, whole bool, s stages) (*source, error) {
	if !remote.IsRemote(name) {
		if err := hintHub(name); err != nil {
			return nil, err
		}
		return &source{Name: name, Path: name}, nil
	}
	return resolveRemote(ctx, name, whole, s)
}

// resolveFile is resolveSource for a job that takes one file, of whatever kind. Of a remote place it
// takes this file and nothing beside it. If whole is false, the job streams the file.
func resolveFile(ctx context.Context, name string, whole bool, s stages) (*source, error) {
	if !remote.IsRemote(name) {
		return &source{Name: name, Path: name}, nil
	}
	p, err := openPlace(ctx, name, true, s)
	if err != nil {
		return nil, err
	}
	return p.resolve(ctx, whole, s)
}

// resolveAll resolves several names, "" to itself: it replaces each name by the path, and returns the
// names for reports. Everything is on this machine until the caller calls release.
func resolveAll(ctx context.Context, s stages, names ...*string) (reported []string, release func(), err error) {
	var sources []*source
	release = func() {
		for _, from := range sources {
			from.release()
		}
	}
	for _, name := range names {
		from := &source{}
		if *name != "" {
			if from, err = resolveSource(ctx, *name, true, s); err != nil {
				release()
				return nil, nil, err
			}
		}
		sources = append(sources, from)
		reported = append(reported, from.Name)
		*name = from.Path
	}
	return reported, release, nil
}

// repositoryName is the form of the name of a repository of the Hugging Face Hub, with its owner.
var repositoryName = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?$`)

// hintHub returns an error if name is no path but may be the name of a repository. A path that exists
// is a path, whatever its form.
func hintHub(name string) error {
	if !repositoryName.MatchString(name) || strings.HasSuffix(name, ".gqf") || strings.HasSuffix(name, ".gguf") || strings.HasSuffix(name, ".safetensors") {
		return nil
	}
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%s: %w; if the Hugging Face repository is meant, name it hf://%s", name, fs.ErrNotExist, name)
}
