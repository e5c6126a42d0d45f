// Package web reads the files of a directory of a web server, or of an object store's or a file
// share's HTTPS address.
//
// A web server lists no files, so files are asked for by name. A query in the URL of the directory,
// such as a signature, is sent with each request.
package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/remote"
)

// A Store is a directory of a web server. As a remote.Store, its List has the files that Add found.
type Store struct {
	client *remote.Client
	base   remote.Location

	mu      sync.Mutex
	objects []remote.Object
	files   map[string]*remote.File
}

var _ remote.Store = (*Store)(nil)

// Open returns the directory at l, without a request.
func Open(l remote.Location, client *remote.Client) *Store {
	return &Store{client: client, base: l, files: map[string]*remote.File{}}
}

func (s *Store) String() string { return s.base.String() }

// List returns the files that Add found, in order of their names.
func (s *Store) List(context.Context) ([]remote.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.objects), nil
}

const asAtOnce = 8

// Add asks the server for files of the directory. Missing files are left out. Files that nobody may
// read count as missing, because some servers refuse missing files. refused is the answer for the
// first refused file, nil if none.
func (s *Store) Add(ctx context.Context, names ...string) (refused *remote.Refusal, err error) {
	ctx, stop := context.WithCancelCause(ctx) // ends the other requests
	defer stop(nil)
	err = cpu.Parallel(ctx, asAtOnce, len(names), func() func(i int) error {
		return func(i int) error {
			err := s.add(ctx, names[i])
			r, ok := errors.AsType[*remote.Refusal](err)
			if !ok {
				if err != nil {
					stop(err)
				}
				return err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if r.Status != http.StatusNotFound && refused == nil {
				refused = r
			}
			return nil
		}
	})
	slices.SortFunc(s.objects, func(a, b remote.Object) int { return strings.Compare(a.Name, b.Name) })
	return refused, err
}

func (s *Store) add(ctx context.Context, name string) error {
	if name == "" || path.Clean("/"+name) != "/"+name {
		return fmt.Errorf("%s: %q is not the name of a file", s, name)
	}
	r := &remote.Request{Name: strings.TrimSuffix(s.base.String(), "/") + "/" + name, URL: s.base.URL(name)}
	h, err := s.client.Stat(ctx, r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[name] == nil {
		s.files[name] = s.client.File(r, h.Size, h)
		s.objects = append(s.objects, remote.Object{Name: name, Size: h.Size, ETag: h.ETag, Modified: h.Modified})
	}
	return nil
}

func (s *Store) ReadAt(ctx context.Context, o remote.Object, dst []byte, off int64) error {
	s.mu.Lock()
	f := s.files[o.Name]
	s.mu.Unlock()
	if f == nil {
		return fmt.Errorf("%s: there is no file %q", s, o.Name)
	}
	return f.ReadAt(ctx, dst, off)
}
