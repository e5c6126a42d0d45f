package seekable

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/lowbit-go/gq/internal/zstdframe"
)

// An Archive is an open archive, whose seek table has been checked.
type Archive struct {
	r       io.ReaderAt
	name    string
	table   []byte // entries
	size    int64  // of the content
	largest entry  // the greatest sizes of all entries
}

// entry is a frame in the seek table.
type entry struct {
	compressed, content int64
	checksum            uint32
}

// Open reads the seek table of an archive of size bytes. It fails with a *FormatError if the file is
// damaged or no archive, and with an *UnsupportedError if it exceeds a limit. name is the file's name
// in errors.
func Open(r io.ReaderAt, size int64, name string) (*Archive, error) {
	a := &Archive{r: r, name: name}
	frames, err := a.readFooter(size)
	if err != nil {
		return nil, err
	}
	start := size - (skippableHeader + frames*entrySize + footerSize)
	if start < 0 {
		return nil, a.bad(size-footerSize, "the seek table lists %d frames, which need %d bytes: the file has %d", frames, size-start, size)
	}
	var head [skippableHeader]byte
	if err := a.read(head[:], start); err != nil {
		return nil, err
	}
	if magic := binary.LittleEndian.Uint32(head[:]); magic != tableMagic {
		return nil, a.bad(start, "the seek table of %d frames begins with %08x, want %08x", frames, magic, uint32(tableMagic))
	}
	if n := int64(binary.LittleEndian.Uint32(head[4:])); n != frames*entrySize+footerSize {
		return nil, a.bad(start+4, "the seek table of %d frames states %d bytes, want %d", frames, n, frames*entrySize+footerSize)
	}
	a.table = make([]byte, frames*entrySize)
	if err := a.read(a.table, start+skippableHeader); err != nil {
		return nil, err
	}
	return a, a.checkTable(start)
}

// readFooter reads the end of the seek table.
func (a *Archive) readFooter(size int64) (frames int64, err error) {
	if size < skippableHeader+footerSize {
		return 0, a.bad(0, "%d bytes are no archive: the shortest has %d", size, skippableHeader+footerSize)
	}
	var b [footerSize]byte
	if err := a.read(b[:], size-footerSize); err != nil {
		return 0, err
	}
	if magic := binary.LittleEndian.Uint32(b[5:]); magic != endMagic {
		return 0, a.noTable(size)
	}
	frames = int64(binary.LittleEndian.Uint32(b[:]))
	switch flags := b[4]; {
	case flags&reservedFlags != 0:
		return 0, a.bad(size-5, "the seek table's descriptor is %02x: reserved bits are set", flags)
	case flags&checksumFlag == 0:
		return 0, a.unsupported("the seek table has no checksums: restore the file with zstd -d")
	case frames > MaxFrames:
		return 0, a.unsupported(fmt.Sprintf("the seek table lists %d frames, at most %d are allowed: restore the file with zstd -d", frames, MaxFrames))
	}
	return frames, nil
}

// noTable is the error for a file without a seek table.
func (a *Archive) noTable(size int64) error {
	var b [4]byte
	if err := a.read(b[:], 0); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(b[:]) == frameMagic {
		return a.bad(size-4, "a zstd file without a seek table: the archive is truncated, or another program made it, and zstd -d restores it")
	}
	return a.bad(0, "not an archive: it begins with %x, a zstd file with 28b52ffd", b)
}

// checkTable checks the sizes in the table. Frames must fill the bytes before start exactly.
func (a *Archive) checkTable(start int64) error {
	at := int64(0)
	for i := range a.frames() {
		e := a.entry(i)
		place := start + skippableHeader + int64(i)*entrySize
		switch {
		case e.content == 0:
			return a.bad(place+4, "frame %d has no content", i)
		case e.content > MaxFrameBytes:
			return a.unsupported(fmt.Sprintf("frame %d, at byte %d, has a content of %d bytes, at most %d are allowed: restore the file with zstd -d", i, at, e.content, MaxFrameBytes))
		case e.compressed > maxCompressed(e.content):
			return a.bad(place, "frame %d has %d bytes for a content of %d", i, e.compressed, e.content)
		case e.compressed > start-at:
			return a.bad(place, "frame %d, of %d bytes at byte %d, reaches into the seek table at byte %d", i, e.compressed, at, start)
		}
		at += e.compressed
		a.size += e.content // at most MaxFrames * MaxFrameBytes
		a.largest.compressed = max(a.largest.compressed, e.compressed)
		a.largest.content = max(a.largest.content, e.content)
	}
	if at != start {
		return a.bad(at, "%d bytes between the last frame and the seek table", start-at)
	}
	return nil
}

