package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/lowbit-go/gq/internal/remote"
)

// sendingBytes bounds the parts that are being sent, and maxSending their number. At least one is sent.
const (
	sendingBytes = 64 << 20
	maxSending   = 8
)

// A Writer writes one object. Its memory is the parts that are being sent, at most 64 MiB or one part, and
// the parts that are not complete: as many as there are places at which the caller writes, and the part
// with the front of the file.
type Writer struct {
	upload *Upload
	size   int64
	part   int64 // bytes of a part
	limit  int   // of parts that are being sent
	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup // of parts that are being sent

	mu      sync.Mutex
	changed *sync.Cond
	pieces  []piece
	sending int
	free    [][]byte // buffers
	err     error    // of the first part that could not be sent
	done    bool     // committed or aborted
}

// piece is a part of the object.
type piece struct {
	data    []byte // nil: nothing is written yet, or it is sent
	missing int64  // bytes that are not written yet
	begun   bool   // it is being sent, or it is sent
	sent    Part
}

// Create begins to write the location's object, which will have size bytes, and aborts unfinished uploads
// that a killed process left. Nothing will be written to the gaps, which read as zeros: ranges of bytes.
// A gap that is not stated costs memory only. Default (nil): none. ctx is the context of all requests.
func (b *Bucket) Create(ctx context.Context, size int64, gaps iter.Seq2[int64, int64]) (*Writer, error) {
	part, err := PartSize(size)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", b, err)
	}
	if err := b.abortUnfinished(ctx); err != nil {
		return nil, err
	}
	w := &Writer{size: size, part: part, limit: int(min(max(1, sendingBytes/part), maxSending))}
	w.changed = sync.NewCond(&w.mu)
	w.pieces = make([]piece, max(1, (size+part-1)/part))
	for i := range w.pieces {
		w.pieces[i].missing = w.bytes(i)
	}
	if gaps != nil {
		for from, to := range gaps {
			w.skip(from, to)
		}
	}
	if w.upload, err = b.Begin(ctx); err != nil {
		return nil, err
	}
	w.ctx, w.stop = context.WithCancel(ctx)
	return w, nil
}

// skip notes that bytes are not written.
func (w *Writer) skip(from, to int64) {
	for from < to {
		i := from / w.part
		end := min(to, (i+1)*w.part)
		w.pieces[i].missing -= end - from
		from = end
	}
}

// Check reports whether the location's object can be written: it begins an upload and aborts it.
func (b *Bucket) Check(ctx context.Context) error {
	u, err := b.Begin(ctx)
	if err != nil {
		return err
	}
	return u.Abort(ctx)
}

// abortUnfinished aborts the uploads that killed processes left. Credentials that may write need not be
// allowed to list them.
func (b *Bucket) abortUnfinished(ctx context.Context) error {
	list, err := b.Unfinished(ctx)
	if err != nil {
		if ctx.Err() == nil && b.client.Log != nil {
			b.client.Log(fmt.Sprintf("%v; unfinished uploads of earlier jobs stay there, if there are any", err))
		}
		return ctx.Err()
	}
	for _, u := range list {
		if err := u.Abort(ctx); err != nil {
			return err
		}
	}
	return nil
}

// bytes is the size of part i, from 0.
func (w *Writer) bytes(i int) int64 { return min(w.part, w.size-int64(i)*w.part) }

// WriteAt writes p at the byte offset off, like io.WriterAt. No byte may be written twice.
func (w *Writer) WriteAt(p []byte, off int64) (n int, err error) {
	if off < 0 || off > w.size || int64(len(p)) > w.size-off {
		return 0, fmt.Errorf("%v: bytes %d to %d of an object of %d bytes", w.upload.bucket, off, off+int64(len(p)), w.size)
	}
	for n < len(p) {
		at := off + int64(n)
		i := int(at / w.part)
		data, err := w.buffer(i)
		if err != nil {
			return n, err
		}
		k := copy(data[at-int64(i)*w.part:], p[n:])
		w.written(i, int64(k))
		n += k
	}
	return n, nil
}

