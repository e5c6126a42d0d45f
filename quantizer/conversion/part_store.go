package conversion

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/part"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/pieces"
)

// PartStore is an object store in which parts make one object. The parts of the job are objects of their
// own beside it, which hold little more than records; the data are pieces of a multipart upload.
type PartStore interface {
	// PieceSize is the size of the pieces of an object of size bytes. The last one may be smaller.
	PieceSize(size int64) (int64, error)
	// Upload is the upload that all workers share: the oldest one. Without one it is begun. The object that is
	// made of it will have the mark.
	Upload(ctx context.Context, mark string) (PieceUpload, error)
	// Begin begins an upload, which is not shared.
	Begin(ctx context.Context, mark string) (PieceUpload, error)
	// Uploads lists the uploads that are not complete, the oldest first. It begins none.
	Uploads(ctx context.Context) ([]PieceUpload, error)
	// Join is the upload of that ID, with the mark that it is expected to have.
	Join(id, mark string) PieceUpload

	// List finds the parts as part.List does.
	List(ctx context.Context) (map[int][]bool, error)
	// Open opens a part for reading. The error wraps fs.ErrNotExist if it is not there.
	Open(ctx context.Context, t Part) (io.ReaderAt, int64, error)
	// Write writes a part. It appears when the store has all of data, and replaces an equal part that another
	// worker writes at the same time.
	Write(ctx context.Context, t Part, data []byte) error
	// Remove removes a part. A part that is not there is no error.
	Remove(ctx context.Context, t Part) error
	// Object opens the complete object. The error wraps fs.ErrNotExist if it is not there.
	Object(ctx context.Context) (r io.ReaderAt, size int64, mark string, err error)
}

// PieceUpload is a multipart upload. Pieces are numbered from 1.
type PieceUpload interface {
	ID() string
	// Put sends a piece, which replaces a piece with the same number. The error wraps ErrUploadGone if the
	// upload was aborted or is complete.
	Put(ctx context.Context, number int, data []byte) (part.Piece, error)
	// Pieces lists the pieces that are there. Its error wraps ErrUploadGone, as the error of Put does.
	Pieces(ctx context.Context) (map[int]StoredPiece, error)
	// Complete makes the object appear, of pieces with these ETags and sizes.
	Complete(ctx context.Context, list []StoredPiece) error
	// Abort removes the upload. An upload that is gone is no error.
	Abort(ctx context.Context) error
}

// StoredPiece describes a piece that a store has.
type StoredPiece struct {
	ETag string
	Size int64
	// CRC64NVME and CRC32C are the checksums that the store states, as in part.Piece. "": it states none.
	CRC64NVME, CRC32C string
}

// has reports whether the piece has the bytes of p. Another worker may have sent it again, so that its ETag
// need not be the one of p where ETags are not the MD5 of the bytes, as with encryption by SSE-KMS.
func (s StoredPiece) has(p part.Piece) bool {
	switch {
	case s.Size != p.Size:
		return false
	case s.CRC64NVME != "" || s.CRC32C != "":
		return (s.CRC64NVME == "" || s.CRC64NVME == string(p.CRC64NVME[:])) && (s.CRC32C == "" || s.CRC32C == string(p.CRC32C[:]))
	}
	return s.ETag == p.ETag || s.ETag == hex.EncodeToString(p.MD5[:])
}

// ErrUploadGone means that an upload was aborted or completed while a part was made for it.
var ErrUploadGone = errors.New("the part was made for an upload that was ended: run gq quantize again")

// mark is the mark of the object of a plan.
func mark(h *part.Header) string { return "plan-" + hex.EncodeToString(h.Plan[:]) }

// objectPieces takes the bytes of a .gqf file. It sends its own pieces when they are complete, with the packed
// headers in them; rest gets the bytes of other pieces.
type objectPieces struct {
	*pieces.Assembler
	image *gqf.Image
	size  int64 // of a piece
	own   func(i int64) bool
	rest  func(p []byte, off int64) error
}

func newObjectPieces(store PartStore, im *gqf.Image, send func(i int, data []byte) error) (objectPieces, error) {
	size, err := store.PieceSize(im.Size())
	if err != nil {
		return objectPieces{}, err
	}
	return objectPieces{image: im, size: size, Assembler: pieces.New(pieces.Options{
		Size: im.Size(), Piece: size, Send: send, Front: im.DataStart(), Expect: im.DataIn, Fill: im.FillHeaders,
	})}, nil
}

