package s3

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/lowbit-go/gq/internal/pieces"
	"github.com/lowbit-go/gq/internal/remote"
)

// A Writer writes an object. Its memory is the parts that are being sent, at most 64 MiB or a
// single part, and the incomplete parts: a part per place at which the caller writes, and the part
// with the front of the file.
type Writer struct {
	upload *Upload
	parts  *pieces.Assembler
	ctx    context.Context
	stop   context.CancelFunc

	mu   sync.Mutex
	sent []Part
	done bool // committed or aborted
}

// Create begins to write the location's object of size bytes. gaps are ranges of bytes that will
// not be written and read as zeros. Omitting a gap only costs memory. Default (nil): none. ctx is
// the context of all requests.
func (b *Bucket) Create(ctx context.Context, size int64, gaps iter.Seq2[int64, int64]) (*Writer, error) {
	part, err := PartSize(size)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", b, err)
	}
	w := &Writer{}
	// Front: the part with the front of the file is the last.
	o := pieces.Options{Name: b.String(), Size: size, Piece: part, Front: 1, Send: w.send}
	if gaps != nil {
		in := make([]int64, (size+part-1)/part) // bytes of gaps, by part
		for from, to := range gaps {
			for from < to {
				i := from / part
				end := min(to, (i+1)*part)
				in[i] += end - from
				from = end
			}
		}
		o.Expect = func(from, to int64) int64 { return to - from - in[from/part] }
	}
	w.parts = pieces.New(o)
	w.sent = make([]Part, w.parts.Count())
	if w.upload, err = b.Begin(ctx, rand.Text()); err != nil {
		return nil, err
	}
	w.ctx, w.stop = context.WithCancel(ctx)
	return w, nil
}

func (w *Writer) send(i int, data []byte) error {
	p, err := w.upload.Put(w.ctx, i+1, data)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent[i] = p
	return err
}

// Check reports whether the location's object can be written, by beginning and aborting an upload.
func (b *Bucket) Check(ctx context.Context) error {
	u, err := b.Begin(ctx, "")
	if err != nil {
		return err
	}
	return u.Abort(ctx)
}

// AbortUnfinished aborts the uploads of the location's object that killed processes left.
// Credentials for writing need not include listing uploads.
func (b *Bucket) AbortUnfinished(ctx context.Context) error {
	list, err := b.unfinished(ctx)
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

// WriteAt writes p at the byte offset off, like io.WriterAt. No byte may be written twice.
func (w *Writer) WriteAt(p []byte, off int64) (n int, err error) { return w.parts.WriteAt(p, off) }

// Commit sends the remaining parts, the front of the file last, and completes the upload.
func (w *Writer) Commit() error {
	w.mu.Lock()
	done := w.done
	w.mu.Unlock()
	if done {
		return errors.New("the object is committed or aborted already")
	}
	if err := w.complete(); err != nil {
		w.Abort()
		return err
	}
	w.mu.Lock()
	w.done = true
	w.mu.Unlock()
	w.stop()
	return nil
}

func (w *Writer) complete() error {
	for i := w.parts.Count() - 1; i >= 0; i-- {
		if i == 0 {
			if err := w.parts.Wait(); err != nil {
				return err
			}
		}
		if err := w.parts.Flush(i); err != nil {
			return err
		}
	}
	if err := w.parts.Wait(); err != nil {
		return err
	}
	return w.upload.Complete(w.ctx, w.sent)
}

// abortTime bounds the request that removes an upload after the job's context has ended.
const abortTime = 20 * time.Second

// Abort removes the upload. The bucket keeps the former object. After Commit or Abort, Abort does
// nothing and can be deferred. If Abort fails, the next AbortUnfinished removes the upload.
func (w *Writer) Abort() {
	w.mu.Lock()
	done := w.done
	w.done = true
	w.mu.Unlock()
	if done {
		return
	}
	w.stop()
	_ = w.parts.Wait()
	_ = w.upload.abandon(w.ctx)
}

// PutStream writes the location's object from a stream of size bytes.
func (b *Bucket) PutStream(ctx context.Context, r io.Reader, size int64) error {
	if err := b.AbortUnfinished(ctx); err != nil {
		return err
	}
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
