package conversion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/part"
	"github.com/lowbit-go/gq/internal/crc32c"
)

// PartStore is an object store in which parts make one object. The parts of the job are objects of their
// own beside it, which hold little more than records; the data are pieces of a multipart upload.
type PartStore interface {
	// PieceSize is the size of the pieces of an object of size bytes. The last one may be smaller.
	PieceSize(size int64) (int64, error)
	// Upload is the upload that all workers share. Without one it is begun.
	Upload(ctx context.Context) (PieceUpload, error)
	// Find is the upload that Upload returns, or nil if there is none: it begins none.
	Find(ctx context.Context) (PieceUpload, error)
	// Join is the upload of that ID.
	Join(id string) PieceUpload

	// List finds the parts as part.List does.
	List(ctx context.Context) (map[int][]bool, error)
	// Open opens a part for reading. The error wraps fs.ErrNotExist if it is not there.
	Open(ctx context.Context, t Part) (io.ReaderAt, int64, error)
	// Write writes a part of size bytes, which appears when write has written them.
	Write(ctx context.Context, t Part, size int64, write func(w io.WriterAt) error) error
	// Remove removes a part. A part that is not there is no error.
	Remove(ctx context.Context, t Part) error
	// Object opens the complete object.
	Object(ctx context.Context) (io.ReaderAt, int64, error)
}

// PieceUpload is a multipart upload. Pieces are numbered from 1.
type PieceUpload interface {
	ID() string
	// Put sends a piece. The error wraps ErrUploadGone if the upload was aborted or is complete.
	Put(ctx context.Context, number int, data []byte) (etag string, err error)
	// Pieces lists the ETags of the pieces that are there.
	Pieces(ctx context.Context) (map[int]string, error)
	// Complete makes the object appear, of the pieces with these ETags.
	Complete(ctx context.Context, etags []string) error
}

// ErrUploadGone means that an upload was aborted or completed while a part was made for it.
var ErrUploadGone = errors.New("the part was made for an upload that was ended: run gq quantize again")

// pieces collects the bytes of pieces of a .gqf file, and puts a piece when its data are there. It adds the
// packed headers itself.
type pieces struct {
	image *gqf.Image
	size  int64 // of a piece
	own   func(i int64) bool
	put   func(i int64, data []byte) error
	rest  func(p []byte, off int64) error // gets the bytes of other pieces

	mu   sync.Mutex
	open map[int64]*openPiece
}

type openPiece struct {
	data    []byte
	missing int64 // bytes of data that are not there
}

// count is the number of pieces of a file.
func (s *pieces) count() int64 { return (s.image.Size() + s.size - 1) / s.size }

// bounds are where piece i begins and ends in the file.
func (s *pieces) bounds(i int64) (from, to int64) {
	return i * s.size, min((i+1)*s.size, s.image.Size())
}

