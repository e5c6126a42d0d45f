package conversion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/part"
)

// mergedObject is the object that a merge completes.
type mergedObject struct {
	objectPieces
	store  PartStore
	mark   string
	upload PieceUpload         // of the workers; nil: there is none
	others []PieceUpload       // that killed workers have begun, and no worker sends pieces to
	there  map[int]StoredPiece // the pieces in the upload
	theirs map[int64]bool      // pieces that workers have sent

	mu    sync.Mutex
	begun bool          // the merge has begun the upload itself
	list  []StoredPiece // the pieces that belong to the object
}

func newMergedObject(ctx context.Context, store PartStore, im *gqf.Image, h *part.Header) (m *mergedObject, err error) {
	m = &mergedObject{store: store, mark: mark(h), theirs: map[int64]bool{}}
	m.objectPieces, err = newObjectPieces(store, im, func(i int, data []byte) error {
		u, err := m.ensure(ctx)
		if err != nil {
			return err
		}
		p, err := u.Put(ctx, i+1, data)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.list[i] = StoredPiece{ETag: p.ETag, Size: p.Size}
		return err
	})
	if err != nil {
		return nil, err
	}
	m.list = make([]StoredPiece, m.Count())
	m.objectPieces.own = func(i int64) bool { return !m.theirs[i] }
	m.objectPieces.rest = func([]byte, int64) error {
		return fmt.Errorf("two parts have data of one piece that one of them has sent")
	}
	list, err := store.Uploads(ctx)
	if err != nil || len(list) == 0 {
		return m, err
	}
	m.upload, m.others = store.Join(list[0].ID(), m.mark), list[1:]
	if m.there, err = m.upload.Pieces(ctx); errors.Is(err, ErrUploadGone) {
		m.upload, err = nil, nil
	}
	return m, err
}

// ensure returns the upload. A merge of parts that are too small to send pieces begins it.
func (m *mergedObject) ensure(ctx context.Context) (PieceUpload, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.upload != nil {
		return m.upload, nil
	}
	u, err := m.store.Begin(ctx, m.mark)
	if err == nil {
		m.upload, m.begun = u, true
	}
	return u, err
}

// add checks that the pieces of a part are in the upload, and adds the data that the part itself has.
func (m *mergedObject) add(ctx context.Context, f *part.File, r *part.Record, progress func(int64)) error {
	d := m.divide(r.Extents)
	if len(d.own) != len(r.Pieces) || !slices.Equal(d.rest, r.StoredExtents()) {
		return badf("its pieces are not those of its share: it was made for pieces of another size")
	}
	if len(r.Pieces) > 0 && (m.there == nil || r.Upload != m.upload.ID()) {
		return badf("its pieces are in an upload that was ended")
	}
	for _, p := range r.Pieces {
		i := int64(p.Number) - 1
		s := m.there[int(p.Number)]
		switch {
		case !d.own[i] || m.theirs[i]:
			return badf("piece %d of the upload is not of its share alone", p.Number)
		case !s.has(p):
			return badf("piece %d of the upload is missing, or another one", p.Number)
		}
		m.theirs[i] = true
		m.mu.Lock()
		m.list[i] = s
		m.mu.Unlock()
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
	for i := m.Count() - 1; i >= 0; i-- {
		if m.theirs[int64(i)] {
			continue
		}
		if err := m.Flush(i); err != nil {
			return err
		}
	}
	if err := m.Wait(); err != nil {
		return err
	}
	u, err := m.ensure(ctx)
	if err != nil {
		return err
	}
	if err := u.Complete(ctx, m.list); err != nil {
		return err
	}
	m.begun = false
	for _, u := range m.others {
		_ = u.Abort(ctx) // they cost space, and the object is complete
	}
	return nil
}

// abortTime bounds the request that removes an upload after the merge's context has ended.
const abortTime = 20 * time.Second

// abort removes the upload that the merge has begun itself. The workers' upload stays.
func (m *mergedObject) abort(ctx context.Context) {
	_ = m.Wait()
	if !m.begun {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer stop()
	_ = m.upload.Abort(ctx)
}
