package transfer

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/filelock"
	"github.com/lowbit-go/gq/internal/remote"
)

// Options are what copies report.
type Options struct {
	// Progress is told of bytes that arrive. Default (nil): nothing.
	Progress func(n int64)
	// Waiting is called when another process copies a file that this one waits for. Default (nil):
	// nothing.
	Waiting func(file string)
}

// WaitingFor calls Waiting if it is set.
func (o Options) WaitingFor(file string) {
	if o.Waiting != nil {
		o.Waiting(file)
	}
}

// filesAtOnce is the number of files that are copied at once: small ones take longer to ask for than to
// send.
const filesAtOnce = 4

// Each calls fetch for each object, for several at once, and returns the first error. The slots are
// common to all calls.
func Each(ctx context.Context, objects []remote.Object, fetch func(ctx context.Context, o remote.Object, slots Slots) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slots := NewSlots()
	queue := make(chan remote.Object)
	var (
		workers sync.WaitGroup
		once    sync.Once
		first   error
	)
	for range filesAtOnce {
		workers.Go(func() {
			for o := range queue {
				err := ctx.Err()
				if err == nil {
					err = fetch(ctx, o, slots)
				}
				if err != nil {
					once.Do(func() { first = err; cancel() })
				}
			}
		})
	}
	for _, o := range objects {
		queue <- o
	}
	close(queue)
	workers.Wait()
	return first
}

// CheckRoom returns an error if there is no room for so many bytes in the file system of a directory.
func CheckRoom(dir string, bytes int64) error {
	if free, err := atomicfile.FreeSpace(dir); err == nil && free < bytes {
		return fmt.Errorf("%d bytes are to be fetched, and there is room for %d in %s: make room", bytes, free, dir)
	}
	return nil
}

// Lock takes the lock of the file at path, which it makes. If another process has it, Lock calls waiting
// and waits.
func Lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	for first := true; ; first = false {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, err
		}
		held, err := filelock.Try(f)
		if err != nil || held && filelock.LeadsTo(path, f) { // an error: the file system has no locks
			return func() { f.Close() }, nil
		}
		f.Close()
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