// WriteAt takes bytes of the file. No byte may be written twice.
func (s *objectPieces) WriteAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		i := at / s.size
		_, to := s.Bounds(int(i))
		piece := p[n:min(len(p), n+int(to-at))]
		if s.own(i) {
			_, err = s.Assembler.WriteAt(piece, at)
		} else {
			err = s.rest(piece, at)
		}
		if err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}

// division lists the pieces that a part sends, and the data of its share that belong to other pieces.
type division struct {
	own  map[int64]bool
	rest []part.Extent
}

// divide finds the pieces whose data are all in the extents.
func (s *objectPieces) divide(extents []part.Extent) division {
	d := division{own: map[int64]bool{}}
	have := map[int64]int64{}
	each := func(use func(i int64, e part.Extent)) {
		for _, e := range extents {
			for e.Len > 0 {
				i := e.Off / s.size
				_, to := s.Bounds(int(i))
				n := min(e.Len, to-e.Off)
				use(i, part.Extent{Off: e.Off, Len: n})
				e.Off, e.Len = e.Off+n, e.Len-n
			}
		}
	}
	each(func(i int64, e part.Extent) { have[i] += e.Len })
	for i, n := range have {
		if from, to := s.Bounds(int(i)); from >= s.image.DataStart() && s.image.DataIn(from, to) == n {
			d.own[i] = true
		}
	}
	each(func(i int64, e part.Extent) {
		if d.own[i] {
			return
		}
		if n := len(d.rest); n > 0 && d.rest[n-1].Off+d.rest[n-1].Len == e.Off {
			d.rest[n-1].Len += e.Len
			return
		}
		d.rest = append(d.rest, e)
	})
	return d
}

// partUpload makes a part of an object.
type partUpload struct {
	objectPieces
	division
	upload PieceUpload
	data   []byte // of rest
	place  part.Place

	mu   sync.Mutex
	sent map[int64]part.Piece
}

func newPartUpload(ctx context.Context, store PartStore, im *gqf.Image, h *part.Header, extents []part.Extent) (u *partUpload, err error) {
	u = &partUpload{sent: map[int64]part.Piece{}}
	u.objectPieces, err = newObjectPieces(store, im, func(i int, data []byte) error {
		p, err := u.upload.Put(ctx, i+1, data)
		u.mu.Lock()
		defer u.mu.Unlock()
		u.sent[int64(i)] = p
		return err
	})
	if err != nil {
		return nil, err
	}
	u.division = u.divide(extents)
	u.place, u.data = part.NewPlace(u.division.rest), make([]byte, part.DataBytes(u.division.rest))
	u.objectPieces.own = func(i int64) bool { return u.division.own[i] }
	u.objectPieces.rest = func(p []byte, off int64) error {
		at, err := u.place.Find(off, int64(len(p)))
		if err == nil {
			copy(u.data[at:], p)
		}
		return err
	}
	if len(u.division.own) > 0 { // else the merge sends all pieces
		u.upload, err = store.Upload(ctx, mark(h))
	}
	return u, err
}

// describe adds to a record the pieces that were sent and the data that the part itself holds. No sending may
// be under way.
func (u *partUpload) describe(r *part.Record) error {
	if u.upload != nil {
		r.Upload = u.upload.ID()
	}
	for _, i := range slices.Sorted(maps.Keys(u.division.own)) {
		p, ok := u.sent[i]
		if !ok {
			return fmt.Errorf("piece %d of the upload is incomplete", i+1)
		}
		r.Pieces = append(r.Pieces, p)
	}
	data := u.data
	for _, e := range u.division.rest {
		r.Stored = append(r.Stored, part.Stored{Extent: e, CRC: crc32c.Checksum(data[:e.Len])})
		data = data[e.Len:]
	}
	return nil
}

// sharedUpload is the upload that all workers share; nil: there is none.
func sharedUpload(ctx context.Context, store PartStore) (PieceUpload, error) {
	list, err := store.Uploads(ctx)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// sent reports whether all pieces of a record are in the upload that all workers share.
func sent(ctx context.Context, store PartStore, r *part.Record) (bool, error) {
	if len(r.Pieces) == 0 {
		return true, nil
	}
	u, err := sharedUpload(ctx, store)
	if err != nil || u == nil || u.ID() != r.Upload {
		return false, err
	}
	there, err := u.Pieces(ctx)
	if errors.Is(err, ErrUploadGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(r.Pieces, func(p part.Piece) bool { return !there[int(p.Number)].has(p) }), nil
}
