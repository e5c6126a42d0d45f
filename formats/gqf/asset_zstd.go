package gqf

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// decompress writes the content of z to w. z must be exactly one zstd frame in the form that
// docs/FORMAT.md, 5.7, demands, with a content of rawLen bytes. It allocates the frame's window, or
// the content if that is smaller.
func decompress(w io.Writer, z []byte, rawLen int64) error {
	h, err := frameHeader(z, rawLen)
	if err != nil {
		return err
	}
	size, err := frameSize(z, h)
	if err != nil {
		return err
	}
	if size != len(z) {
		return fmt.Errorf("%d bytes follow the frame of %d bytes", len(z)-size, size)
	}
	if rawLen <= decodeWhole {
		raw, err := decodeAll(z, int(rawLen))
		if err != nil {
			return err
		}
		_, err = w.Write(raw)
		return err
	}
	dec, err := zstd.NewReader(bytes.NewReader(z), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(uint64(max(maxZstdWindow, rawLen))))
	if err != nil {
		return err
	}
	defer dec.Close()
	n, err := io.Copy(w, io.LimitReader(dec, rawLen+1))
	if err == nil && n != rawLen {
		err = fmt.Errorf("the content ends after %d bytes, want %d", n, rawLen)
	}
	return err
}

// decodeWhole is the largest content in bytes that is decoded in one piece, which needs no window.
const decodeWhole = 1 << 20

// decodeAll returns the content of the frame z, which has passed frameHeader. The decoder applies
// its memory limit to windows too, and a window is at least 1 KiB even for a smaller content, so
// the limit cannot be rawLen. The capacity of the result bounds the memory.
func decodeAll(z []byte, rawLen int) ([]byte, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(max(maxZstdWindow, uint64(rawLen))),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(max(maxZstdWindow, uint64(rawLen))))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	raw, err := dec.DecodeAll(z, make([]byte, 0, rawLen))
	if err == nil && len(raw) != rawLen {
		err = fmt.Errorf("the content ends after %d bytes, want %d", len(raw), rawLen)
	}
	return raw, err
}

// frameHeader checks the header of the frame that z begins with.
func frameHeader(z []byte, rawLen int64) (h zstd.Header, err error) {
	if err := h.Decode(z); err != nil {
		return h, fmt.Errorf("header of the zstd frame: %w", err)
	}
	switch {
	case h.Skippable || h.DictionaryID != 0:
		return h, fmt.Errorf("the frame is skippable or needs a dictionary")
	case !h.HasFCS || h.FrameContentSize != uint64(rawLen):
		return h, fmt.Errorf("the frame states a content of %d bytes, the directory %d", h.FrameContentSize, rawLen)
	case !h.SingleSegment && h.WindowSize > maxZstdWindow:
		return h, fmt.Errorf("the frame needs a window of %d bytes, at most %d are allowed", h.WindowSize, maxZstdWindow)
	}
	return h, nil
}

// frameSize returns the size of the frame at the start of z, from the sizes of its blocks (RFC
// 8878, 3.1.1.2).
func frameSize(z []byte, h zstd.Header) (int, error) {
	at := h.HeaderSize
	for last := false; !last; {
		if len(z)-at < 3 {
			return 0, fmt.Errorf("the frame ends within the header of a block: %w", io.ErrUnexpectedEOF)
		}
		b := int(z[at]) | int(z[at+1])<<8 | int(z[at+2])<<16
		last = b&1 != 0
		size := b >> 3
		switch b >> 1 & 3 {
		case 1: // one byte, repeated
			size = 1
		case 3:
			return 0, fmt.Errorf("the frame has a block of reserved type at byte %d", at)
		}
		if at += 3; len(z)-at < size {
			return 0, fmt.Errorf("the frame ends within a block: %w", io.ErrUnexpectedEOF)
		}
		at += size
	}
	if h.HasCheckSum {
		at += 4
	}
	if at > len(z) {
		return 0, fmt.Errorf("the frame ends within its checksum: %w", io.ErrUnexpectedEOF)
	}
	return at, nil
}
