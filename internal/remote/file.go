package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/maphash"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// A File is a file of a server that is read by ranges.
type File struct {
	client *Client
	r      *Request
	size   int64
	known  version // of the server's answers

	mu      sync.Mutex
	at      *url.URL // where the server redirected to; nil: nowhere
	atKnown version  // of the answers from there
}

// File returns the file behind a request. size is its size. Answers must have the ETag and
// Last-Modified of head. Without a head (zero value), all answers from a place must have the
// version of the first.
func (c *Client) File(r *Request, size int64, head Head) *File {
	return &File{client: c, r: r, size: size, known: version{head.ETag, head.Modified}}
}

type version struct{ etag, modified string }

func versionOf(h http.Header) version { return version{h.Get("ETag"), modified(h)} }

// modified is the header Last-Modified of an answer without an ETag. With an ETag the header does
// not matter: servers that share the work may have the same file from other times.
func modified(h http.Header) string {
	if h.Get("ETag") != "" {
		return ""
	}
	return h.Get("Last-Modified")
}

func (v version) changed(name string, now version) error {
	switch {
	case v.etag != "" && now.etag != "" && v.etag != now.etag:
		return &ChangedError{name, "ETag", v.etag, now.etag}
	case v.modified != "" && now.modified != "" && v.modified != now.modified:
		return &ChangedError{name, "Last-Modified", v.modified, now.modified}
	}
	return nil
}

func (f *File) ReadAt(ctx context.Context, dst []byte, off int64) error {
	if off < 0 || off > f.size || int64(len(dst)) > f.size-off {
		return fmt.Errorf("%s: bytes %d to %d of a file of %d bytes", f.r.Name, off, off+int64(len(dst)), f.size)
	}
	if len(dst) == 0 {
		return nil
	}
	done := 0
	return f.client.Retry(ctx, f.r.Name, func() (int, error) {
		n, err := f.read(ctx, dst[done:], off+int64(done))
		done += n
		return n, err
	})
}

// read sends a request, and returns how many bytes arrived in order.
func (f *File) read(ctx context.Context, dst []byte, off int64) (n int, err error) {
	f.mu.Lock()
	at := f.at
	f.mu.Unlock()
	last := off + int64(len(dst)) - 1
	a, err := f.client.get(ctx, f.r, at, fmt.Sprintf("bytes=%d-%d", off, last))
	if err != nil {
		if _, expired := errors.AsType[expiredError](err); expired {
			f.forget()
		}
		return 0, err
	}
	defer a.Close()
	want, err := f.check(a, off, last)
	if err != nil {
		return 0, err
	}
	if n, err = io.ReadFull(a.Body, dst[:want]); err != nil {
		return n, Passing(fmt.Errorf("the body ended after %d of %d bytes: %w", n, want, err), nil)
	}
	if want < len(dst) {
		return n, Passing(fmt.Errorf("the server sent %d of %d bytes", want, len(dst)), nil)
	}
	return n, nil
}

// check fails unless an answer's status, range and version fit, and returns the body's length.
func (f *File) check(a *answer, off, last int64) (want int, err error) {
	now := versionOf(a.Header)
	if err := f.pin(a, now).changed(f.r.Name, now); err != nil {
		return 0, err
	}
	if e := a.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return 0, Passing(fmt.Errorf("the server compressed the body (%q) although that was not asked for", e), nil)
	}
	if a.StatusCode == http.StatusOK {
		switch {
		case a.ContentLength >= 0 && a.ContentLength != f.size:
			return 0, f.resized(a.ContentLength)
		case off > 0 || a.ContentLength < 0 && last+1 < f.size:
			return 0, Passing(errors.New("the server does not serve ranges of bytes: download the files, and name their directory"), nil)
		}
		return int(last + 1), nil
	}
	r, err := parseContentRange(a.Header.Get("Content-Range"))
	switch {
	case err != nil:
		return 0, Passing(err, nil)
	case r.size >= 0 && r.size != f.size:
		return 0, f.resized(r.size)
	case a.StatusCode == http.StatusRequestedRangeNotSatisfiable, r.first != off, r.last > last:
		return 0, Passing(fmt.Errorf("the server sent the range %q, asked for bytes %d-%d", a.Header.Get("Content-Range"), off, last), nil)
	case a.ContentLength >= 0 && a.ContentLength != r.last-r.first+1:
		return 0, Passing(fmt.Errorf("the server announced %d bytes for the range %q", a.ContentLength, a.Header.Get("Content-Range")), nil)
	}
	return int(r.last - r.first + 1), nil
}

