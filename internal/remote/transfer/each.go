package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/filelock"
	"github.com/lowbit-go/gq/internal/remote"
)

// Options are what copies report.
type Options struct {
	// Progress is told of bytes that arrive. Default (nil): nothing.
	Progress func(n int64)
	// Waiting is called with a file that another process copies. Default (nil): nothing.
	Waiting func(file string)
}

func (o Options) WaitingFor(file string) {
	if o.Waiting != nil {
		o.Waiting(file)
	}
}

// filesAtOnce is the number of simultaneous copies: small files take longer to ask for than to
// send.
const filesAtOnce = 4

// Each calls fetch for several objects at once, sharing slots, and returns the first error.
func Each(ctx context.Context, objects []remote.Object, fetch func(ctx context.Context, o remote.Object, slots Slots) error) error {
	ctx, stop := context.WithCancelCause(ctx) // ends the other fetches
	defer stop(nil)
	slots := NewSlots()
	return cpu.Parallel(ctx, filesAtOnce, len(objects), func() func(i int) error {
		return func(i int) error {
			err := fetch(ctx, objects[i], slots)
			if err != nil {
				stop(err)
			}
			return err
		}
	})
}

// CheckRoom returns an error if a directory's file system has no room for so many bytes.
func CheckRoom(dir string, bytes int64) error {
	if free, err := atomicfile.FreeSpace(dir); err == nil && free < bytes {
		return fmt.Errorf("%d bytes are to be fetched, and there is room for %d in %s: make room", bytes, free, dir)
	}
	return nil
}

// Lock makes and locks the file at path. If another process has the lock, it calls waiting and
// waits.
func Lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	return await(ctx, path, filelock.Try, waiting)
}

// Hold takes a shared lock of the file at path, and makes the file with its directory. Several jobs
// may share the lock; meanwhile [TryLock] fails. If a process has the lock of TryLock, Hold calls
// waiting and waits.
//
// In a read-only directory Hold returns no lock and no error: TryLock fails there too.
func Hold(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return func() {}, nil
	}
	unlock, err = await(ctx, path, filelock.TryShared, waiting)
	if err != nil && ctx.Err() == nil {
		return func() {}, nil
	}
	return unlock, err
}

var ErrInUse = errors.New("a running job uses it: run the command again when that job has ended")

// TryLock makes and locks the file at path, with its directory. If a process has a lock of the
// file, the error is [ErrInUse].
func TryLock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	unlock, err = lock(path, filelock.Try)
	if unlock == nil && err == nil {
		return nil, ErrInUse
	}
	return unlock, err
}

// lock takes the lock of path by try without waiting. unlock is nil if another process has a lock.
func lock(path string, try func(*os.File) (bool, error)) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	held, err := try(f)
	if err != nil || held && filelock.LeadsTo(path, f) { // an error: the file system has no locks
		return func() { f.Close() }, nil
	}
	return nil, f.Close()
}

// await takes the lock of the file at path by try, and waits until the lock is free.
func await(ctx context.Context, path string, try func(*os.File) (bool, error), waiting func()) (unlock func(), err error) {
	for first := true; ; first = false {
		if unlock, err := lock(path, try); unlock != nil || err != nil {
			return unlock, err
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
