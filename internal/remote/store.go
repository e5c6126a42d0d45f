package remote

import (
	"cmp"
	"context"
	"fmt"
)

// An Object is a file in a Store.
type Object struct {
	// Name is relative to the store's location, with slashes: "model-00001-of-00002.safetensors".
	Name string
	Size int64 // in bytes
	// ETag identifies the content: a store's ETags are equal only if the contents are. "": none
	// stated.
	ETag string
	// Modified is the time of the last change, in the server's spelling, if there is no ETag.
	Modified string
	// SHA256 is the hash of the content in lower-case hex; "" if unknown.
	SHA256 string
}

// Version identifies the content, by hash or by the server; "" if only the size is known.
func (o Object) Version() string { return cmp.Or(o.SHA256, o.ETag, o.Modified) }

// A Store is a place with files that can be read by ranges. Several goroutines may call methods.
type Store interface {
	// List returns all files below the location, or the location's only file, in order of name.
	List(ctx context.Context) ([]Object, error)
	// ReadAt fills dst with the bytes of the object from off on. A failure for a passing reason is
	// retried. If the object differs from List's, the error is a *ChangedError.
	ReadAt(ctx context.Context, o Object, dst []byte, off int64) error
	// String is the location without credentials, with the revision that never changes, if the store
	// knows this revision: "hf://org/model@COMMIT".
	String() string
}

// A ChangedError says that a file was replaced during reading.
type ChangedError struct {
	File string // without credentials
	// What differs: "ETag", "Last-Modified", "size". Before and Now are its values.
	What, Before, Now string
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s: the source changed while it was read: its %s was %s and is %s now: start again", e.File, e.What, e.Before, e.Now)
}
