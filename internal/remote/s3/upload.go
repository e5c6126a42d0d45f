package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/lowbit-go/gq/internal/pieces"
	"github.com/lowbit-go/gq/internal/remote"
)

const (
	minPartBytes = 5 << 20 // of all parts but the last
	maxPartBytes = 5 << 30
	maxParts     = 10_000
)

// preferredPartBytes is the size of parts of all files up to 80 GB: uploads of smaller parts spend
// more of the time on requests.
const preferredPartBytes = 8 << 20

// PartSize returns the size of the parts of an object: the least multiple of 1 MiB that allows S3's
// number of parts. All parts but the last have this size, as R2 demands.
func PartSize(size int64) (int64, error) {
	n := max(preferredPartBytes, (size+maxParts-1)/maxParts)
	n = (n + 1<<20 - 1) &^ (1<<20 - 1)
	if n > maxPartBytes {
		return 0, fmt.Errorf("%d bytes are more than an object store takes in one object", size)
	}
	return n, nil
}

// An Upload is an object in the course of sending its parts. Several goroutines may call methods.
type Upload struct {
	bucket *Bucket
	id     string
	mark   string // of the object, see Begin
}

type Part struct {
	Number int // from 1
	Size   int64
	ETag   string
}

const markKey = "gq-mark"

// Begin begins an upload of the location's object, with the mark in its metadata. Complete
// recognizes the object by the mark.
func (b *Bucket) Begin(ctx context.Context, mark string) (*Upload, error) {
	u := &Upload{bucket: b, mark: mark}
	o := minio.PutObjectOptions{ContentType: "application/octet-stream"}
	if mark != "" {
		o.UserMetadata = map[string]string{markKey: mark}
	}
	err := b.do(ctx, b.String(), func(ctx context.Context) (n int, err error) {
		u.id, err = b.api().NewMultipartUpload(ctx, b.location.Host, b.key(""), o)
		return 0, err
	})
	return u, err
}

// unfinished lists the incomplete uploads of the location's object, without marks.
func (b *Bucket) unfinished(ctx context.Context) (list []*Upload, err error) {
	err = b.do(ctx, b.String(), func(ctx context.Context) (int, error) {
		list = nil
		key, id := "", ""
		for {
			r, err := b.api().ListMultipartUploads(ctx, b.location.Host, b.key(""), key, id, "", 1000)
			if err != nil {
				return 0, err
			}
			for _, u := range r.Uploads {
				if u.Key == b.key("") {
					list = append(list, &Upload{bucket: b, id: u.UploadID})
				}
			}
			if !r.IsTruncated || r.NextKeyMarker == key && r.NextUploadIDMarker == id {
				return 0, nil
			}
			key, id = r.NextKeyMarker, r.NextUploadIDMarker
		}
	})
	if errors.Is(err, ErrUploadGone) { // some stores answer so if there is none
		return nil, nil
	}
	return list, err
}

// Put sends a part and replaces an earlier part of this number. The store is asked to check the
// MD5. The ETag must be the MD5 too, unless in another form or the store says that it encrypts with
// its own keys.
func (u *Upload) Put(ctx context.Context, number int, data []byte) (Part, error) {
	b := u.bucket
	sum := md5.Sum(data)
	p := Part{Number: number, Size: int64(len(data))}
	err := b.do(ctx, b.String(), func(ctx context.Context) (int, error) {
		r, err := b.api().PutObjectPart(ctx, b.location.Host, b.key(""), u.id, number, bytes.NewReader(data), p.Size,
			minio.PutObjectPartOptions{Md5Base64: base64.StdEncoding.EncodeToString(sum[:]), DisableContentSha256: true})
		p.ETag = r.ETag
		h := *ctx.Value(headerKey{}).(*http.Header)
		if found, _ := hex.DecodeString(r.ETag); err == nil && len(found) == md5.Size && !bytes.Equal(found, sum[:]) && !otherETag(h) {
			err = fmt.Errorf("the store has bytes with MD5 %s, expected %x: the data were changed on their way: run the command again", r.ETag, sum)
		}
		return 0, err
	})
	if err != nil {
		return p, fmt.Errorf("part %d: %w", number, err)
	}
	return p, nil
}

// otherETag reports whether a store announces ETags other than MD5s, as with AWS KMS's keys.
func otherETag(h http.Header) bool {
	kind := h.Get("X-Amz-Server-Side-Encryption")
	return kind != "" && kind != "AES256" || h.Get("X-Amz-Server-Side-Encryption-Customer-Algorithm") != ""
}

func (u *Upload) gone(ctx context.Context) bool {
	b := u.bucket
	err := b.do(ctx, b.String(), func(ctx context.Context) (int, error) {
		_, err := b.api().ListObjectParts(ctx, b.location.Host, b.key(""), u.id, 0, 1)
		return 0, err
	})
	return errors.Is(err, ErrUploadGone)
}

// Complete makes the object appear. parts are all parts, in order. After an error Complete looks
// whether the object is there: an answer may be lost after the store has completed the upload.
func (u *Upload) Complete(ctx context.Context, parts []Part) error {
	b := u.bucket
	list := make([]minio.CompletePart, len(parts))
	for i, p := range parts {
		list[i] = minio.CompletePart{PartNumber: p.Number, ETag: p.ETag}
	}
	err := b.do(ctx, b.String(), func(ctx context.Context) (int, error) {
		_, err := b.api().CompleteMultipartUpload(ctx, b.location.Host, b.key(""), u.id, list, minio.PutObjectOptions{})
		return 0, err
	})
	if err != nil && u.completed(ctx, parts) {
		return nil
	}
	return err
}

// completed reports whether the upload is gone and the object consists of its parts: by their size
// and the upload's mark, or, in a store that keeps no metadata, by the ETag that S3 computes of the
// ETags of parts.
func (u *Upload) completed(ctx context.Context, parts []Part) bool {
	if !u.gone(ctx) {
		return false
	}
	o, mark, err := u.bucket.Stat(ctx)
	size := int64(0)
	h := md5.New()
	for _, p := range parts {
		size += p.Size
		sum, _ := hex.DecodeString(p.ETag)
		h.Write(sum)
	}
	switch {
	case err != nil || o.Size != size:
		return false
	case mark != "" && u.mark != "":
		return mark == u.mark
	}
	return o.ETag == fmt.Sprintf("%x-%d", h.Sum(nil), len(parts))
}

func (u *Upload) Abort(ctx context.Context) error {
	b := u.bucket
	err := b.do(ctx, b.String(), func(ctx context.Context) (int, error) {
		return 0, b.api().AbortMultipartUpload(ctx, b.location.Host, b.key(""), u.id)
	})
	if errors.Is(err, ErrUploadGone) {
		return nil
	}
	return err
}

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
	done atomic.Bool // committed or aborted
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
	if w.done.Load() {
		return errors.New("the object is committed or aborted already")
	}
	if err := w.complete(); err != nil {
		w.Abort()
		return err
	}
	w.done.Store(true)
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
	if w.done.Swap(true) {
		return
	}
	w.stop()
	_ = w.parts.Wait()
	ctx, stop := context.WithTimeout(context.WithoutCancel(w.ctx), abortTime)
	defer stop()
	_ = w.upload.Abort(ctx)
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
