// Package seekable writes and reads files in zstd's seekable format: independent zstd frames, and at
// the end of the file a seek table that lists their sizes and checksums.
//
//	n, err := seekable.Compress(ctx, w, file, size, seekable.Options{})
//
//	a, err := seekable.Open(file, size, "model.gqf.zst")
//	if err != nil { ... }
//	err = a.Decompress(ctx, w, seekable.Options{})
//
// The format is public: contrib/seekable_format/zstd_seekable_compression_format.md in zstd's
// repository. The seek table is the content of a skippable frame, so zstd -d restores the file without
// it. A reader that fetches the end of the file first knows which bytes hold a range of the content.
//
//	frames          each with its content size and the lower 32 bits of the content's XXH64
//	0x184D2A5E      4 bytes: the magic number of a skippable frame
//	n               4 bytes: size of the rest
//	entries         12 bytes a frame: compressed size, content size, the frame's checksum
//	number          4 bytes: of frames
//	descriptor      1 byte: 0x80 if entries have checksums
//	0x8F92EAB1      4 bytes: the magic number of the format
//
// All numbers are little-endian.
//
// [Compress] writes frames of FrameBytes of content. The bytes depend on the content alone, not on
// the number of threads. [Open] takes files of other programs too, if their frames are at most
// MaxFrameBytes long and have checksums.
package seekable

import (
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/lowbit-go/gq/internal/cpu"
)

// FrameBytes is the content of each frame that Compress writes but the last, which may be shorter.
const FrameBytes = 4 << 20

// level is the level of the encoder: the lower levels take packed codes for noise and store them, the
// highest takes 30 times the time for 0.1 to 1.3 % more (docs/ARCHIVE.md).
const level = zstd.SpeedBetterCompression

// Limits of a file that Open takes.
const (
	// MaxFrameBytes bounds the content of a frame, which is decoded in memory.
	MaxFrameBytes = 64 << 20
	// MaxFrames bounds the seek table to 48 MiB, which are held in memory.
	MaxFrames = 1 << 22
)

// maxThreads bounds the memory: a thread has the content of a frame, its compressed bytes, and the
// tables of an encoder.
const maxThreads = 8

// maxBuffers bounds the memory of Decompress for files of other programs, whose frames may be large.
const maxBuffers = 192 << 20

const (
	tableMagic = 0x184D2A5E // of the skippable frame with the seek table
	endMagic   = 0x8F92EAB1 // of the format, the last bytes of the file
	frameMagic = 0xFD2FB528 // of a zstd frame

	skippableHeader = 8  // magic number and size
	footerSize      = 9  // number, descriptor, magic number
	entrySize       = 12 // with a checksum
	checksumFlag    = 0x80
	reservedFlags   = 0x7C
)

// Options of Compress and Decompress. The zero value is ready to use.
type Options struct {
	// Threads is how many workers run, at most 8. Default (0): GOMAXPROCS. The bytes do not depend
	// on it.
	Threads int
	// Progress is called, from any worker, with bytes of content that were done since the last call.
	// Default: none.
	Progress func(n int64)
}

func (o Options) threads() int { return min(cpu.Threads(o.Threads), maxThreads) }

func (o Options) done(n int) {
	if o.Progress != nil {
		o.Progress(int64(n))
	}
}

// maxCompressed bounds the compressed size of a frame: incompressible content is stored with 3 bytes
// per 128 KiB, and other encoders' blocks may be smaller.
func maxCompressed(content int64) int64 { return content + content>>7 + 1<<12 }

// FormatError reports where and why a file is not a valid archive.
type FormatError struct {
	File   string
	Offset int64 // of the error in the file
	Msg    string
	Err    error // cause, or nil
}

// Error returns file, offset and message in one line.
func (e *FormatError) Error() string {
	s := fmt.Sprintf("%s: byte %d: %s", e.File, e.Offset, e.Msg)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *FormatError) Unwrap() error { return e.Err }

// UnsupportedError reports a file that may be valid, but that Open does not take.
type UnsupportedError struct{ File, Msg string }

// Error returns file and message in one line.
func (e *UnsupportedError) Error() string { return e.File + ": " + e.Msg }

// CheckSize fails if a file of size bytes is too large for Compress.
func CheckSize(size int64) error {
	if Frames(size) > MaxFrames {
		return fmt.Errorf("%d bytes are too many for an archive, which holds %d", size, int64(MaxFrames)*FrameBytes)
	}
	return nil
}

// Frames is the number of frames that Compress makes of size bytes.
func Frames(size int64) int { return int((size + FrameBytes - 1) / FrameBytes) }
