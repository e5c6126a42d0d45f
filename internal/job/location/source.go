package location

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/hub"
)

// A Source is the checkpoint or file that a job reads.
type Source struct {
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

// Release lets the caches remove the files of the source. It may be called twice, and of a nil
// source.
func (s *Source) Release() {
	if s != nil && s.unlock != nil {
		s.unlock()
		s.unlock = nil
	}
}

// IsRemote reports whether the job names a remote place.
func (s *Source) IsRemote() bool { return s.Name != s.Path }

// Resolve finds the source of a job. A path stays as it is. The files of a remote name are copied
// into a cache: all of them if whole is true, else those that a job does not stream. They stay
// there until the caller releases the source. t is told of a download.
func Resolve(ctx context.Context, name string, whole bool, t Told) (*Source, error) {
	if !remote.IsRemote(name) {
		if err := hintHub(name); err != nil {
			return nil, err
		}
		return &Source{Name: name, Path: name}, nil
	}
	p, err := openPlace(ctx, name, t)
	if err != nil {
		return nil, err
	}
	return p.resolve(ctx, whole)
}

// repositoryName is the form of the name of a repository of the Hugging Face Hub, with its owner.
var repositoryName = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?$`)

// hintHub returns an error if name is no path but may be the name of a repository. A path that
// exists is a path, whatever its form.
func hintHub(name string) error {
	if !repositoryName.MatchString(name) || strings.HasSuffix(name, ".gqf") || strings.HasSuffix(name, ".gguf") || strings.HasSuffix(name, ".safetensors") {
		return nil
	}
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%s: %w; if the Hugging Face repository is meant, name it hf://%s", name, fs.ErrNotExist, name)
}

// Streams reports whether some weights of the source are not on this machine.
func (s *Source) Streams() bool { return len(s.Weights) > 0 }

// OpenCheckpoint opens the source, a checkpoint. Weights that are not on this machine are read by
// range until the context ends.
func (s *Source) OpenCheckpoint(ctx context.Context) (*safetensors.Checkpoint, error) {
	opts := safetensors.Options{Context: ctx}
	hashed := remote.HashObjects(s.Store, s.Weights)
	for i, o := range s.Weights {
		opts.Remote = append(opts.Remote, safetensors.RemoteFile{
			Name: path.Base(o.Name), Path: s.Store.String() + "/" + o.Name, Size: o.Size, Version: o.Version(),
			ReadAt: hashed[i].ReadAt, Check: hashed[i].Check, Unverified: o.SHA256 == "",
		})
	}
	return safetensors.Open(s.Path, opts)
}

// RemoteNames returns the names in the store of a remote source of files that the source has on
// this machine, and of its weights: outputs may go to the same store.
func (s *Source) RemoteNames(local []string) (names []string) {
	if !s.IsRemote() {
		return nil
	}
	dir := strings.TrimRight(s.Name, "/")
	if st, err := os.Stat(s.Path); err == nil && !st.IsDir() {
		dir = dir[:strings.LastIndexByte(dir, '/')]
	}
	for _, file := range local {
		names = append(names, dir+"/"+filepath.Base(file))
	}
	for _, o := range s.Weights {
		names = append(names, dir+"/"+path.Base(o.Name))
	}
	return names
}

// Fetched is a model in a cache.
type Fetched struct {
	Name    string // with the commit, without credentials
	Path    string // of the file or directory in the cache
	Files   []remote.Object
	Fetched map[string]bool // the names of files that were not in the cache
}

// Fetch copies the model of a remote name into a cache.
func Fetch(ctx context.Context, name string, t Told) (*Fetched, error) {
	p, err := openPlace(ctx, name, t)
	if err != nil {
		return nil, err
	}
	unlock, err := p.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	m, err := p.model(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.download(ctx, m.weights); err != nil {
		return nil, err
	}
	return &Fetched{p.name, m.path, slices.Concat(m.weights, m.small), p.fetched}, nil
}

// WithRevision turns the name of a model into a remote name: org/model into hf://org/model.
// revision is the branch, tag or commit of a repository, or "" if the name states it.
func WithRevision(name, revision string) (string, error) {
	if !remote.IsRemote(name) {
		if !repositoryName.MatchString(name) {
			return "", optionf("", "%s is not the name of a model: expected org/model, hf://org/model, https://..., s3://... or gs://...", name)
		}
		name = "hf://" + name
	}
	if revision == "" {
		return name, nil
	}
	l, err := remote.Parse(name)
	if err != nil {
		return "", err
	}
	if l.Scheme != "hf" || strings.Contains(l.Path, "@") {
		return "", optionf("revision", "%s: goes with a repository of the Hugging Face Hub whose name states no revision", revision)
	}
	n, err := hub.ParseName(l.Path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", l, err)
	}
	n.Revision = revision
	return "hf://" + n.String(), nil
}
