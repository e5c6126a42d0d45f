// Package web reads the files of a directory of a web server, or of an object store's or a file share's
// HTTPS address.
//
// A web server lists no files, so files are asked for by name. A query in the URL of the directory, such
// as a signature, is sent with each request.
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

	"github.com/lowbit-go/gq/internal/remote"
)

// A Store is a directory of a web server. It is a remote.Store, whose List has the files that Add found.
type Store struct {
	client *remote.Client
	base   remote.Location

	mu      sync.Mutex
	objects []remote.Object
	files   map[string]*remote.File
}

var _ remote.Store = (*Store)(nil)

// Open returns the directory at l. It sends nothing.
func Open(l remote.Location, client *remote.Client) *Store {
	return &Store{client: client, base: l, files: map[string]*remote.File{}}
}

// String returns the location without credentials.
func (s *Store) String() string { return s.base.String() }

// List returns the files that Add found, in order of their names.
func (s *Store) List(context.Context) ([]remote.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.objects), nil
}

// asAtOnce is the number of files that are asked for at once.
const asAtOnce = 8

// Add asks the server for files of the directory. Files that are not there are left out; those that the
// server does not let anybody read count as not there, because some servers say so of missing files.
// It returns the answer of the first file that was refused so, nil if there is none.
func (s *Store) Add(ctx context.Context, names ...string) (refused *remote.Refusal, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := make(chan string)
	var wg sync.WaitGroup
	for range asAtOnce {
		wg.Go(func() {
			for name := range queue {
				e := s.add(ctx, name)
				s.mu.Lock()
				if r, ok := errors.AsType[*remote.Refusal](e); ok {
					if r.Status != http.StatusNotFound && refused == nil {
						refused = r
					}
				} else if e != nil && err == nil {
					err = e
					cancel()
				}
				s.mu.Unlock()
			}
		})
	}
	for _, name := range names {
		queue <- name
	}
	close(queue)
	wg.Wait()
	slices.SortFunc(s.objects, func(a, b remote.Object) int { return strings.Compare(a.Name, b.Name) })
	return refused, err
}

// add asks the server for one file.
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

// ReadAt fills dst with the object's bytes from off on.
func (s *Store) ReadAt(ctx context.Context, o remote.Object, dst []byte, off int64) error {
	s.mu.Lock()
	f := s.files[o.Name]
	s.mu.Unlock()
	if f == nil {
		return fmt.Errorf("%s: there is no file %q", s, o.Name)
	}
	return f.ReadAt(ctx, dst, off)
}
