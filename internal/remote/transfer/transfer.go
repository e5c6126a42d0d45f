// Package transfer copies objects of a remote store to files. A killed copy resumes: a record next
// to the incomplete file lists the finished chunks.
//
// The record is a text. Its first line identifies the object, and each further line is the number
// of a chunk and its CRC-32C, written after the chunk. A system that crashes may keep the line and
// lose the chunk: a resumed copy compares the sums, and fetches a chunk that differs again.
package transfer

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strconv"
	"sync"

	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/remote"
)

const (
	// Parallel is the number of requests that a Slots allows at once.
	Parallel = 8

	partialSuffix = ".gq-incomplete"
	recordSuffix  = ".gq-ranges"
)

// Slots limits the requests of simultaneous copies, and lends their buffers.
type Slots chan []byte

func NewSlots() Slots {
	s := make(Slots, Parallel)
	for range Parallel {
		s <- nil // the first use makes a buffer
	}
	return s
}

type Sum struct {
	Name string // "SHA-256"
	New  func() hash.Hash
	Want string // in lower-case hex
}

// A Copy is the copying of an object to a file.
type Copy struct {
	Store  remote.Store
	Object remote.Object
	Path   string // the file appears here once complete and with the right hash
	// Sum is checked if Sum.Want is set.
	Sum Sum
	// Slots are shared with other copies. Required.
	Slots Slots
	// Progress is told of bytes that arrive. Default (nil): nothing.
	Progress func(n int64)
}

func PartialFiles(path string) []string { return []string{path + partialSuffix, path + recordSuffix} }

func (c *Copy) Missing() int64 {
	n := c.Object.Size
	if st, err := os.Stat(c.Path + partialSuffix); err != nil || st.Size() != n {
		return n
	}
	data, err := os.ReadFile(c.Path + recordSuffix)
	if err != nil {
		return n
	}
	done, _, _ := parseRecord(data, c.head(), chunks(n))
	for i, ok := range done {
		if ok {
			n -= c.length(i)
		}
	}
	return n
}

// Run copies the object. The caller holds a lock against other copies to the path.
func (c *Copy) Run(ctx context.Context) error {
	p, err := c.open()
	if err != nil {
		return err
	}
	err = p.run(ctx)
	if e := p.data.Close(); err == nil {
		err = e
	}
	if e := p.record.Close(); err == nil {
		err = e
	}
	if err != nil {
		if _, wrong := errors.AsType[*SumError](err); wrong {
			c.discard()
		}
		return err
	}
	if err := os.Rename(c.Path+partialSuffix, c.Path); err != nil {
		return err
	}
	return os.Remove(c.Path + recordSuffix)
}

func (c *Copy) discard() {
	for _, name := range PartialFiles(c.Path) {
		_ = os.Remove(name) // the next copy overwrites a file that cannot be removed
	}
}

type SumError struct {
	File              string
	Hash, Want, Found string
}

func (e *SumError) Error() string {
	return fmt.Sprintf("%s: its %s is %s, expected %s: the download is damaged and was removed: run the command again", e.File, e.Hash, e.Found, e.Want)
}

type partial struct {
	*Copy
	data, record *os.File

	mu   sync.Mutex
	more *sync.Cond // done has changed, or failed
	done []bool
	err  error
}

func (c *Copy) open() (*partial, error) {
	p := &partial{Copy: c}
	p.more = sync.NewCond(&p.mu)
	var err error
	if p.data, err = os.OpenFile(c.Path+partialSuffix, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return nil, err
	}
	if p.record, err = os.OpenFile(c.Path+recordSuffix, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		p.data.Close()
		return nil, err
	}
	if err := p.resume(); err != nil {
		p.data.Close()
		p.record.Close()
		return nil, err
	}
	return p, nil
}

// resume reads the record. For another object or size, the copy starts over.
func (p *partial) resume() error {
	n := chunks(p.Object.Size)
	head := p.head()
	st, err := p.data.Stat()
	if err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(p.record, int64(len(head))+2*maxLine*int64(n)))
	if err != nil {
		return err
	}
	whole := 0
	var sums []uint32
	if st.Size() == p.Object.Size {
		p.done, sums, whole = parseRecord(data, head, n)
	}
	if whole == 0 {
		p.done = make([]bool, n)
		if err := p.record.Truncate(0); err != nil {
			return err
		}
		if err := p.data.Truncate(p.Object.Size); err != nil {
			return err
		}
		_, err = p.record.WriteAt([]byte(head), 0)
		whole = len(head)
	} else {
		// Without a line that a killed process began.
		err = errors.Join(p.verify(sums), p.record.Truncate(int64(whole)))
	}
	if err == nil {
		_, err = p.record.Seek(int64(whole), io.SeekStart)
	}
	return err
}

func (p *partial) verify(sums []uint32) error {
	buf := make([]byte, 1<<20)
	for i, done := range p.done {
		if !done {
			continue
		}
		sum := crc32c.Writer(0)
		if _, err := io.CopyBuffer(&sum, onlyReader{io.NewSectionReader(p.data, p.offset(i), p.length(i))}, buf); err != nil {
			return err
		}
		p.done[i] = uint32(sum) == sums[i]
	}
	return nil
}

