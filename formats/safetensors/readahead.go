package safetensors

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/lowbit-go/gq/internal/mmap"
)

const (
	// chunkBytes is the unit in which bytes of remote files are counted. A chunk is fetched and
	// dropped as a whole, so chunkBytes bounds the waste at both ends of a range.
	chunkBytes = mmap.Granule
	// requestBytes is the most in a request. 16 MB at 100 ms a round trip would not be faster.
	requestBytes = 8 << 20
	// connections is the number of requests at a time.
	connections = 6
)

// ReadAheadBytes is the most memory that a ReadAhead takes for bytes of remote files. Bytes that
// are still on their way count. A step that needs more is fetched alone.
const ReadAheadBytes = 64 << 20

// A Range is n bytes of a file of a checkpoint. A range that ends beyond its file is cut.
type Range struct {
	File         int // index into Checkpoint.Files
	Offset, Size int64
}

// Range returns the place of n bytes of the tensor from its byte off on.
func (t *Tensor) Range(off, n int64) Range {
	return Range{File: t.File, Offset: t.Offset + off, Size: n}
}

// resident counts the chunks of remote files that are in memory, or are to come.
type resident struct {
	files map[int]remoteRegion // by the index of the file

	mu     sync.Mutex
	change sync.Cond // a chunk came or went
	chunks map[place]*chunk
}

type remoteRegion struct {
	*RemoteFile
	region *mmap.Region
}

// place is a chunk's file and its number there.
type place struct {
	file   int
	number int64
}

// chunk is a chunk that somebody needs.
type chunk struct {
	users   int
	present bool
	err     error // why the chunk did not come
}

// span is consecutive chunks of a file.
type span struct {
	file        int
	first, last int64 // last is included
}

func (s span) overlaps(o span) bool {
	return s.file == o.file && s.first <= o.last && o.first <= s.last
}

func newResident() *resident {
	r := &resident{files: map[int]remoteRegion{}, chunks: map[place]*chunk{}}
	r.change.L = &r.mu
	return r
}

// spans are the chunks with the bytes of ranges in remote files. Neighbours become a single span.
func (r *resident) spans(ranges []Range) (list []span) {
next:
	for _, g := range ranges {
		f, ok := r.files[g.File]
		if !ok || g.Offset < 0 || g.Size <= 0 || g.Offset >= f.Size {
			continue
		}
		end := g.Offset + min(g.Size, f.Size-g.Offset)
		s := span{g.File, g.Offset / chunkBytes, (end - 1) / chunkBytes}
		for i := range list {
			if l := &list[i]; l.file == s.file && s.first <= l.last+1 && l.first <= s.last+1 {
				l.first, l.last = min(l.first, s.first), max(l.last, s.last)
				continue next
			}
		}
		list = append(list, s)
	}
	return list
}

// missing is the number of chunks of the spans that are not in memory and not to come.
func (r *resident) missing(spans []span) (n int64) {
	for _, s := range spans {
		for i := s.first; i <= s.last; i++ {
			if r.chunks[place{s.file, i}] == nil {
				n++
			}
		}
	}
	return n
}

// state reports whether all chunks of the spans are present, or why a chunk cannot come.
func (r *resident) state(spans []span) (present bool, err error) {
	for _, s := range spans {
		for i := s.first; i <= s.last; i++ {
			switch c := r.chunks[place{s.file, i}]; {
			case c.err != nil:
				return false, c.err
			case !c.present:
				return false, nil
			}
		}
	}
	return true, nil
}

// drop counts one user less of each chunk, and gives back the memory of chunks without users.
func (r *resident) drop(spans []span) {
	for _, s := range spans {
		unused := int64(0) // chunks before i
		for i := s.first; i <= s.last+1; i++ {
			at := place{s.file, i}
			if c := r.chunks[at]; i <= s.last && c != nil {
				if c.users--; c.users == 0 {
					delete(r.chunks, at)
					if c.present {
						unused++
						continue
					}
				}
			}
			if unused > 0 {
				r.release(span{s.file, i - unused, i - 1})
				unused = 0
			}
		}
	}
	r.change.Broadcast()
}

// release gives the memory of chunks back. That fails only if the system has no room for the
// description of a further range; the memory stays in use then, and the next filling says so.
func (r *resident) release(s span) {
	_ = r.files[s.file].region.Drop(s.first*chunkBytes, (s.last-s.first+1)*chunkBytes)
}

// fetch brings absent chunks into memory.
func (r *resident) fetch(ctx context.Context, s span) error {
	f := r.files[s.file]
	off, n := s.first*chunkBytes, (s.last-s.first+1)*chunkBytes
	b, err := f.region.Fill(off, n)
	if err != nil {
		return err
	}
	if err := f.ReadAt(ctx, b, off); err != nil {
		r.release(s)
		return fmt.Errorf("%s: bytes %d to %d: %w", f.region.Name(), off, off+int64(len(b)), err)
	}
	return f.region.Seal(off, n)
}

// A ReadAhead fetches bytes of remote files before the steps of a job read the bytes, in the order
// of the steps. A ReadAhead drops bytes after their last step; ReadAheadBytes limits its memory. A
// checkpoint without remote files has a nil ReadAhead with methods that do nothing.
type ReadAhead struct {
	*resident
	ctx    context.Context
	stop   context.CancelFunc
	ranges func(step int, list []Range) []Range
	wg     sync.WaitGroup

	// Under resident.mu:
	admitted int            // number of steps with counted chunks
	open     map[int][]span // the chunks of the steps that are admitted and not done
	tail     span           // chunks to be requested; the next step may add some
	queue    []span         // requests that nobody has begun
	ended    bool           // all steps are admitted, or the job has ended
}

