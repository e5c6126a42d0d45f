package s3

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unsafe"

	"github.com/minio/minio-go/v7"

	"github.com/lowbit-go/gq/internal/remote"
)

// A Bucket is a prefix of a bucket, for reading objects, or a single object, for writing. A Bucket
// is a [remote.Store]. Several goroutines may call methods.
type Bucket struct {
	location remote.Location
	library  unsafe.Pointer // *minio.Core, see api
	client   *remote.Client
	keys     *keyChain
}

// Open returns the place that l names, in the scheme s3 or gs, without a request.
func Open(l remote.Location, client *remote.Client) (*Bucket, error) {
	transport := &headerTransport{client.Transport()}
	e, err := newEndpoint(l, transport)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", l, err)
	}
	return open(l, client, e, transport)
}

func open(l remote.Location, client *remote.Client, e endpoint, transport http.RoundTripper) (*Bucket, error) {
	core, err := e.client(transport)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", l, err)
	}
	return &Bucket{location: l, library: unsafe.Pointer(core), client: client, keys: e.keys}, nil
}

// api is the library's client. A field of its type would be found by reflection through every
// interface that holds a Bucket, and the linker would keep all of the library's methods: 1.7 MB
// that nobody calls.
func (b *Bucket) api() *minio.Core { return (*minio.Core)(b.library) }

func (b *Bucket) String() string { return b.location.String() }

// key is the key of the object name below the location, or of the location itself if name is "".
func (b *Bucket) key(name string) string {
	if name == "" {
		return b.location.Path
	}
	return b.prefix() + name
}

func (b *Bucket) prefix() string {
	if p := b.location.Path; p != "" && !strings.HasSuffix(p, "/") {
		return p + "/"
	}
	return b.location.Path
}

func (b *Bucket) name(key string) string {
	return b.location.Scheme + "://" + b.location.Host + "/" + key
}

// maxObjects is the largest number of objects that List accepts. A checkpoint has a few hundred.
const maxObjects = 100_000

// List implements [remote.Store]. The location's slash at the end is optional.
func (b *Bucket) List(ctx context.Context) (list []remote.Object, err error) {
	err = b.do(ctx, b.String(), func(ctx context.Context) (int, error) {
		list, err = b.list(ctx)
		return 0, err // the next attempt starts over
	})
	if err != nil || len(list) > 0 {
		return list, err
	}
	return nil, fmt.Errorf("%v: there are no objects below this prefix", b)
}

func (b *Bucket) list(ctx context.Context) ([]remote.Object, error) {
	list, err := b.beginning(ctx, b.prefix())
	list = slices.DeleteFunc(list, func(o remote.Object) bool { // skip objects that mark directories
		return o.Name == "" || strings.HasSuffix(o.Name, "/")
	})
	return list, err
}

// Beginning lists the objects with keys that begin with the location's, named by the rest of their
// keys: "" for the location's own object. The list may be empty.
func (b *Bucket) Beginning(ctx context.Context) (list []remote.Object, err error) {
	err = b.do(ctx, b.String(), func(ctx context.Context) (int, error) {
		list, err = b.beginning(ctx, b.key(""))
		return 0, err // the next attempt starts over
	})
	return list, err
}

func (b *Bucket) beginning(ctx context.Context, prefix string) (list []remote.Object, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for o := range b.api().Client.ListObjects(ctx, b.location.Host, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		name, ok := strings.CutPrefix(o.Key, prefix)
		switch {
		case o.Err != nil:
			return nil, o.Err
		case !ok:
			continue
		case len(list) == maxObjects:
			return nil, fmt.Errorf("there are more than %d objects below this prefix: name the directory of one model", maxObjects)
		}
		list = append(list, object(o, name))
	}
	return list, ctx.Err()
}

// Stat describes the location's object. mark is what its upload began with, see Begin. The error
// wraps fs.ErrNotExist if there is no object.
func (b *Bucket) Stat(ctx context.Context) (o remote.Object, mark string, err error) {
	err = b.do(ctx, b.String(), func(ctx context.Context) (int, error) {
		info, err := b.api().StatObject(ctx, b.location.Host, b.key(""), minio.StatObjectOptions{})
		o = object(info, "")
		for k, v := range info.UserMetadata { // the case of keys is the store's
			if strings.EqualFold(k, markKey) {
				mark = v
			}
		}
		return 0, err
	})
	return o, mark, err
}

func (b *Bucket) Remove(ctx context.Context) error {
	return b.do(ctx, b.String(), func(ctx context.Context) (int, error) {
		return 0, b.api().RemoveObject(ctx, b.location.Host, b.key(""), minio.RemoveObjectOptions{})
	})
}

func object(o minio.ObjectInfo, name string) remote.Object {
	r := remote.Object{Name: name, Size: o.Size, ETag: remote.NormalETag(o.ETag)}
	if r.ETag == "" {
		r.Modified = modified(o)
	}
	return r
}

// modified is the time of the last change in whole seconds: lists have fractions, answers none.
func modified(o minio.ObjectInfo) string {
	if o.LastModified.IsZero() {
		return ""
	}
	return o.LastModified.UTC().Format(http.TimeFormat)
}

func (b *Bucket) ReadAt(ctx context.Context, o remote.Object, dst []byte, off int64) error {
	key := b.key(o.Name)
	if off < 0 || off > o.Size || int64(len(dst)) > o.Size-off {
		return fmt.Errorf("%s: bytes %d to %d of an object of %d bytes", b.name(key), off, off+int64(len(dst)), o.Size)
	}
	done := 0
	if len(dst) == 0 {
		return nil
	}
	return b.do(ctx, b.name(key), func(ctx context.Context) (int, error) {
		n, err := b.read(ctx, key, o, dst[done:], off+int64(done))
		done += n
		return n, err
	})
}

