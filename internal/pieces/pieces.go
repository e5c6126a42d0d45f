// Package pieces assembles a file from bytes that come in any order, and sends each piece of the
// file as soon as complete: to an object store that takes a large object in pieces of the same
// size.
package pieces

import (
	"fmt"
	"sync"
)

// sendingBytes and maxSending bound the pieces in sending, but allow a single piece of any size.
const (
	sendingBytes = 64 << 20
	maxSending   = 8
)

// Options describe the file. Size, Piece and Send are needed.
type Options struct {
	Name  string // of the file, for errors
	Size  int64  // of the file, in bytes
	Piece int64  // the size of a piece in bytes; the last piece may be smaller
	// Send takes piece i from 0, from several goroutines. The data are valid during the call.
	Send func(i int, data []byte) error
	// Front is an offset in the file: only Flush sends pieces that begin before Front. Default: 0.
	Front int64
	// Expect is how many bytes of the piece from .. to - 1 WriteAt will bring. Only Flush sends a
	// piece that expects too many. Default: all bytes.
	Expect func(from, to int64) int64
}

// An Assembler assembles a file. Its memory is the pieces that are being sent, at most 64 MiB or a
// single piece, and the incomplete pieces.
type Assembler struct {
	o     Options
	limit int // of pieces that are being sent
	wg    sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	pieces  []piece
	sending int
	free    [][]byte // buffers
	err     error    // of the first piece that could not be sent
}

type piece struct {
	data    []byte // nil: nothing is written yet, or all is sent
	missing int64  // bytes that are not written yet, once there are data
	begun   bool   // being sent, or sent
}

func New(o Options) *Assembler {
	a := &Assembler{o: o, limit: int(min(max(1, sendingBytes/o.Piece), maxSending))}
	a.changed = sync.NewCond(&a.mu)
	a.pieces = make([]piece, max(1, (o.Size+o.Piece-1)/o.Piece))
	return a
}

// Count is the number of pieces of the file. An empty file has a single piece.
func (a *Assembler) Count() int { return len(a.pieces) }

func (a *Assembler) Bounds(i int) (from, to int64) {
	from = int64(i) * a.o.Piece
	return from, min(from+a.o.Piece, a.o.Size)
}

// WriteAt writes p at the byte offset off, like io.WriterAt, and waits while many pieces are being
// sent. Several goroutines may call WriteAt. No byte may be written twice.
func (a *Assembler) WriteAt(p []byte, off int64) (n int, err error) {
	if off < 0 || off > a.o.Size || int64(len(p)) > a.o.Size-off {
		return 0, fmt.Errorf("%s: bytes %d to %d of an object of %d bytes", a.o.Name, off, off+int64(len(p)), a.o.Size)
	}
	for n < len(p) {
		at := off + int64(n)
		i := int(at / a.o.Piece)
		data, err := a.buffer(i)
		if err != nil {
			return n, err
		}
		k := copy(data[at-int64(i)*a.o.Piece:], p[n:])
		a.written(i, int64(k))
		n += k
	}
	return n, nil
}

// buffer returns the buffer of piece i. For a new buffer it waits for a place.
func (a *Assembler) buffer(i int) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &a.pieces[i]
	for a.err == nil && p.data == nil && !p.begun && a.sending >= a.limit {
		a.changed.Wait()
	}
	switch {
	case a.err != nil:
		return nil, a.err
	case p.begun:
		return nil, fmt.Errorf("%s: piece %d was sent already: bytes are written twice", a.o.Name, i+1)
	case p.data == nil:
		from, to := a.Bounds(i)
		p.data, p.missing = a.take(to-from), to-from
		if a.o.Expect != nil {
			p.missing = a.o.Expect(from, to)
		}
	}
	return p.data, nil
}

func (a *Assembler) take(n int64) []byte {
	if k := len(a.free); k > 0 {
		b := a.free[k-1][:n]
		a.free = a.free[:k-1]
		clear(b)
		return b
	}
	return make([]byte, n, min(a.o.Piece, max(a.o.Size, 1)))
}

// written counts n bytes, and sends a complete piece.
func (a *Assembler) written(i int, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &a.pieces[i]
	if p.missing -= n; p.missing <= 0 && int64(i)*a.o.Piece >= a.o.Front {
		a.send(i)
	}
}

func (a *Assembler) send(i int) {
	p := &a.pieces[i]
	p.begun = true
	a.sending++
	a.wg.Go(func() {
		err := a.o.Send(i, p.data)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.sending--
		a.free = append(a.free, p.data)
		p.data = nil
		if err != nil && a.err == nil {
			a.err = err
		}
		a.changed.Broadcast()
	})
}

// Flush begins to send piece i unless already sent, complete or not, after the last WriteAt.
func (a *Assembler) Flush(i int) error {
	if a.pieces[i].begun { // no other goroutine begins pieces now
		return nil
	}
	if _, err := a.buffer(i); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.send(i)
	return nil
}

// Wait waits until no piece is being sent, and returns the error of the first failed piece.
func (a *Assembler) Wait() error {
	a.wg.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}
