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
	// ETag identifies the content. Two ETags of one store are equal only if the contents are. "" if the
	// server states none.
	ETag string
	// Modified is when the content last changed, as the server writes it. It is set only if the server
	// states no ETag, and "" if it states no time either.
	Modified string
	// SHA256 is the hash of the content in lower-case hex. "" if it is not known.
	SHA256 string
}

// Version identifies the content: by its hash, or else as the server does. It is "" if only the size is known.
func (o Object) Version() string { return cmp.Or(o.SHA256, o.ETag, o.Modified) }

// A Store is a place with files that can be read by ranges. Its methods may be called from several
// goroutines.
type Store interface {
	// List returns all files below the location, or the one file that the location names, in order of
	// their names.
	List(ctx context.Context) ([]Object, error)
	// ReadAt fills dst with the bytes of the object from off on. It repeats what failed for a passing
	// reason. If the object is no longer the one that List returned, the error is a *ChangedError.
	ReadAt(ctx context.Context, o Object, dst []byte, off int64) error
	// String is the location without credentials. If the store knows a revision that never changes, it
	// is part of the location: "hf://org/model@COMMIT".
	String() string
}

// A ChangedError says that a file was replaced while it was read.
type ChangedError struct {
	File string // without credentials
	// What differs: "ETag", "Last-Modified", "size". Before and Now are its values.
	What, Before, Now string
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s: the source changed while it was read: its %s was %s and is %s now: start again", e.File, e.What, e.Before, e.Now)
}
