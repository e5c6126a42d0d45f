package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Open opens the regular file at path for reading; symbolic links are followed. It never waits: a
// named pipe or a device is refused. Errors are *fs.PathError.
func Open(path string) (*os.File, fs.FileInfo, error) {
	// Check before opening: opening some devices has effects.
	st, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if err := checkRegular(path, st); err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, nil, err
	}
	// Check again after opening: the path may lead elsewhere by now.
	if st, err = f.Stat(); err == nil {
		err = checkRegular(path, st)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, st, nil
}

func checkRegular(path string, st fs.FileInfo) error {
	if st.Mode().IsRegular() {
		return nil
	}
	return &fs.PathError{Op: "open", Path: path, Err: &NotRegularError{Mode: st.Mode()}}
}

// A NotRegularError reports an input that is not a regular file.
type NotRegularError struct {
	Mode fs.FileMode
}

func (e *NotRegularError) Error() string {
	what := "a special file"
	switch {
	case e.Mode.IsDir():
		return "is a directory, not a file"
	case e.Mode&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case e.Mode&fs.ModeSocket != 0:
		what = "a socket"
	case e.Mode&fs.ModeDevice != 0:
		what = "a device"
	}
	return "is " + what + ", not a regular file: save its content to a file and name that one"
}

// A SizeError reports an input that is larger than its reader's limit.
type SizeError struct {
	Limit int64 // in bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("is larger than the limit of %d bytes", e.Limit)
}

// Read returns the content of the regular file at path, which has at most limit bytes. A Git LFS
// pointer is refused: its content is elsewhere. Errors are *fs.PathError.
func Read(path string, limit int64) ([]byte, error) {
	return ReadContext(context.Background(), path, limit)
}

// ReadContext is Read, and returns an error that wraps ctx.Err() as soon as ctx is done.
func ReadContext(ctx context.Context, path string, limit int64) ([]byte, error) {
	f, st, err := Open(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > limit {
		f.Close()
		return nil, &fs.PathError{Op: "read", Path: path, Err: &SizeError{limit}}
	}
	// The size is a hint only: files of /proc have none.
	b, err := await(ctx, func() ([]byte, error) {
		defer f.Close()
		return readAll(ctx, f, st.Size(), limit)
	})
	if err == nil && Recognize(b) == LFSPointer {
		err = errors.New("is " + LFSPointer.String() + ": " + LFSPointer.Advice(path))
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: cause(err)}
	}
	return b, nil
}

// ReadStream reads r to its end, at most limit bytes; name names r in errors. It returns as soon as
// ctx is done. A read that is still waiting then consumes later input.
func ReadStream(ctx context.Context, r io.Reader, name string, limit int64) ([]byte, error) {
	b, err := await(ctx, func() ([]byte, error) { return readAll(ctx, r, 0, limit) })
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: cause(err)}
	}
	return b, nil
}

// await calls read and returns its result, or the error of ctx once that is done.
func await(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if ctx.Done() == nil {
		return read()
	}
	type result struct {
		b   []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		b, err := read()
		done <- result{b, err}
	}()
	select {
	case r := <-done:
		return r.b, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readAll reads r to its end. size is the expected number of bytes.
func readAll(ctx context.Context, r io.Reader, size, limit int64) ([]byte, error) {
	b := make([]byte, 0, max(size, 511)+1) // one more: the read that finds the end wants room
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		const piece = 8 << 20 // between two looks at ctx
		n, err := r.Read(b[len(b):min(cap(b), len(b)+piece)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return nil, &SizeError{limit}
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		case len(b) == cap(b):
			b = append(b, 0)[:len(b)]
		}
	}
}

// cause strips the operation and path off an error of package os.
func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
