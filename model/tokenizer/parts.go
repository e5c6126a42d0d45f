package tokenizer

import (
	"iter"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/lowbit-go/gq/internal/jsonscan"
)

// partReaders bounds the goroutines that read the parts of a value. One more goroutine
// takes the results.
const partReaders = 4

// part is a part of the vocabulary or of the list of merges, and the entries read from it.
type part[T any] struct {
	jsonscan.Part
	ready chan struct{} // closed when the fields below are set
	read  T
	err   error
}

// readParts reads the parts of an array or object in several goroutines, each with read, and yields the
// results in order, up to the first error.
func readParts[T any](list []jsonscan.Part, read func(p jsonscan.Part) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		parts := make([]part[T], len(list))
		for i := range parts {
			parts[i].Part, parts[i].ready = list[i], make(chan struct{})
		}
		var next atomic.Int64
		var wg sync.WaitGroup
		defer wg.Wait()
		defer next.Store(int64(len(parts))) // if yield wants no more
		for range min(len(parts), partReaders, runtime.GOMAXPROCS(0)) {
			wg.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= len(parts) {
						return
					}
					p := &parts[i]
					p.read, p.err = read(p.Part)
					close(p.ready)
				}
			})
		}
		for i := range parts {
			p := &parts[i]
			<-p.ready
			if !yield(p.read, p.err) || p.err != nil {
				return
			}
			var none T
			p.read = none // the garbage collector may take it
		}
	}
}
