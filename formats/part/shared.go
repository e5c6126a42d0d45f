package part

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// Shared is the file that several workers write to, each at the offsets of its data in the .gqf file.
// Until it is merged it begins with sharedMagic and the digest of its plan.
type Shared struct{ *os.File }

const (
	sharedMagic = "\x89GQS\r\n\x1a\n"
	sharedHead  = len(sharedMagic) + 32
)

// OpenShared opens the shared file of the .gqf file at path, and makes it if it is not there. A file of
// another plan is refused. A merge that was ended may have written the front of the .gqf file: merged
// reports whether the front is of the plan.
func OpenShared(path string, h *Header, merged func(f io.ReaderAt) bool) (*Shared, error) {
	path = SharedPath(path)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := prepareShared(f, h, merged); err != nil {
		f.Close()
		return nil, err
	}
	return &Shared{f}, nil
}

// prepareShared gives a new file its head and its size. Several workers may do so at once: all write the
// same.
func prepareShared(f *os.File, h *Header, merged func(f io.ReaderAt) bool) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s: is not a regular file", f.Name())
	}
	if st.Size() < int64(sharedHead) {
		if _, err := f.WriteAt(append([]byte(sharedMagic), h.Plan[:]...), 0); err != nil {
			return err
		}
	}
	if err := CheckShared(f, f.Name(), h); err != nil && !(errors.Is(err, ErrMerging) && merged(f)) {
		return err
	}
	if st.Size() < h.FileSize {
		return f.Truncate(h.FileSize)
	}
	return nil
}

// ErrMerging says that a merge was ended after it had written the front of the .gqf file over the head of
// the shared file, whose data are complete.
var ErrMerging = errors.New("it has the data of all parts of another plan, and a merge of it was ended: run gq merge with its parts, or remove it")

// CheckShared refuses a shared file of another plan, and with ErrMerging one that a merge has begun to
// rename. name stands in errors.
func CheckShared(f io.ReaderAt, name string, h *Header) error {
	head := make([]byte, sharedHead)
	if _, err := f.ReadAt(head, 0); err != nil && err != io.EOF {
		return err
	}
	if bytes.HasPrefix(head, []byte("\x89GQF")) {
		return fmt.Errorf("%s: %w", name, ErrMerging)
	}
	if string(head) != sharedMagic+string(h.Plan[:]) {
		return fmt.Errorf("%s: belongs to another plan (another source, other options, or another version of gq): remove it and its parts, or choose another output", name)
	}
	return nil
}
