package location

import (
	"context"
	"io"
	"iter"
	"strings"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/job/divide"
	"github.com/lowbit-go/gq/internal/job/part"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/s3"
)

// partStore keeps the parts of an object as objects with longer names. It implements
// divide.PartStore.
type partStore struct {
	location remote.Location // of the object
	client   *remote.Client
}

// Parts returns the store of the parts of an output; nil: the file system.
func (d *Destination) Parts() (divide.PartStore, error) {
	if d.bucket == nil {
		return nil, nil
	}
	l, err := remote.Parse(d.Name)
	return &partStore{l, remote.NewClient()}, err
}

// at is the object of that name. The name begins with the output's.
func (s *partStore) at(name string) (*s3.Bucket, error) {
	l := s.location
	l.Path += strings.TrimPrefix(name, l.String())
	return s3.Open(l, s.client)
}

func (s *partStore) List(ctx context.Context, name string) (map[int][]bool, error) {
	b, err := s.at(name)
	if err != nil {
		return nil, err
	}
	list, err := b.Beginning(ctx)
	names := make([]string, len(list))
	for i, o := range list {
		names[i] = o.Name
	}
	return part.Sort("", names), err
}

func (s *partStore) Open(ctx context.Context, name string) (*divide.StoredFile, error) {
	b, err := s.at(name)
	if err != nil {
		return nil, err
	}
	o, _, err := b.Stat(ctx)
	if err != nil {
		return nil, err
	}
	r := &objectReader{ctx: ctx, bucket: b, object: o}
	return &divide.StoredFile{ReaderAt: r, Size: o.Size, Close: func() error { return nil }}, nil
}

// Create aborts uploads that killed merges have begun. Uploads of parts may be those of another
// worker.
func (s *partStore) Create(ctx context.Context, name string, size int64, gaps iter.Seq2[int64, int64]) (write.Sink, error) {
	b, err := s.at(name)
	if err != nil {
		return nil, err
	}
	if name == s.location.String() {
		if err := b.AbortUnfinished(ctx); err != nil {
			return nil, err
		}
	}
	return b.Create(ctx, size, gaps)
}

func (s *partStore) RemoveParts(ctx context.Context, name string, of int) error {
	for i := of - 1; i >= 0; i-- {
		b, err := s.at(part.Path(name, i, of))
		if err == nil {
			err = b.AbortUnfinished(ctx)
		}
		if err == nil {
			err = b.Remove(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// objectReader reads an object by windows. A window that continues the former window is large, and
// is fetched by several requests at once.
type objectReader struct {
	ctx    context.Context
	bucket *s3.Bucket
	object remote.Object
	window []byte
	off    int64 // of the window
}

const (
	firstBytes   = 256 << 10 // of a window elsewhere: headers are small
	requestBytes = 4 << 20
	windowBytes  = 8 * requestBytes
)

// ReadAt implements io.ReaderAt, for one goroutine.
func (r *objectReader) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		if at >= r.object.Size {
			return n, io.EOF
		}
		if at < r.off || at >= r.off+int64(len(r.window)) {
			if err := r.fetch(at); err != nil {
				r.window = nil
				return n, err
			}
		}
		n += copy(p[n:], r.window[at-r.off:])
	}
	return n, nil
}

func (r *objectReader) fetch(off int64) error {
	size := int64(firstBytes)
	if r.window != nil && off == r.off+int64(len(r.window)) {
		size = windowBytes
	}
	if size = min(size, r.object.Size-off); int64(cap(r.window)) < size {
		r.window = make([]byte, size)
	}
	r.window, r.off = r.window[:size], off
	n := int((size + requestBytes - 1) / requestBytes)
	return cpu.Parallel(r.ctx, n, n, func() func(i int) error {
		return func(i int) error {
			from := int64(i) * requestBytes
			return r.bucket.ReadAt(r.ctx, r.object, r.window[from:min(size, from+requestBytes)], off+from)
		}
	})
}
