package s3

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/lowbit-go/gq/internal/remote"
)

// S3's limits.
const (
	minPartBytes = 5 << 20 // of all parts but the last
	maxPartBytes = 5 << 30
	maxParts     = 10_000
)

// preferredPartBytes is the size of parts of all files up to 80 GB: uploads of smaller parts spend more of
// the time on requests.
const preferredPartBytes = 8 << 20

// PartSize returns the size of the parts of an object: a multiple of 1 MiB, and the least that allows S3's
// number of parts. All parts but the last have it, as R2 demands.
func PartSize(size int64) (int64, error) {
	n := max(preferredPartBytes, (size+maxParts-1)/maxParts)
	n = (n + 1<<20 - 1) &^ (1<<20 - 1)
	if n > maxPartBytes {
		return 0, fmt.Errorf("%d bytes are more than an object store takes in one object", size)
	}
	return n, nil
}

// An Upload is an object whose parts one or several processes send. Its methods may be called from several
// goroutines.
type Upload struct {
	bucket *Bucket
	id     string
	mark   string        // of the object, see Begin
	age    time.Duration // by the store's clock, when it was listed; at most a second too large
}

// A Part is a part that the store has.
type Part struct {
	Number int // from 1
	Size   int64
	ETag   string
	// CRC32C and CRC64NVME are the bytes of the checksums that the store states in a list of parts, most
	// significant byte first. "": it states none.
	CRC32C, CRC64NVME string
}

// markKey is the name of the metadata with an object's mark.
const markKey = "gq-mark"

// Begin begins an upload of the location's object. The object will have the mark in its metadata, by which
// Complete recognizes it.
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

// Join returns the upload of the location's object with an ID and a mark that another process has begun it
// with.
func (b *Bucket) Join(id, mark string) *Upload { return &Upload{bucket: b, id: id, mark: mark} }

// shareWait is longer than the second to which stores round the beginning of an upload: after it the list of
// uploads has all that may be as old as an own one.
const shareWait = 2 * time.Second

// Share returns the upload of the location's object that all processes share: the oldest unfinished one.
// Without one, Share begins it with the mark. Processes that begin at the same time agree on one: each waits until the
// list has all uploads that may precede the first.
func (b *Bucket) Share(ctx context.Context, mark string) (*Upload, error) {
	var own *Upload
	last := "" // the ID of the upload that was waited for
	for {
		list, err := b.Unfinished(ctx)
		switch {
		case err == nil && len(list) == 0 && own == nil:
			if own, err = b.Begin(ctx, mark); err == nil {
				last = own.id
			}
		case err == nil && len(list) == 0:
			return nil, ErrUploadGone // another job aborted it
		case err == nil && (list[0].id == last || list[0].age >= shareWait):
			if own != nil && own.id != list[0].id {
				err = own.Abort(ctx)
			}
			return b.Join(list[0].id, mark), err
		case err == nil:
			last = list[0].id
		}
		if err == nil {
			select {
			case <-time.After(shareWait):
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err != nil {
			if own != nil {
				err = errors.Join(err, own.abandon(ctx))
			}
			return nil, err
		}
	}
}

// Unfinished lists the uploads of the location's object that are not complete, the oldest first: the one
// that Share returns. They have no marks.
func (b *Bucket) Unfinished(ctx context.Context) (list []*Upload, err error) {
	var found []minio.ObjectMultipartInfo
	now := time.Now()
	err = b.do(ctx, b.String(), func(ctx context.Context) (int, error) {
		found = nil
		key, id := "", ""
		for {
			r, err := b.api().ListMultipartUploads(ctx, b.location.Host, b.key(""), key, id, "", 1000)
			if err != nil {
				return 0, err
			}
			if h, ok := ctx.Value(headerKey{}).(*http.Header); ok {
				if date, err := http.ParseTime(h.Get("Date")); err == nil {
					now = date
				}
			}
			for _, u := range r.Uploads {
				if u.Key == b.key("") {
					found = append(found, u)
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
	slices.SortFunc(found, func(x, y minio.ObjectMultipartInfo) int {
		return cmp.Or(x.Initiated.Compare(y.Initiated), cmp.Compare(x.UploadID, y.UploadID))
	})
	for _, u := range found {
		// Date is in whole seconds, and some stores give more of an upload's time.
		list = append(list, &Upload{bucket: b, id: u.UploadID, age: now.Sub(u.Initiated.Truncate(time.Second))})
	}
	return list, err
}

// ID identifies the upload, see Join.
func (u *Upload) ID() string { return u.id }

// Put sends a part, which replaces an earlier one of this number. The store checks its MD5.
func (u *Upload) Put(ctx context.Context, number int, data []byte) (Part, error) {
	b := u.bucket
	sum := md5.Sum(data)
	p := Part{Number: number, Size: int64(len(data))}
	err := b.do(ctx, b.String(), func(ctx context.Context) (int, error) {
		r, err := b.api().PutObjectPart(ctx, b.location.Host, b.key(""), u.id, number, bytes.NewReader(data), p.Size,
			minio.PutObjectPartOptions{Md5Base64: base64.StdEncoding.EncodeToString(sum[:]), DisableContentSha256: true})
		p.ETag = r.ETag
		return 0, err
	})
	if err != nil {
		return p, fmt.Errorf("part %d: %w", number, err)
	}
	return p, nil
}

// Parts lists the parts that the store has, in order.
func (u *Upload) Parts(ctx context.Context) (list []Part, err error) {
	b := u.bucket
	err = b.do(ctx, b.String(), func(ctx context.Context) (int, error) {
		list = nil
		for marker := 0; ; {
			r, err := b.api().ListObjectParts(ctx, b.location.Host, b.key(""), u.id, marker, 1000)
			if err != nil {
				return 0, err
			}
			for _, p := range r.ObjectParts {
				list = append(list, Part{p.PartNumber, p.Size, remote.NormalETag(p.ETag), checksum(p.ChecksumCRC32C), checksum(p.ChecksumCRC64NVME)})
			}
			if !r.IsTruncated || r.NextPartNumberMarker <= marker {
				return 0, nil
			}
			marker = r.NextPartNumberMarker
		}
	})
	return list, err
}

// checksum decodes a checksum of a list of parts. A checksum of checksums, which ends in "-" and a number, is
// left out.
func checksum(s string) string {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return ""
	}
	return string(b)
}

// Complete makes the object appear. parts are all parts, in order. After an error Complete looks whether the
// object is there: an answer may be lost after the store has completed the upload.
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

// completed reports whether the upload is gone and the object is made of its parts: it has their size, and
// the upload's mark. Without marks, in a store that keeps no metadata, it has the ETag that S3 computes of the
// ETags of parts.
func (u *Upload) completed(ctx context.Context, parts []Part) bool {
	if _, err := u.Parts(ctx); !errors.Is(err, ErrUploadGone) {
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

// abandon aborts an upload even if ctx has ended.
func (u *Upload) abandon(ctx context.Context) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer stop()
	return u.Abort(ctx)
}

// Abort removes the upload and its parts.
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
