package gqf

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/lowbit-go/gq/internal/zstdframe"
)

// decompress writes the content of z to w. z must be exactly one zstd frame in the form that
// docs/FORMAT.md, 5.7, demands, with a content of rawLen bytes. It allocates the frame's window, or
// the content if that is smaller.
func decompress(w io.Writer, z []byte, rawLen int64) error {
	if _, err := zstdframe.Check(z, rawLen, maxZstdWindow); err != nil {
		return err
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

// decodeAll returns the content of the frame z, which has been checked.
func decodeAll(z []byte, rawLen int) ([]byte, error) {
	dec, err := zstdframe.NewDecoder(int64(rawLen), maxZstdWindow)
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	raw := make([]byte, rawLen)
	return raw, dec.Decode(raw, z)
}