// buffer returns the buffer of part i. It waits for a place if the part has none yet.
func (w *Writer) buffer(i int) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &w.pieces[i]
	for w.err == nil && p.data == nil && !p.begun && w.sending >= w.limit {
		w.changed.Wait()
	}
	switch {
	case w.err != nil:
		return nil, w.err
	case p.begun:
		return nil, fmt.Errorf("%v: part %d was sent already: bytes are written twice", w.upload.bucket, i+1)
	case p.data == nil:
		p.data = w.take(w.bytes(i))
	}
	return p.data, nil
}

// take returns a buffer of zeros.
func (w *Writer) take(n int64) []byte {
	if k := len(w.free); k > 0 {
		b := w.free[k-1][:n]
		w.free = w.free[:k-1]
		clear(b)
		return b
	}
	return make([]byte, n, w.part)
}

// written counts n bytes, and sends a part when it is complete.
func (w *Writer) written(i int, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pieces[i].missing -= n; w.pieces[i].missing <= 0 && i > 0 {
		w.send(i)
	}
}

// send begins to send part i. The caller holds the lock.
func (w *Writer) send(i int) {
	p := &w.pieces[i]
	p.begun = true
	w.sending++
	w.wg.Go(func() {
		sent, err := w.upload.Put(w.ctx, i+1, p.data)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sending--
		w.free = append(w.free, p.data)
		p.data, p.sent = nil, sent
		if err != nil && w.err == nil {
			w.err = err
		}
		w.changed.Broadcast()
	})
}

// Commit sends what is left, the front of the file last, and makes the object appear.
func (w *Writer) Commit() error {
	w.mu.Lock()
	if w.done {
		w.mu.Unlock()
		return errors.New("the object is committed or aborted already")
	}
	w.mu.Unlock()
	for i := len(w.pieces) - 1; i >= 0; i-- {
		if i == 0 {
			w.wg.Wait()
		}
		if err := w.flush(i); err != nil {
			w.Abort()
			return err
		}
	}
	w.wg.Wait()
	parts := make([]Part, len(w.pieces))
	for i := range w.pieces {
		parts[i] = w.pieces[i].sent
	}
	err := w.err
	if err == nil {
		err = w.upload.Complete(w.ctx, parts)
	}
	if err != nil {
		w.Abort()
		return err
	}
	w.done = true
	w.stop()
	return nil
}

// flush begins to send part i, if it is not sent yet.
func (w *Writer) flush(i int) error {
	if w.pieces[i].begun { // only Commit's goroutine begins parts now
		return nil
	}
	if _, err := w.buffer(i); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.send(i)
	return nil
}

// abortTime bounds the request that removes an upload after the job's context has ended.
const abortTime = 20 * time.Second

// Abort removes the upload: the bucket holds what it held before. It does nothing after Commit or Abort, so
// it can be deferred. If it fails, the next Create removes the upload.
func (w *Writer) Abort() {
	w.mu.Lock()
	done := w.done
	w.done = true
	w.mu.Unlock()
	if done {
		return
	}
	w.stop()
	w.wg.Wait()
	ctx, stop := context.WithTimeout(context.WithoutCancel(w.ctx), abortTime)
	defer stop()
	_ = w.upload.Abort(ctx)
}

// PutStream writes the location's object from a stream of size bytes.
func (b *Bucket) PutStream(ctx context.Context, r io.Reader, size int64) error {
	w, err := b.Create(ctx, size, nil)
	if err != nil {
		return err
	}
	defer w.Abort()
	// The last part is sent by Commit with the first.
	n, err := io.CopyBuffer(io.NewOffsetWriter(w, 0), struct{ io.Reader }{r}, make([]byte, 1<<20))
	switch {
	case err != nil:
		return err
	case n != size:
		return fmt.Errorf("%v: the file has %d bytes, expected %d: it changed while it was uploaded", b, n, size)
	}
	return w.Commit()
}

var _ remote.Store = (*Bucket)(nil)
