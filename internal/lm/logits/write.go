package logits

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"

	"github.com/lowbit-go/gq/internal/crc32c"
)

// Writer writes a file. Predictions are added in order of window and position.
type Writer struct {
	w       io.Writer
	h       Header
	zstd    *zstd.Encoder
	windows []Window
	window  int    // of the next prediction
	row     int    // the next prediction in its window
	block   []byte // the content of the present block; its rows come from filled on
	filled  int
	size    int // rows of the present block
}

// NewWriter begins a file with its header and its windows, and sets the counts in h.
func NewWriter(w io.Writer, h Header, windows []Window) (*Writer, error) {
	h.Windows, h.Tokens, h.Scored, h.RowsPerBlock = len(windows), 0, 0, rowsPerBlock(h.Vocab)
	for i, win := range windows {
		if win.First < 1 || win.First >= len(win.Tokens) {
			return nil, fmt.Errorf("window %d predicts from token %d of %d", i, win.First, len(win.Tokens))
		}
		h.Tokens += len(win.Tokens)
		h.Scored += len(win.Tokens) - win.First
	}
	header, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if _, err := parseHeader(header); err != nil || len(header) > maxHeader {
		return nil, fmt.Errorf("these predictions do not fit the format: %w", errors.Join(err, limitHeader(len(header))))
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithSingleSegment(true))
	if err != nil {
		return nil, err
	}
	out := &Writer{w: w, h: h, zstd: encoder, windows: windows}
	le := binary.LittleEndian
	front := le.AppendUint32([]byte(magic), Version)
	front = le.AppendUint32(front, uint32(len(header)))
	front = le.AppendUint32(front, crc32c.Checksum(header))
	if _, err := w.Write(append(front, header...)); err != nil {
		return nil, err
	}
	var b []byte
	for _, win := range windows {
		for _, n := range []int{len(win.Tokens), win.First, win.Bytes, win.Words} {
			b = le.AppendUint32(b, uint32(n))
		}
	}
	for _, win := range windows {
		for _, id := range win.Tokens {
			b = le.AppendUint32(b, uint32(id))
		}
	}
	return out, out.put(b)
}

func limitHeader(n int) error {
	if n > maxHeader {
		return fmt.Errorf("a header of %d bytes: %d are possible", n, maxHeader)
	}
	return nil
}

// Header returns the file's header, with the counts.
func (w *Writer) Header() *Header { return &w.h }

// Add adds the logits of the next prediction.
func (w *Writer) Add(logits []float32) error {
	v := w.h.Vocab
	if w.window >= len(w.windows) || len(logits) != v {
		return fmt.Errorf("a prediction of %d logits after the last one, or not of %d", len(logits), v)
	}
	win := w.windows[w.window]
	if w.filled == 0 {
		w.size = min(w.h.RowsPerBlock, len(win.Tokens)-win.First-w.row)
		w.block = make([]byte, w.size*rowBytes(v))
	}
	planes := w.block[4*w.size:]
	high, low := planes[w.filled*v:][:v], planes[(w.size+w.filled)*v:][:v]
	r, err := encodeRow(logits, high, low)
	if err != nil {
		return fmt.Errorf("%w at position %d of window %d", err, win.First+w.row, w.window)
	}
	binary.LittleEndian.PutUint32(w.block[4*w.filled:], math.Float32bits(r))
	w.filled++
	w.row++
	if w.filled < w.size {
		return nil
	}
	w.filled = 0
	if w.row == len(win.Tokens)-win.First {
		w.window, w.row = w.window+1, 0
	}
	return w.put(w.block)
}

// Close reports whether all predictions were added. The io.Writer stays open.
func (w *Writer) Close() error {
	if w.window < len(w.windows) {
		return fmt.Errorf("predictions of %d of %d windows are missing", len(w.windows)-w.window, len(w.windows))
	}
	return w.zstd.Close()
}

func (w *Writer) put(content []byte) error {
	z := w.zstd.EncodeAll(content, nil)
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(z)))
	head = binary.LittleEndian.AppendUint32(head, crc32c.Checksum(z))
	if _, err := w.w.Write(head); err != nil {
		return err
	}
	_, err := w.w.Write(z)
	return err
}
