package gqf

import (
	"fmt"
	"io"
	"iter"
	"sort"

	"github.com/lowbit-go/gq/packing"
)

// Gaps yields the ranges of the file that nothing is written to, in order: they read as zeros.
func (im *Image) Gaps() iter.Seq2[int64, int64] {
	return func(yield func(from, to int64) bool) {
		end := uint64(headerSize)
		gap := func(off, length uint64) bool {
			from := end
			end = off + length
			return from >= off || yield(int64(from), int64(off))
		}
		for _, s := range im.h.sections {
			if !gap(s.off, s.length) {
				return
			}
		}
		for i := range im.count(secPayloads) {
			if p := im.payload(i); !gap(p.off, p.length) {
				return
			}
		}
		gap(im.h.fileSize, 0)
	}
}

// A Stream writes the packed header of a payload with the first bytes of the payload's data. A writer
// that sends each part of a file when it is complete then waits for the front only.
type Stream struct {
	image  *Image
	w      io.WriterAt
	headed []bool // by the payloads in the file's order
}

// NewStream returns a Stream that writes to w. Finish takes the place of WritePayloadHeaders.
func (im *Image) NewStream(w io.WriterAt) *Stream {
	return &Stream{im, w, make([]bool, im.count(secPayloads))}
}

// WriteAt writes p. Several goroutines may call it.
func (s *Stream) WriteAt(p []byte, off int64) (int, error) {
	if i, ok := s.image.payloadOf(off); ok && len(p) > 0 {
		if s.headed[i] {
			return 0, fmt.Errorf("byte %d is written twice", off)
		}
		s.headed[i] = true
		if err := s.image.writePayloadHeader(s.w, i); err != nil {
			return 0, err
		}
	}
	return s.w.WriteAt(p, off)
}

// Finish writes the headers of payloads without data.
func (s *Stream) Finish() error {
	for i, headed := range s.headed {
		if headed {
			continue
		}
		if err := s.image.writePayloadHeader(s.w, i); err != nil {
			return err
		}
	}
	return nil
}

// payloadOf returns the payload, in the file's order, whose data begin at off.
func (im *Image) payloadOf(off int64) (i int, ok bool) {
	n := im.count(secPayloads)
	begin := func(i int) int64 { return int64(im.payload(i).off) + packing.HeaderSize }
	i = sort.Search(n, func(i int) bool { return begin(i) >= off })
	return i, i < n && begin(i) == off
}