func (a *Archive) frames() int { return len(a.table) / entrySize }

func (a *Archive) entry(i int) entry {
	b := a.table[i*entrySize:][:entrySize]
	return entry{int64(binary.LittleEndian.Uint32(b)), int64(binary.LittleEndian.Uint32(b[4:])), binary.LittleEndian.Uint32(b[8:])}
}

// read reads bytes that must be there. The reader's own errors say nothing of the archive.
func (a *Archive) read(b []byte, off int64) error {
	n, err := a.r.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case err != nil && !errors.Is(err, io.EOF):
		return err
	}
	return &FormatError{a.name, off + int64(n), "the file ends here", err}
}

func (a *Archive) bad(off int64, format string, args ...any) error {
	return &FormatError{a.name, off, fmt.Sprintf(format, args...), nil}
}

func (a *Archive) unsupported(msg string) error { return &UnsupportedError{a.name, msg} }

// Size is the size of the content.
func (a *Archive) Size() int64 { return a.size }

// Frames is the number of frames.
func (a *Archive) Frames() int { return a.frames() }

// Decompress writes the content to w. Frames are decoded in parallel and written in any order, each
// after its checksums are checked. Of several damaged frames the error names the first one.
func (a *Archive) Decompress(ctx context.Context, w io.WriterAt, o Options) error {
	d := &decompressor{Archive: a, w: w}
	var wg sync.WaitGroup
	for range min(o.threads(), a.frames(), a.threads()) {
		wg.Go(func() {
			if i, err := d.work(ctx, o); err != nil {
				d.mu.Lock()
				defer d.mu.Unlock()
				if d.err == nil || i < d.errAt {
					d.err, d.errAt = err, i
				}
			}
		})
	}
	wg.Wait()
	return d.err
}

// threads is how many workers may run within maxBuffers.
func (a *Archive) threads() int {
	return int(max(1, maxBuffers/max(1, a.largest.compressed+a.largest.content)))
}

// decompressor hands frames out to workers.
type decompressor struct {
	*Archive
	w io.WriterAt

	mu      sync.Mutex
	next    int
	at, off int64 // of the next frame, in the archive and in the content
	err     error // of the first frame with an error: frames are taken in order, and those taken are finished
	errAt   int   // the frame
}

// take gives the next frame and its places. ok is false if there is none, or after an error.
func (d *decompressor) take() (i int, at, off int64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil || d.next == d.frames() {
		return 0, 0, 0, false
	}
	i, at, off = d.next, d.at, d.off
	e := d.entry(i)
	d.next, d.at, d.off = i+1, at+e.compressed, off+e.content
	return i, at, off, true
}

// work decodes frames until there are no more. i is the frame with the error.
func (d *decompressor) work(ctx context.Context, o Options) (i int, err error) {
	decoder, err := zstdframe.NewDecoder(d.largest.content, MaxFrameBytes)
	if err != nil {
		return 0, err
	}
	defer decoder.Close()
	z, content := make([]byte, d.largest.compressed), make([]byte, d.largest.content)
	for {
		i, at, off, ok := d.take()
		if !ok {
			return 0, nil
		}
		if err := ctx.Err(); err != nil {
			return i, err
		}
		e := d.entry(i)
		if err := d.decode(decoder, content[:e.content], z[:e.compressed], at, i); err != nil {
			return i, err
		}
		if _, err := d.w.WriteAt(content[:e.content], off); err != nil {
			return i, err
		}
		o.done(int(e.content))
	}
}

// decode reads frame i at byte at and decodes it.
func (a *Archive) decode(decoder *zstdframe.Decoder, content, z []byte, at int64, i int) error {
	if err := a.read(z, at); err != nil {
		return err
	}
	fail := func(err error) error { return &FormatError{a.name, at, fmt.Sprintf("frame %d", i), err} }
	h, err := zstdframe.Check(z, int64(len(content)), MaxFrameBytes)
	if err != nil {
		return fail(err)
	}
	if !h.HasCheckSum {
		return a.unsupported(fmt.Sprintf("frame %d, at byte %d, has no checksum: restore the file with zstd -d", i, at))
	}
	if sum, want := binary.LittleEndian.Uint32(z[len(z)-4:]), a.entry(i).checksum; sum != want {
		return fail(fmt.Errorf("its checksum is %08x, in the seek table %08x", sum, want))
	}
	if err := decoder.Decode(content, z); err != nil { // which compares the checksum with the content's
		return fail(err)
	}
	return nil
}
