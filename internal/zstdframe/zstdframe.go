// Package zstdframe decodes single zstd frames that hostile files may hold.
package zstdframe

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Check checks that z is exactly one zstd frame, not skippable and without a dictionary, with a
// header that states a content of rawLen bytes and, unless the window is the content, a window of
// at most maxWindow bytes. Blocks are not decoded.
func Check(z []byte, rawLen int64, maxWindow uint64) (zstd.Header, error) {
	h, err := header(z, rawLen, maxWindow)
	if err != nil {
		return h, err
	}
	size, err := size(z, h)
	if err == nil && size != len(z) {
		err = fmt.Errorf("%d bytes follow the frame of %d bytes", len(z)-size, size)
	}
	return h, err
}

func header(z []byte, rawLen int64, maxWindow uint64) (h zstd.Header, err error) {
	if err := h.Decode(z); err != nil {
		return h, fmt.Errorf("header of the zstd frame: %w", err)
	}
	switch {
	case h.Skippable || h.DictionaryID != 0:
		return h, fmt.Errorf("the frame is skippable or needs a dictionary")
	case !h.HasFCS || h.FrameContentSize != uint64(rawLen):
		return h, fmt.Errorf("the frame states a content of %d bytes, want %d", h.FrameContentSize, rawLen)
	case !h.SingleSegment && h.WindowSize > maxWindow:
		return h, fmt.Errorf("the frame needs a window of %d bytes, at most %d are allowed", h.WindowSize, maxWindow)
	}
	return h, nil
}

// size returns the size of the frame at the start of z, from its blocks (RFC 8878, 3.1.1.2).
func size(z []byte, h zstd.Header) (int, error) {
	at := h.HeaderSize
	for last := false; !last; {
		if len(z)-at < 3 {
			return 0, fmt.Errorf("the frame ends within the header of a block: %w", io.ErrUnexpectedEOF)
		}
		b := int(z[at]) | int(z[at+1])<<8 | int(z[at+2])<<16
		last = b&1 != 0
		size := b >> 3
		switch b >> 1 & 3 {
		case 1: // a byte, repeated
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

// A Decoder decodes frames that have passed Check. A Decoder is not for concurrent use.
type Decoder struct{ zstd *zstd.Decoder }

// NewDecoder returns a decoder of frames of at most rawLen bytes, windows of at most maxWindow.
func NewDecoder(rawLen int64, maxWindow uint64) (*Decoder, error) {
	// The decoder applies its memory limit to windows too, and a window is at least 1 KiB even for a
	// smaller content, so the limit cannot be rawLen alone. The capacity of the result bounds the
	// memory.
	limit := max(maxWindow, uint64(rawLen))
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(limit),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(limit))
	if err != nil {
		return nil, err
	}
	return &Decoder{d}, nil
}

func (d *Decoder) Close() { d.zstd.Close() }

// Decode decodes the frame z into dst. dst has the size of the frame's content.
func (d *Decoder) Decode(dst, z []byte) error {
	raw, err := d.zstd.DecodeAll(z, dst[:0:len(dst)])
	if err == nil && len(raw) != len(dst) {
		err = fmt.Errorf("the content ends after %d bytes, want %d", len(raw), len(dst))
	}
	return err
}