// read sends a request, and returns how many bytes arrived in order.
func (b *Bucket) read(ctx context.Context, key string, o remote.Object, dst []byte, off int64) (n int, err error) {
	ctx, stop := context.WithCancel(ctx) // the rest of a body that is not wanted is not awaited
	defer stop()
	var opts minio.GetObjectOptions
	last := off + int64(len(dst)) - 1
	opts.Set("Range", fmt.Sprintf("bytes=%d-%d", off, last))
	if o.ETag != "" {
		_ = opts.SetMatchETag(o.ETag)
	}
	body, info, h, err := b.api().GetObject(ctx, b.location.Host, key, opts)
	if err != nil {
		if e := minio.ToErrorResponse(err); e.StatusCode == http.StatusPreconditionFailed || e.StatusCode == http.StatusRequestedRangeNotSatisfiable {
			return 0, &remote.ChangedError{File: b.name(key), What: "ETag", Before: o.ETag, Now: "another one"}
		}
		return 0, err
	}
	defer body.Close()
	if etag := remote.NormalETag(info.ETag); etag != o.ETag && o.ETag != "" && etag != "" {
		return 0, &remote.ChangedError{File: b.name(key), What: "ETag", Before: o.ETag, Now: etag}
	}
	if now := modified(info); now != o.Modified && o.Modified != "" && now != "" {
		return 0, &remote.ChangedError{File: b.name(key), What: "Last-Modified", Before: o.Modified, Now: now}
	}
	want := fmt.Sprintf("bytes %d-%d/%d", off, last, o.Size)
	if got := h.Get("Content-Range"); got != want && (got != "" || int64(len(dst)) != o.Size) {
		return 0, remote.Passing(fmt.Errorf("the server sent the range %q, expected %q", got, want), nil)
	}
	if n, err = io.ReadFull(body, dst); err != nil {
		return n, fmt.Errorf("the body ended after %d of %d bytes: %w", n, len(dst), err)
	}
	return n, nil
}

// do sends requests until success, with package remote's rules. try returns how many bytes were
// received or sent. name is for errors.
func (b *Bucket) do(ctx context.Context, name string, try func(ctx context.Context) (int, error)) error {
	return b.client.Retry(ctx, name, func() (int, error) {
		var h http.Header
		n, err := try(context.WithValue(ctx, headerKey{}, &h))
		return n, b.explain(err, h)
	})
}

// headerTransport keeps the last answer's header in the context: the library drops Retry-After.
type headerTransport struct{ http.RoundTripper }

type headerKey struct{}

func (t *headerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	a, err := t.RoundTripper.RoundTrip(r)
	if h, ok := r.Context().Value(headerKey{}).(*http.Header); ok && err == nil {
		*h = a.Header
	}
	return a, err
}

// passingCodes are the errors of S3 with other statuses than 5xx, 408 and 429 that may pass.
// Expired temporary credentials are renewed.
var passingCodes = []string{"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "ExpiredToken", "BadDigest", "IncompleteBody"}

func (b *Bucket) explain(err error, h http.Header) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[minio.ErrorResponse](err)
	if !ok {
		return b.sending(err)
	}
	text := b.keys.hide(e.Message)
	if e.Code != "" {
		text = e.Code + ": " + text
	}
	failure := fmt.Errorf("the store answers with status %d (%s)", e.StatusCode, text)
	switch s := e.StatusCode; {
	case slices.Contains(passingCodes, e.Code), s == http.StatusRequestTimeout, s == http.StatusTooManyRequests, s >= 500 && s != http.StatusNotImplemented:
		return remote.Passing(failure, h)
	case e.Code == "NoSuchUpload":
		return ErrUploadGone
	case e.Code == "NoSuchBucket":
		return fmt.Errorf("there is no bucket %q at %s: check the name, and AWS_ENDPOINT_URL if the store is not Amazon's", b.location.Host, b.api().EndpointURL().Host)
	case s == http.StatusNotFound:
		return errNoObject
	case s == http.StatusForbidden || s == http.StatusUnauthorized:
		if missing := b.keys.missing(); missing != "" {
			return fmt.Errorf("the store refuses the request (%s), and %s", text, missing)
		}
		return fmt.Errorf("the store refuses the request (%s): the credentials lack this permission, or are wrong", text)
	case s == http.StatusMovedPermanently || e.Code == "AuthorizationHeaderMalformed":
		return fmt.Errorf("the bucket is in another region (%s): set AWS_REGION", text)
	}
	return failure
}

// sending explains an error that is no answer of the store.
func (b *Bucket) sending(err error) error {
	_, request := errors.AsType[*url.Error](err)
	_, network := errors.AsType[net.Error](err)
	_, broken := errors.AsType[*xml.SyntaxError](err)
	switch {
	case request, network:
		return remote.Sending(err, b.api().EndpointURL())
	case broken, errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return remote.Passing(err, nil)
	}
	return err
}

// noObject is the error of an object that is not there.
type noObject struct{}

var errNoObject error = noObject{}

func (noObject) Error() string { return "there is no such object, and none below this prefix" }

func (noObject) Is(target error) bool { return target == fs.ErrNotExist }

// ErrUploadGone means that an upload was aborted or is complete.
var ErrUploadGone = errors.New("the upload is gone: another job has aborted or completed it, perhaps one that writes the same object")
