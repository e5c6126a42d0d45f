package logits

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/zstdframe"
)

// File is an open file of reference logits. Its methods may be called concurrently.
type File struct {
	Header
	Windows []Window

	r      io.ReaderAt
	blocks []block
	first  []int // by window: its first block
}

type block struct {
	offset int64 // of the stored bytes
	stored int
	crc    uint32
	rows   int // 0: block 0
}

// Read reads the header and the windows of a file of this size, and finds its blocks.
func Read(r io.ReaderAt, size int64) (*File, error) {
	f := &File{r: r}
	at, err := f.readHeader(size)
	if err != nil {
		return nil, err
	}
	b, err := f.find(&at, size, 0)
	if err != nil {
		return nil, err
	}
	if err := f.readWindows(b); err != nil {
		return nil, err
	}
	for _, w := range f.Windows {
		f.first = append(f.first, len(f.blocks))
		for left := len(w.Tokens) - w.First; left > 0; left -= f.RowsPerBlock {
			b, err := f.find(&at, size, min(left, f.RowsPerBlock))
			if err != nil {
				return nil, err
			}
			f.blocks = append(f.blocks, b)
		}
	}
	if at != size {
		return nil, &FormatError{at, fmt.Sprintf("%d bytes follow the last block", size-at)}
	}
	return f, nil
}

func (f *File) readHeader(size int64) (at int64, err error) {
	front := make([]byte, min(int64(frontSize), size))
	if err := f.readAt(front, 0); err != nil {
		return 0, err
	}
	le := binary.LittleEndian
	switch {
	case len(front) < frontSize || string(front[:len(magic)]) != magic:
		return 0, &FormatError{0, "this is no file of reference logits: gq accuracy --save-reference writes them"}
	case le.Uint32(front[len(magic):]) != Version:
		return 0, &FormatError{int64(len(magic)), fmt.Sprintf("version %d: this program reads version %d", le.Uint32(front[len(magic):]), Version)}
	}
	n := int64(le.Uint32(front[len(magic)+4:]))
	if n > maxHeader || n > size-int64(frontSize) {
		return 0, &FormatError{int64(len(magic)) + 4, fmt.Sprintf("a header of %d bytes: at most %d are possible", n, min(maxHeader, size-int64(frontSize)))}
	}
	b := make([]byte, n)
	if err := f.readAt(b, int64(frontSize)); err != nil {
		return 0, err
	}
	if crc := crc32c.Checksum(b); crc != le.Uint32(front[len(magic)+8:]) {
		return 0, &FormatError{int64(frontSize), "the header is damaged: its checksum differs"}
	}
	h, err := parseHeader(b)
	if err != nil {
		return 0, err
	}
	f.Header = *h
	return int64(frontSize) + n, nil
}

func (f *File) content(b block) int {
	if b.rows == 0 {
		return windowBytes*f.Header.Windows + 4*f.Tokens
	}
	return b.rows * rowBytes(f.Vocab)
}

// find reads the head of the block at *at and moves *at behind the block.
func (f *File) find(at *int64, size int64, rows int) (block, error) {
	var head [blockHead]byte
	if size-*at < blockHead {
		return block{}, &FormatError{*at, "the file ends before its last block: it is incomplete"}
	}
	if err := f.readAt(head[:], *at); err != nil {
		return block{}, err
	}
	b := block{offset: *at + blockHead, rows: rows, crc: binary.LittleEndian.Uint32(head[4:])}
	n := int64(binary.LittleEndian.Uint32(head[:]))
	// zstd stores incompressible data with a few bytes per 128 KiB.
	if most := int64(f.content(b)) + int64(f.content(b))/1024 + 64; n > most {
		return block{}, &FormatError{*at, fmt.Sprintf("a block of %d bytes: at most %d are possible", n, most)}
	}
	if n > size-b.offset {
		return block{}, &FormatError{*at, fmt.Sprintf("a block of %d bytes, but the file ends after %d: it is incomplete", n, size-b.offset)}
	}
	b.stored = int(n)
	*at = b.offset + n
	return b, nil
}

func (f *File) load(b block) ([]byte, error) {
	z := make([]byte, b.stored)
	if err := f.readAt(z, b.offset); err != nil {
		return nil, err
	}
	if crc := crc32c.Checksum(z); crc != b.crc {
		return nil, &FormatError{b.offset, "the block is damaged: its checksum differs"}
	}
	size := f.content(b)
	d, err := zstdframe.NewDecoder(int64(size), 1<<10)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	content := make([]byte, size)
	if err := d.Decode(content, z); err != nil {
		return nil, &FormatError{b.offset, fmt.Sprintf("the block has no content of %d bytes: %v", size, err)}
	}
	return content, nil
}

func (f *File) readWindows(b block) error {
	content, err := f.load(b)
	if err != nil {
		return err
	}
	fail := func(format string, args ...any) error { return &FormatError{b.offset, fmt.Sprintf(format, args...)} }
	le := binary.LittleEndian
	table, ids := content[:windowBytes*f.Header.Windows], content[windowBytes*f.Header.Windows:]
	scored := 0
	for i := range f.Header.Windows {
		at := table[windowBytes*i:]
		n, first := int64(le.Uint32(at)), int64(le.Uint32(at[4:]))
		if n > int64(len(ids)/4) || first < 1 || first >= n {
			return fail("window %d predicts from token %d of %d", i, first, n)
		}
		w := Window{Tokens: make([]int32, n), First: int(first), Bytes: int(le.Uint32(at[8:])), Words: int(le.Uint32(at[12:]))}
		for k := range w.Tokens {
			id := le.Uint32(ids[4*k:])
			if id >= uint32(f.Vocab) {
				return fail("window %d has the token %d: the vocabulary has %d tokens", i, id, f.Vocab)
			}
			w.Tokens[k] = int32(id)
		}
		ids = ids[4*n:]
		scored += int(n - first)
		f.Windows = append(f.Windows, w)
	}
	if len(ids) > 0 || scored != f.Scored {
		return fail("the windows have %d tokens fewer than the header states, and %d predictions instead of %d", len(ids)/4, scored, f.Scored)
	}
	return nil
}

// Logits decodes predictions of a window into dst: row row and the rows behind it in the same
// block, as many as fit. rows is their number. Logits are relative to the largest logit of their
// prediction.
func (f *File) Logits(dst []float32, window, row int) (rows int, err error) {
	i := row / f.RowsPerBlock
	b := f.blocks[f.first[window]+i]
	first, n := i*f.RowsPerBlock, b.rows
	content, err := f.load(b)
	if err != nil {
		return 0, err
	}
	v := f.Vocab
	rows = min(first+n-row, len(dst)/v)
	planes := content[4*n:]
	for i := range rows {
		k := row - first + i
		r := math.Float32frombits(binary.LittleEndian.Uint32(content[4*k:]))
		if !(r >= 0 && r <= math.MaxFloat32) {
			return 0, &FormatError{b.offset, fmt.Sprintf("prediction %d of window %d has the range %v", row+i, window, r)}
		}
		decodeRow(dst[i*v:][:v], r, planes[k*v:][:v], planes[(n+k)*v:][:v])
	}
	return rows, nil
}

func (f *File) readAt(p []byte, off int64) error {
	n, err := f.r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return &FormatError{off + int64(n), "the file ends here: it became shorter while it was read"}
	}
	return err
}
