package seekable

import (
	"context"
	"encoding/binary"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Compress writes size bytes of src to w as an archive and returns the archive's size.
func Compress(ctx context.Context, w io.Writer, src io.ReaderAt, size int64, o Options) (int64, error) {
	return compress(ctx, w, src, size, o, FrameBytes, level)
}

func compress(ctx context.Context, w io.Writer, src io.ReaderAt, size int64, o Options, frameBytes int64, level zstd.EncoderLevel) (int64, error) {
	if err := CheckSize(size); err != nil {
		return 0, err
	}
	c := &compressor{ctx: ctx, w: w, src: src, size: size, frameBytes: frameBytes, options: o}
	c.cond.L = &c.mu
	frames := int((size + frameBytes - 1) / frameBytes)
	c.table = make([]byte, skippableHeader, skippableHeader+frames*entrySize+footerSize)
	stop := context.AfterFunc(ctx, func() { c.fail(ctx.Err()) })
	defer stop()
	var wg sync.WaitGroup
	for range min(o.threads(), frames) {
		encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(level), zstd.WithSingleSegment(true))
		if err != nil {
			c.fail(err)
			break
		}
		wg.Go(func() { c.work(encoder) })
	}
	wg.Wait()
	if c.err != nil {
		return 0, c.err
	}
	return c.finish()
}

// compressor has workers that compress frames in parallel and write them in order: a worker that has
// compressed a frame waits until the frames before are written.
type compressor struct {
	ctx              context.Context
	w                io.Writer
	src              io.ReaderAt
	size, frameBytes int64
	options          Options

	mu      sync.Mutex
	cond    sync.Cond // next or err has changed
	taken   int64     // frames that workers have begun
	next    int64     // frame to be written
	table   []byte
	written int64
	err     error // the first
}

func (c *compressor) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.cond.Broadcast()
}

// take gives the next frame and its place in the source; n is 0 if there is none.
func (c *compressor) take() (frame, off, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	frame, off = c.taken, c.taken*c.frameBytes
	if c.err == nil {
		c.err = c.ctx.Err()
	}
	if c.err != nil || off >= c.size {
		return 0, 0, 0
	}
	c.taken++
	return frame, off, min(c.frameBytes, c.size-off)
}

func (c *compressor) work(encoder *zstd.Encoder) {
	content := make([]byte, min(c.frameBytes, c.size))
	var z []byte
	for {
		frame, off, n := c.take()
		if n == 0 {
			return
		}
		if _, err := c.src.ReadAt(content[:n], off); err != nil && err != io.EOF {
			c.fail(err)
			return
		} else if err == io.EOF && off+n < c.size {
			c.fail(io.ErrUnexpectedEOF)
			return
		}
		z = encoder.EncodeAll(content[:n], z[:0])
		if !c.put(frame, z, n) {
			return
		}
		c.options.done(int(n))
	}
}

// put writes a frame when it is the frame's turn. It returns false if the job has failed.
func (c *compressor) put(frame int64, z []byte, content int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.next != frame && c.err == nil {
		c.cond.Wait()
	}
	if c.err != nil {
		return false
	}
	_, c.err = c.w.Write(z)
	c.table = binary.LittleEndian.AppendUint32(c.table, uint32(len(z)))
	c.table = binary.LittleEndian.AppendUint32(c.table, uint32(content))
	c.table = append(c.table, z[len(z)-4:]...) // a frame ends with its checksum
	c.written += int64(len(z))
	c.next++
	c.cond.Broadcast()
	return c.err == nil
}

// finish writes the seek table.
func (c *compressor) finish() (int64, error) {
	t := c.table
	binary.LittleEndian.PutUint32(t, tableMagic)
	binary.LittleEndian.PutUint32(t[4:], uint32(len(t)-skippableHeader+footerSize))
	t = binary.LittleEndian.AppendUint32(t, uint32(c.next))
	t = append(t, checksumFlag)
	t = binary.LittleEndian.AppendUint32(t, endMagic)
	_, err := c.w.Write(t)
	return c.written + int64(len(t)), err
}
