package gq

import (
	"context"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"

	"github.com/lowbit-go/gq/formats/part"
	"github.com/lowbit-go/gq/internal/crc32c"
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
func (s *partStore) Upload(ctx context.Context, mark string) (conversion.PieceUpload, error) {
	u, err := s.bucket.Share(ctx, mark)
	return pieceUpload{u}, err
}

// Begin implements conversion.PartStore.
func (s *partStore) Begin(ctx context.Context, mark string) (conversion.PieceUpload, error) {
	u, err := s.bucket.Begin(ctx, mark)
	return pieceUpload{u}, err
}

// Uploads implements conversion.PartStore.
func (s *partStore) Uploads(ctx context.Context) ([]conversion.PieceUpload, error) {
	found, err := s.bucket.Unfinished(ctx)
	list := make([]conversion.PieceUpload, len(found))
	for i, u := range found {
		list[i] = pieceUpload{u}
	}
	return list, err
}

// Join implements conversion.PartStore.
func (s *partStore) Join(id, mark string) conversion.PieceUpload {
	return pieceUpload{s.bucket.Join(id, mark)}
}

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
	r, size, _, err := s.open(ctx, suffixOf(t))
	return r, size, err
}

// Object implements conversion.PartStore.
func (s *partStore) Object(ctx context.Context) (r io.ReaderAt, size int64, mark string, err error) {
	return s.open(ctx, "")
}

func (s *partStore) open(ctx context.Context, suffix string) (r io.ReaderAt, size int64, mark string, err error) {
	b, err := s.beside(suffix)
	if err != nil {
		return nil, 0, "", err
	}
	o, mark, err := b.Stat(ctx)
	if err != nil {
		return nil, 0, "", err
	}
	return &objectReader{ctx: ctx, bucket: b, object: o}, o.Size, mark, nil
}

// Write implements conversion.PartStore.
func (s *partStore) Write(ctx context.Context, t conversion.Part, data []byte) error {
	b, err := s.beside(suffixOf(t))
	if err != nil {
		return err
	}
	return b.Put(ctx, data)
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

// nvme is the polynomial of CRC64NVME, which Amazon S3 computes of parts by itself.
var nvme = crc64.MakeTable(0x9A6C9329AC4BC9B5)

// Put implements conversion.PieceUpload.
func (u pieceUpload) Put(ctx context.Context, number int, data []byte) (part.Piece, error) {
	p, err := u.Upload.Put(ctx, number, data)
	piece := part.Piece{Number: uint32(number), Size: p.Size, ETag: remote.NormalETag(p.ETag), MD5: md5.Sum(data)}
	binary.BigEndian.PutUint64(piece.CRC64NVME[:], crc64.Checksum(data, nvme))
	binary.BigEndian.PutUint32(piece.CRC32C[:], crc32c.Checksum(data))
	return piece, gone(err)
}

// gone names the error of an upload that is gone.
func gone(err error) error {
	if errors.Is(err, s3.ErrUploadGone) {
		return fmt.Errorf("%w: %w", conversion.ErrUploadGone, err)
	}
	return err
}

// Pieces implements conversion.PieceUpload.
func (u pieceUpload) Pieces(ctx context.Context) (map[int]conversion.StoredPiece, error) {
	list, err := u.Parts(ctx)
	pieces := make(map[int]conversion.StoredPiece, len(list))
	for _, p := range list {
		pieces[p.Number] = conversion.StoredPiece{ETag: p.ETag, Size: p.Size, CRC64NVME: p.CRC64NVME, CRC32C: p.CRC32C}
	}
	return pieces, gone(err)
}

// Complete implements conversion.PieceUpload.
func (u pieceUpload) Complete(ctx context.Context, pieces []conversion.StoredPiece) error {
	list := make([]s3.Part, len(pieces))
	for i, p := range pieces {
		list[i] = s3.Part{Number: i + 1, Size: p.Size, ETag: p.ETag}
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
