// Package pieces assembles a file from bytes that come in any order, and sends each piece of the file as soon
// as it is complete: to an object store, which takes a large object in pieces of one size.
package pieces

import (
	"fmt"
	"sync"
)

// sendingBytes bounds the pieces that are being sent, and maxSending their number. At least one is sent.
const (
	sendingBytes = 64 << 20
	maxSending   = 8
)

// Options describe the file. Size, Piece and Send are needed.
type Options struct {
	Name  string // of the file, for errors
	Size  int64  // of the file, in bytes
	Piece int64  // the size of a piece in bytes; the last piece may be smaller
	// Send takes piece i, counted from 0. Several goroutines call it. The data are valid until it returns.
	Send func(i int, data []byte) error
	// Front is an offset in the file: pieces that begin before it are sent by Flush only. Default: 0.
	Front int64
	// Expect is how many of the bytes from from to to - 1, which are a piece, WriteAt will bring. A piece that
	// expects too many is sent by Flush only. Default: all bytes.
	Expect func(from, to int64) int64
	// Fill writes bytes that WriteAt does not bring into a new piece of zeros, which begins at off in the
	// file. Default: zeros stay.
	Fill func(data []byte, off int64)
}

// An Assembler assembles a file. Its memory is the pieces that are being sent, at most 64 MiB or one piece,
// and the pieces that are not complete.
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
	data    []byte // nil: nothing is written yet, or it is sent
	missing int64  // bytes that are not written yet, once there are data
	begun   bool   // it is being sent, or it is sent
}

// New returns an Assembler.
func New(o Options) *Assembler {
	a := &Assembler{o: o, limit: int(min(max(1, sendingBytes/o.Piece), maxSending))}
	a.changed = sync.NewCond(&a.mu)
	a.pieces = make([]piece, max(1, (o.Size+o.Piece-1)/o.Piece))
	return a
}

// Count is the number of pieces of the file. An empty file has one.
func (a *Assembler) Count() int { return len(a.pieces) }

// Bounds are where piece i begins and ends in the file.
func (a *Assembler) Bounds(i int) (from, to int64) {
	from = int64(i) * a.o.Piece
	return from, min(from+a.o.Piece, a.o.Size)
}

// WriteAt writes p at the byte offset off, like io.WriterAt. Several goroutines may call it. No byte may be
// written twice. It waits while many pieces are being sent.
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

// buffer returns the buffer of piece i. It waits for a place if the piece has none yet.
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
		if a.o.Fill != nil {
			a.o.Fill(p.data, from)
		}
	}
	return p.data, nil
}

// take returns a buffer of zeros.
func (a *Assembler) take(n int64) []byte {
	if k := len(a.free); k > 0 {
		b := a.free[k-1][:n]
		a.free = a.free[:k-1]
		clear(b)
		return b
	}
	return make([]byte, n, min(a.o.Piece, max(a.o.Size, 1)))
}

// written counts n bytes, and sends a piece when it is complete.
func (a *Assembler) written(i int, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &a.pieces[i]
	if p.missing -= n; p.missing <= 0 && int64(i)*a.o.Piece >= a.o.Front {
		a.send(i)
	}
}

// send begins to send piece i. The caller holds the lock.
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

// Flush begins to send piece i if it is not sent yet, complete or not. It must come after the last WriteAt.
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

// Wait waits until no piece is being sent, and returns the error of the first piece that could not be sent.
func (a *Assembler) Wait() error {
	a.wg.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}