func (f *File) resized(now int64) error {
	return &ChangedError{f.r.Name, "size", fmt.Sprint(f.size), fmt.Sprint(now)}
}

// forget makes the next request ask the host of the request again.
func (f *File) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.atKnown = nil, version{}
}

// pin keeps the address that the first answer came from, and returns the version that the answer
// must have: the file's own, or else the version of the first answer from the same place.
func (f *File) pin(a *answer, now version) version {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !a.origin && f.at == nil {
		f.at, f.atKnown = a.at, now
	}
	switch {
	case f.known != version{}:
		return f.known
	case a.origin:
		f.known = now
	case f.at.Host == a.at.Host && f.at.Path == a.at.Path:
		return f.atKnown
	}
	return now
}

// A Head says of a file what an answer states.
type Head struct {
	Size     int64
	ETag     string
	Modified string // the header Last-Modified; "" if there is an ETag
}

// Stat asks for the head of a file, by a request for its first byte.
func (c *Client) Stat(ctx context.Context, r *Request) (h Head, err error) {
	err = c.Retry(ctx, r.Name, func() (int, error) {
		a, err := c.get(ctx, r, nil, "bytes=0-0")
		if err != nil {
			return 0, err
		}
		defer a.Close()
		h = Head{a.ContentLength, a.Header.Get("ETag"), modified(a.Header)}
		if a.StatusCode != http.StatusOK {
			span, err := parseContentRange(a.Header.Get("Content-Range"))
			if err != nil {
				return 0, Passing(err, nil)
			}
			h.Size = span.size
		}
		if h.Size < 0 {
			return 0, errors.New("the server does not state the size of the file")
		}
		return 0, nil
	})
	return h, err
}

func (c *Client) Get(ctx context.Context, r *Request, limit int64) (body []byte, h http.Header, err error) {
	err = c.Retry(ctx, r.Name, func() (int, error) {
		a, err := c.get(ctx, r, nil, "")
		if err != nil {
			return 0, err
		}
		defer a.Close()
		if a.StatusCode != http.StatusOK {
			return 0, Passing(fmt.Errorf("the server answers with status %d to a request without a range", a.StatusCode), nil)
		}
		if e := a.Header.Get("Content-Encoding"); e != "" && e != "identity" {
			return 0, Passing(fmt.Errorf("the server compressed the body (%q) although that was not asked for", e), nil)
		}
		body, h = nil, a.Header
		if body, err = io.ReadAll(io.LimitReader(a.Body, limit+1)); err != nil {
			// No progress: the next attempt begins at byte 0 again.
			return 0, Passing(fmt.Errorf("the body ended after %d bytes: %w", len(body), err), nil)
		}
		if int64(len(body)) > limit {
			return 0, fmt.Errorf("the answer is larger than the limit of %d bytes", limit)
		}
		return 0, nil
	})
	return body, h, err
}

// NormalETag is an ETag without quotes and without the mark of a weak ETag.
func NormalETag(s string) string {
	return strings.Trim(strings.TrimPrefix(s, "W/"), `"`)
}

// A byteRange is the header Content-Range: bytes first to last of size. An unstated size is -1.
type byteRange struct {
	first, last, size int64
}

var contentRange = regexp.MustCompile(`^bytes (?:(\d+)-(\d+)|\*)/(?:(\d+)|\*)$`)