// ReadAhead begins to fetch the ranges of steps 0, 1, ... steps-1. ranges appends the ranges of a
// step to list; a goroutine of its own calls ranges, once for each step. Each step begins with Wait
// and ends with Done. Steps begin in about their order: a step may wait for ever for an earlier
// step that does not begin. Close must be called.
func (c *Checkpoint) ReadAhead(ctx context.Context, steps int, ranges func(step int, list []Range) []Range) *ReadAhead {
	if c.remote == nil {
		return nil
	}
	a := &ReadAhead{resident: c.remote, ranges: ranges, open: map[int][]span{}, tail: span{last: -1}}
	a.ctx, a.stop = context.WithCancel(ctx)
	a.wg.Go(func() { a.admit(steps) })
	for range connections {
		a.wg.Go(a.request)
	}
	// Those who wait on change learn that the context has ended.
	context.AfterFunc(a.ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.change.Broadcast()
	})
	return a
}

// admit counts the chunks of step after step, as memory becomes free.
func (a *ReadAhead) admit(steps int) {
	var list []Range
	for step := range steps {
		list = a.ranges(step, list[:0])
		spans := a.spans(list)
		a.mu.Lock()
		for a.ctx.Err() == nil && len(a.open) > 0 && (int64(len(a.chunks))+a.missing(spans))*chunkBytes > ReadAheadBytes {
			a.change.Wait()
		}
		if a.ctx.Err() == nil {
			a.add(spans)
			a.open[step] = spans
			a.admitted = step + 1
			a.change.Broadcast()
		}
		a.mu.Unlock()
		if a.ctx.Err() != nil {
			break
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flush()
	a.ended = true
	a.change.Broadcast()
}

// add counts a user more of each chunk, and lists the chunks to be requested.
func (a *ReadAhead) add(spans []span) {
	for _, s := range spans {
		for i := s.first; i <= s.last; i++ {
			at := place{s.file, i}
			c := a.chunks[at]
			if c == nil {
				c = &chunk{}
				a.chunks[at] = c
				a.toRequest(at)
			}
			c.users++
		}
	}
}

// toRequest adds a chunk to the tail, or begins a new tail.
func (a *ReadAhead) toRequest(at place) {
	if t := &a.tail; t.last >= t.first && t.file == at.file && t.last+1 == at.number && at.number-t.first < requestBytes/chunkBytes {
		t.last++
		return
	}
	a.flush()
	a.tail = span{at.file, at.number, at.number}
}

// flush queues the tail, however short.
func (a *ReadAhead) flush() {
	if a.tail.last >= a.tail.first {
		a.queue = append(a.queue, a.tail)
		a.tail = span{last: -1}
		a.change.Broadcast()
	}
}

func (a *ReadAhead) request() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		for len(a.queue) == 0 && !a.ended && a.ctx.Err() == nil {
			a.change.Wait()
		}
		if len(a.queue) == 0 || a.ctx.Err() != nil {
			return
		}
		s := a.queue[0]
		a.queue = a.queue[1:]
		a.mu.Unlock()
		err := a.fetch(a.ctx, s)
		a.mu.Lock()
		for i := s.first; i <= s.last; i++ {
			c := a.chunks[place{s.file, i}]
			c.present, c.err = err == nil, err
		}
		a.change.Broadcast()
	}
}

// Wait returns when all bytes of the step are in memory, or cannot be fetched.
func (a *ReadAhead) Wait(step int) error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		if step < a.admitted {
			if present, err := a.state(a.open[step]); present || err != nil {
				return err
			}
		}
		if err := context.Cause(a.ctx); err != nil {
			return err
		}
		if slices.ContainsFunc(a.open[step], a.tail.overlaps) {
			a.flush()
		}
		a.change.Wait()
	}
}

// Done releases the bytes of a step that has read its bytes.
func (a *ReadAhead) Done(step int) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done(step)
}

func (a *ReadAhead) done(step int) {
	a.drop(a.open[step])
	delete(a.open, step)
}

func (a *ReadAhead) Close() {
	if a == nil {
		return
	}
	a.stop()
	a.wg.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flush()
	for _, s := range a.queue { // others may wait for these
		for i := s.first; i <= s.last; i++ {
			a.chunks[place{s.file, i}].err = context.Canceled
		}
	}
	for step := range a.open {
		a.done(step)
	}
}

// Fetch makes ranges of remote files readable until release. The caller bounds the memory.
func (c *Checkpoint) Fetch(ctx context.Context, ranges ...Range) (release func(), err error) {
	if c.remote == nil {
		return func() {}, nil
	}
	if release, ok := c.remote.hold(c.remote.spans(ranges)); ok {
		return release, nil
	}
	a := c.ReadAhead(ctx, 1, func(_ int, list []Range) []Range { return append(list, ranges...) })
	if err := a.Wait(0); err != nil {
		a.Close()
		return nil, err
	}
	return a.Close, nil
}

// hold counts a user more of chunks that are all present.
func (r *resident) hold(spans []span) (release func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.missing(spans) > 0 {
		return nil, false
	}
	if present, _ := r.state(spans); !present {
		return nil, false
	}
	for _, s := range spans {
		for i := s.first; i <= s.last; i++ {
			r.chunks[place{s.file, i}].users++
		}
	}
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.drop(spans)
	}), true
}