// WriteAt takes bytes of the file; p is not used afterwards. No byte may be written twice.
func (s *pieces) WriteAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		i := at / s.size
		from, to := s.bounds(i)
		piece := p[n:min(len(p), n+int(to-at))]
		if s.own(i) {
			err = s.add(i, piece, at-from)
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

// add puts bytes to their place in piece i.
func (s *pieces) add(i int64, p []byte, at int64) error {
	s.mu.Lock()
	o := s.piece(i)
	copy(o.data[at:], p)
	from, _ := s.bounds(i)
	if from < s.image.DataStart() { // the front comes last
		s.mu.Unlock()
		return nil
	}
	o.missing -= int64(len(p))
	if o.missing > 0 {
		s.mu.Unlock()
		return nil
	}
	delete(s.open, i)
	s.mu.Unlock()
	return s.put(i, o.data)
}

// piece returns the open piece i. The caller holds the lock.
func (s *pieces) piece(i int64) *openPiece {
	o := s.open[i]
	if o == nil {
		from, to := s.bounds(i)
		o = &openPiece{data: make([]byte, to-from), missing: s.image.DataIn(from, to)}
		s.image.FillHeaders(o.data, from)
		if s.open == nil {
			s.open = map[int64]*openPiece{}
		}
		s.open[i] = o
	}
	return o
}

// flush puts all open pieces, and own pieces without data.
func (s *pieces) flush() error {
	for i := range s.count() {
		if from, to := s.bounds(i); s.own(i) && (s.open[i] != nil || s.image.DataIn(from, to) == 0) {
			if err := s.put(i, s.piece(i).data); err != nil {
				return err
			}
			delete(s.open, i)
		}
	}
	return nil
}

// division says which pieces a part sends, and what data of its share are in other pieces.
type division struct {
	own  map[int64]bool
	rest []part.Extent
}

// divide finds the pieces all of whose data are in the extents.
func (s *pieces) divide(extents []part.Extent) division {
	d := division{own: map[int64]bool{}}
	have := map[int64]int64{}
	each := func(use func(i int64, e part.Extent)) {
		for _, e := range extents {
			for e.Len > 0 {
				i := e.Off / s.size
				_, to := s.bounds(i)
				n := min(e.Len, to-e.Off)
				use(i, part.Extent{Off: e.Off, Len: n})
				e.Off, e.Len = e.Off+n, e.Len-n
			}
		}
	}
	each(func(i int64, e part.Extent) { have[i] += e.Len })
	for i, n := range have {
		if from, to := s.bounds(i); from >= s.image.DataStart() && s.image.DataIn(from, to) == n {
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
	pieces
	division
	ctx    context.Context
	upload PieceUpload
	data   []byte // of rest
	place  part.Place

	mu    sync.Mutex
	etags map[int64]string
}

func newPartUpload(ctx context.Context, store PartStore, im *gqf.Image, extents []part.Extent) (*partUpload, error) {
	size, err := store.PieceSize(im.Size())
	if err != nil {
		return nil, err
	}
	u := &partUpload{ctx: ctx, pieces: pieces{image: im, size: size}, etags: map[int64]string{}}
	u.division = u.divide(extents)
	u.place, u.data = part.NewPlace(u.division.rest), make([]byte, part.DataBytes(u.division.rest))
	u.pieces.own = func(i int64) bool { return u.division.own[i] }
	u.pieces.rest = func(p []byte, off int64) error {
		at, err := u.place.Find(off, int64(len(p)))
		if err == nil {
			copy(u.data[at:], p)
		}
		return err
	}
	u.pieces.put = func(i int64, data []byte) error {
		etag, err := u.upload.Put(u.ctx, int(i)+1, data)
		u.mu.Lock()
		defer u.mu.Unlock()
		u.etags[i] = etag
		return err
	}
	if u.upload, err = store.Upload(ctx); err != nil {
		return nil, err
	}
	return u, nil
}

// describe adds to a record what was sent and what is in the part itself.
func (u *partUpload) describe(r *part.Record) error {
	r.Upload = u.upload.ID()
	for _, i := range slices.Sorted(maps.Keys(u.division.own)) {
		if u.etags[i] == "" {
			return fmt.Errorf("piece %d of the upload is incomplete", i+1)
		}
		r.Pieces = append(r.Pieces, part.Piece{Number: uint32(i + 1), ETag: u.etags[i]})
	}
	data := u.data
	for _, e := range u.division.rest {
		r.Stored = append(r.Stored, part.Stored{Extent: e, CRC: crc32c.Checksum(data[:e.Len])})
		data = data[e.Len:]
	}
	return nil
}

// sent reports whether all pieces of a record are in the upload that all workers share.
func sent(ctx context.Context, store PartStore, r *part.Record) (bool, error) {
	if len(r.Pieces) == 0 {
		return true, nil
	}
	u, err := store.Find(ctx)
	if err != nil || u == nil || u.ID() != r.Upload {
		return false, err
	}
	there, err := u.Pieces(ctx)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(r.Pieces, func(p part.Piece) bool { return there[int(p.Number)] != p.ETag }), nil
}

// mergedObject is the object that a merge completes.
type mergedObject struct {
	pieces
	upload PieceUpload
	there  map[int]string // the ETags of the pieces in the upload
	etags  []string       // of the pieces that belong to the object
}

func newMergedObject(ctx context.Context, store PartStore, im *gqf.Image) (*mergedObject, error) {
	size, err := store.PieceSize(im.Size())
	if err != nil {
		return nil, err
	}
	m := &mergedObject{pieces: pieces{image: im, size: size}}
	m.etags = make([]string, m.count())
	m.own = func(i int64) bool { return m.etags[i] == "" }
	m.rest = func([]byte, int64) error {
		return fmt.Errorf("two parts have data of one piece that one of them has sent")
	}
	m.put = func(i int64, data []byte) (err error) {
		m.etags[i], err = m.upload.Put(ctx, int(i)+1, data)
		return err
	}
	if m.upload, err = store.Upload(ctx); err != nil {
		return nil, err
	}
	m.there, err = m.upload.Pieces(ctx)
	return m, err
}

// add checks that the pieces of a part are in the upload, and adds the data that the part itself has.
func (m *mergedObject) add(ctx context.Context, f *part.File, r *part.Record, progress func(int64)) error {
	d := m.divide(r.Extents)
	if len(d.own) != len(r.Pieces) || !slices.Equal(d.rest, r.StoredExtents()) {
		return badf("its pieces are not those of its share: it was made for pieces of another size")
	}
	if len(r.Pieces) > 0 && r.Upload != m.upload.ID() {
		return badf("its pieces are in an upload that was ended")
	}
	for _, p := range r.Pieces {
		i := int64(p.Number) - 1
		switch {
		case !d.own[i] || m.etags[i] != "":
			return badf("piece %d of the upload is not of its share alone", p.Number)
		case m.there[int(p.Number)] != p.ETag:
			return badf("piece %d of the upload is missing, or another one", p.Number)
		}
		m.etags[i] = p.ETag
	}
	err := r.CheckStored(f.Find(r.StoredExtents()), func(p []byte, off int64) error {
		if progress != nil {
			progress(int64(len(p)))
		}
		_, err := m.WriteAt(p, off)
		return cmp.Or(ctx.Err(), err)
	})
	if _, damaged := errors.AsType[*part.DamageError](err); damaged {
		return badPart{err}
	}
	return err
}

// complete makes the object appear, once its front is written.
func (m *mergedObject) complete(ctx context.Context) error {
	if err := m.flush(); err != nil {
		return err
	}
	if i := slices.Index(m.etags, ""); i >= 0 {
		return fmt.Errorf("piece %d of the upload is incomplete", i+1)
	}
	return m.upload.Complete(ctx, m.etags)
}