// run fetches the missing chunks and checks the hash meanwhile.
func (p *partial) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	missing := make(chan int)
	var workers sync.WaitGroup
	for range min(Parallel, len(p.done)) {
		workers.Go(func() {
			for i := range missing {
				if err := p.fetch(ctx, i); err != nil {
					p.fail(err)
					cancel()
				}
			}
		})
	}
	sum := make(chan error, 1)
	go func() { sum <- p.check() }()
	for i := range p.done {
		p.mu.Lock()
		skip := p.done[i] || p.err != nil
		p.mu.Unlock()
		if !skip {
			missing <- i
		}
	}
	close(missing)
	workers.Wait()
	if err := <-sum; err != nil {
		return err
	}
	return p.data.Sync()
}

func (p *partial) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.more.Broadcast()
}

func (p *partial) fetch(ctx context.Context, i int) error {
	var buf []byte
	select {
	case buf = <-p.Slots:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { p.Slots <- buf }()
	n := p.length(i)
	if int64(len(buf)) < n {
		buf = make([]byte, n)
	}
	off := p.offset(i)
	if err := p.Store.ReadAt(ctx, p.Object, buf[:n], off); err != nil {
		return err
	}
	if _, err := p.data.WriteAt(buf[:n], off); err != nil {
		return err
	}
	if p.Progress != nil {
		p.Progress(n)
	}
	line := recordLine(i, crc32c.Checksum(buf[:n]))
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.record.WriteString(line); err != nil {
		return err
	}
	p.done[i] = true
	p.more.Broadcast()
	return nil
}

// check hashes the chunks in order, once complete, and returns the first error of the copy.
func (p *partial) check() error {
	var h hash.Hash
	buf := []byte(nil)
	if p.Sum.Want != "" {
		h, buf = p.Sum.New(), make([]byte, 1<<20)
	}
	for i := range p.done {
		p.mu.Lock()
		for !p.done[i] && p.err == nil {
			p.more.Wait()
		}
		err := p.err
		p.mu.Unlock()
		if err != nil {
			return err
		}
		if h == nil {
			continue
		}
		if _, err := io.CopyBuffer(h, onlyReader{io.NewSectionReader(p.data, p.offset(i), p.length(i))}, buf); err != nil {
			return err
		}
	}
	if h == nil {
		return nil
	}
	if found := hex.EncodeToString(h.Sum(nil)); found != p.Sum.Want {
		return &SumError{p.Store.String() + ": " + p.Object.Name, p.Sum.Name, p.Sum.Want, found}
	}
	return nil
}

// onlyReader hides other methods, so that io.CopyBuffer uses its buffer.
type onlyReader struct{ io.Reader }

func IsComplete(path string, size int64) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Size() == size
}

// chunkOf is the size of a file's chunks: an eighth, to give all requests work, from 1 to 8 MiB.
func chunkOf(size int64) int64 {
	const unit = 1 << 20
	return min(max((size/Parallel+unit-1)/unit, 1), 8) * unit
}

// chunks is the number of chunks of a file of size bytes.
func chunks(size int64) int {
	c := chunkOf(size)
	return int((size + c - 1) / c)
}

func (c *Copy) offset(i int) int64 { return int64(i) * chunkOf(c.Object.Size) }

func (c *Copy) length(i int) int64 {
	return min(chunkOf(c.Object.Size), c.Object.Size-c.offset(i))
}

func (c *Copy) head() string {
	o := c.Object
	modified := ""
	if o.Modified != "" {
		modified = fmt.Sprintf(", Last-Modified %q", o.Modified)
	}
	return fmt.Sprintf("gq ranges 2: %d bytes in chunks of %d, ETag %q, SHA-256 %q%s\n", o.Size, chunkOf(o.Size), o.ETag, o.SHA256, modified)
}

// recordLine is the line of chunk i with CRC-32C sum.
func recordLine(i int, sum uint32) string { return fmt.Sprintf("%d %08x\n", i, sum) }

// maxLine is the length of the longest line of a chunk.
const maxLine = 10 + 1 + 8 + 1

// parseRecord reads a record of n chunks that begins with head. sums has the CRC-32C of each done
// chunk. whole is the length of the valid part: 0 for a record of something else. The first invalid
// line ends the record.
func parseRecord(data []byte, head string, n int) (done []bool, sums []uint32, whole int) {
	rest, ok := bytes.CutPrefix(data, []byte(head))
	if !ok {
		return nil, nil, 0
	}
	done, sums, whole = make([]bool, n), make([]uint32, n), len(head)
	for {
		line, after, found := bytes.Cut(rest, []byte("\n"))
		number, crc, _ := bytes.Cut(line, []byte(" "))
		i, err := strconv.ParseUint(string(number), 10, 31)
		sum, bad := strconv.ParseUint(string(crc), 16, 32)
		if !found || err != nil || bad != nil || len(crc) != 8 || i >= uint64(n) {
			return done, sums, whole
		}
		done[i], sums[i], rest = true, uint32(sum), after
		whole += len(line) + 1
	}
}