// parseContentRange reads the header Content-Range of an answer with status 206 or 416. An answer
// with status 416 has no bytes: first and last are 0 and -1.
func parseContentRange(s string) (r byteRange, err error) {
	r.last, r.size = -1, -1
	parts := contentRange.FindStringSubmatch(s)
	valid := parts != nil
	for i, n := range []*int64{&r.first, &r.last, &r.size} {
		if valid && parts[i+1] != "" {
			*n, err = strconv.ParseInt(parts[i+1], 10, 64)
			valid = err == nil
		}
	}
	if !valid || parts[1] != "" && r.last < r.first || r.size >= 0 && r.last >= r.size {
		return r, errors.New("the header Content-Range is not valid")
	}
	return r, nil
}

// heldBytes is the most memory for bytes of all [Hashed] of a source that came before their turn.
const heldBytes = 32 << 20

// grain is the unit of ranges. Its hash is kept: bytes that are read again must be the same.
const grain = 64 << 10

var seed = maphash.MakeSeed()

// A Hashed computes the SHA-256 of an object while its ranges are read, in about their order.
// Several goroutines may call methods. Ranges begin and end at multiples of 64 KiB, or at the end
// of the object.
type Hashed struct {
	store  Store
	object Object
	room   *atomic.Int64 // shared by the objects of a source

	mu   sync.Mutex
	seen []uint32 // a hash of each grain; 0: not read
	sum  hash.Hash
	at   int64            // the bytes before are hashed
	held map[int64][]byte // bytes behind at, by offset
}

func HashObjects(s Store, objects []Object) (list []*Hashed) {
	room := &atomic.Int64{}
	room.Store(heldBytes)
	for _, o := range objects {
		list = append(list, &Hashed{store: s, object: o, room: room, sum: sha256.New(), seen: make([]uint32, (o.Size+grain-1)/grain), held: map[int64][]byte{}})
	}
	return list
}

func (h *Hashed) ReadAt(ctx context.Context, dst []byte, off int64) error {
	err := h.store.ReadAt(ctx, h.object, dst, off)
	if err != nil || h.object.SHA256 == "" {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := int64(0); i < int64(len(dst)); i += grain {
		s := uint32(maphash.Bytes(seed, dst[i:min(i+grain, int64(len(dst)))])) | 1
		if was := &h.seen[(off+i)/grain]; *was == 0 {
			*was = s
		} else if *was != s {
			return fmt.Errorf("bytes %d to %d differ in two readings: they were changed on their way: run the command again", off+i, off+i+grain)
		}
	}
	h.add(dst, off)
	return nil
}

// add hashes the bytes from off on, or holds early bytes until their turn.
func (h *Hashed) add(p []byte, off int64) {
	if n := int64(len(p)); off > h.at {
		if h.held[off] == nil && h.room.Add(-n) >= 0 {
			h.held[off] = slices.Clone(p)
		} else {
			h.room.Add(n)
		}
		return
	}
	h.take(p, off)
	for _, off := range slices.Sorted(maps.Keys(h.held)) {
		if off > h.at {
			break
		}
		h.take(h.held[off], off)
		h.room.Add(int64(len(h.held[off])))
		delete(h.held, off)
	}
}

func (h *Hashed) take(p []byte, off int64) {
	if skip := h.at - off; skip < int64(len(p)) {
		h.sum.Write(p[skip:])
		h.at = off + int64(len(p))
	}
}

// Check compares the hash with the store's, after reading bytes that nobody read, or that were not
// held.
func (h *Hashed) Check(ctx context.Context) error {
	if h.object.SHA256 == "" {
		return nil
	}
	for h.at < h.object.Size {
		b := make([]byte, min(h.object.Size-h.at, 4<<20))
		if err := h.ReadAt(ctx, b, h.at); err != nil {
			return err
		}
	}
	if found := hex.EncodeToString(h.sum.Sum(nil)); found != h.object.SHA256 {
		return fmt.Errorf("%v: %s: its SHA-256 is %s, expected %s: bytes were changed on their way, or the list of files is wrong: run the command again", h.store, h.object.Name, found, h.object.SHA256)
	}
	return nil
}
