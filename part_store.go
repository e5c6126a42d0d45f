package gq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/lowbit-go/gq/formats/part"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/s3"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// partStore keeps the parts of an object beside it, and their data in one multipart upload.
type partStore struct {
	location remote.Location
	client   *remote.Client
	bucket   *s3.Bucket // the object
}

func newPartStore(name string) (*partStore, error) {
	l, err := remote.Parse(name)
	if err != nil {
		return nil, err
	}
	s := &partStore{location: l, client: remote.NewClient()}
	s.bucket, err = s3.Open(l, s.client)
	return s, err
}

// beside is the object whose name is the object's and suffix.
func (s *partStore) beside(suffix string) (*s3.Bucket, error) {
	l := s.location
	l.Path += suffix
	return s3.Open(l, s.client)
}

func suffixOf(t conversion.Part) string { return part.Path("", t.Index, t.Of) }

// PieceSize implements conversion.PartStore.
func (s *partStore) PieceSize(size int64) (int64, error) { return s3.PartSize(size) }

// Upload implements conversion.PartStore.
func (s *partStore) Upload(ctx context.Context) (conversion.PieceUpload, error) {
	u, err := s.bucket.Share(ctx)
	return pieceUpload{u}, err
}

// Find implements conversion.PartStore.
func (s *partStore) Find(ctx context.Context) (conversion.PieceUpload, error) {
	u, err := s.bucket.Find(ctx)
	if u == nil {
		return nil, err
	}
	return pieceUpload{u}, err
}

// Join implements conversion.PartStore.
func (s *partStore) Join(id string) conversion.PieceUpload { return pieceUpload{s.bucket.Join(id)} }

// List implements conversion.PartStore.
func (s *partStore) List(ctx context.Context) (map[int][]bool, error) {
	list, err := s.bucket.Beginning(ctx)
	names := make([]string, len(list))
	for i, o := range list {
		names[i] = o.Name
	}
	return part.Sort("", names), err
}

// Open implements conversion.PartStore.
func (s *partStore) Open(ctx context.Context, t conversion.Part) (io.ReaderAt, int64, error) {
	return s.open(ctx, suffixOf(t))
}

// Object implements conversion.PartStore.
func (s *partStore) Object(ctx context.Context) (io.ReaderAt, int64, error) { return s.open(ctx, "") }

func (s *partStore) open(ctx context.Context, suffix string) (io.ReaderAt, int64, error) {
	b, err := s.beside(suffix)
	if err != nil {
		return nil, 0, err
	}
	list, err := b.Beginning(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, o := range list {
		if o.Name == "" {
			return &objectReader{ctx: ctx, bucket: b, object: o}, o.Size, nil
		}
	}
	return nil, 0, fmt.Errorf("%v: %w", b, fs.ErrNotExist)
}

// Write implements conversion.PartStore.
func (s *partStore) Write(ctx context.Context, t conversion.Part, size int64, write func(w io.WriterAt) error) error {
	b, err := s.beside(suffixOf(t))
	if err != nil {
		return err
	}
	w, err := b.Create(ctx, size, nil)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := write(w); err != nil {
		return err
	}
	return w.Commit()
}

// Remove implements conversion.PartStore.
func (s *partStore) Remove(ctx context.Context, t conversion.Part) error {
	b, err := s.beside(suffixOf(t))
	if err != nil {
		return err
	}
	return b.Remove(ctx)
}

// pieceUpload makes an s3.Upload a conversion.PieceUpload.
type pieceUpload struct{ *s3.Upload }

// Put implements conversion.PieceUpload.
func (u pieceUpload) Put(ctx context.Context, number int, data []byte) (string, error) {
	p, err := u.Upload.Put(ctx, number, data)
	if errors.Is(err, s3.ErrUploadGone) {
		err = fmt.Errorf("%w: %w", conversion.ErrUploadGone, err)
	}
	return remote.NormalETag(p.ETag), err
}

// Pieces implements conversion.PieceUpload.
func (u pieceUpload) Pieces(ctx context.Context) (map[int]string, error) {
	list, err := u.Parts(ctx)
	pieces := make(map[int]string, len(list))
	for _, p := range list {
		pieces[p.Number] = p.ETag
	}
	return pieces, err
}

// Complete implements conversion.PieceUpload.
func (u pieceUpload) Complete(ctx context.Context, etags []string) error {
	list := make([]s3.Part, len(etags))
	for i, e := range etags {
		list[i] = s3.Part{Number: i + 1, ETag: e}
	}
	return u.Upload.Complete(ctx, list)
}

// objectReader reads an object by requests of windowBytes.
type objectReader struct {
	ctx    context.Context
	bucket *s3.Bucket
	object remote.Object
	window []byte
	off    int64 // of the window
}

const windowBytes = 4 << 20

// ReadAt implements io.ReaderAt, for one goroutine.
func (r *objectReader) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		if at >= r.object.Size {
			return n, io.EOF
		}
		if at < r.off || at >= r.off+int64(len(r.window)) {
			r.window, r.off = make([]byte, min(windowBytes, r.object.Size-at)), at
			if err := r.bucket.ReadAt(r.ctx, r.object, r.window, at); err != nil {
				r.window = nil
				return n, err
			}
		}
		n += copy(p[n:], r.window[at-r.off:])
	}
	return n, nil
}
