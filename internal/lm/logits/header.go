package logits

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"

	"github.com/lowbit-go/gq/internal/crc32c"
)

// Version is the version of the format. A reader refuses any other.
const Version = 1

const (
	magic     = "gqlogits"
	frontSize = len(magic) + 3*4
	blockHead = 8 // length and checksum

	maxHeader    = 16 << 20 // bytes; 300,000 tensors
	maxVocab     = 1 << 22
	maxTokens    = 1 << 24 // in all windows
	contentBytes = 4 << 20 // of a block, unless a row is larger
)

// Header says what a file's predictions are of.
type Header struct {
	// Program is the program's version, Model the checkpoint's name in the command.
	Program string `json:"program"`
	Model   string `json:"model"`
	// Tensors has the CRC32C of the bytes of each tensor in the checkpoint, as in a .gqf file. Config
	// and Tokenizer are the SHA-256 of config.json and tokenizer.json, or "" without such a file.
	Tensors   map[string]uint32 `json:"tensors"`
	Config    string            `json:"config"`
	Tokenizer string            `json:"tokenizer"`
	// Vocab is the number of logits of a prediction.
	Vocab int  `json:"vocab"`
	Text  Text `json:"text"`
	// Windows counts the windows, Tokens their tokens and Scored the predictions.
	Windows int `json:"windows"`
	Tokens  int `json:"tokens"`
	Scored  int `json:"scored"`
	// RowsPerBlock is the number of predictions in a block; the last block of a window may have
	// fewer.
	RowsPerBlock int `json:"rows_per_block"`
}

// Text says which text the model was run on, and how the text was cut into windows.
type Text struct {
	Name       string `json:"name"`
	Source     string `json:"source"` // "text" or "tokens"
	SHA256     string `json:"sha256"`
	Convention string `json:"convention"`
	Window     int    `json:"window"`
	Stride     int    `json:"stride,omitempty"`
	MaxTokens  int    `json:"max_tokens,omitempty"`
}

// Window is a sequence of tokens. The tokens from First on are predicted.
type Window struct {
	Tokens []int32
	First  int
	// Bytes and Words are the size of the text of the predicted tokens; 0 if not known.
	Bytes, Words int
}

// windowBytes is the size of a window in block 0, without its token ids.
const windowBytes = 16

// FormatError says that a file is malformed.
type FormatError struct {
	Offset int64
	Msg    string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("reference logits: byte %d: %s", e.Offset, e.Msg)
}

// rowsPerBlock is the number of predictions in a block of about contentBytes.
func rowsPerBlock(vocab int) int { return max(contentBytes/rowBytes(vocab), 1) }

func rowBytes(vocab int) int { return 4 + 2*vocab }

func parseHeader(b []byte) (*Header, error) {
	h := &Header{}
	fail := func(format string, args ...any) (*Header, error) {
		return nil, &FormatError{int64(frontSize), fmt.Sprintf(format, args...)}
	}
	if err := json.Unmarshal(b, h); err != nil {
		return fail("the header is not the JSON that is expected: %v", err)
	}
	switch {
	case h.Vocab < 2 || h.Vocab > maxVocab:
		return fail("a vocabulary of %d tokens: 2 to %d are possible", h.Vocab, maxVocab)
	case h.Tokens < 2 || h.Tokens > maxTokens:
		return fail("%d tokens: 2 to %d are possible", h.Tokens, maxTokens)
	case h.Windows < 1 || h.Windows > h.Tokens/2:
		return fail("%d windows of %d tokens: a window has two at least", h.Windows, h.Tokens)
	case h.Scored < h.Windows || h.Scored > h.Tokens-h.Windows:
		return fail("%d predictions in %d windows of %d tokens", h.Scored, h.Windows, h.Tokens)
	case h.RowsPerBlock != rowsPerBlock(h.Vocab):
		return fail("%d predictions per block: %d are expected with %d tokens", h.RowsPerBlock, rowsPerBlock(h.Vocab), h.Vocab)
	}
	return h, nil
}

// encodeRow writes the codes of finite logits into two planes of bytes, and returns the range.
func encodeRow(logits []float32, high, low []byte) (float32, error) {
	least, most := logits[0], logits[0]
	for _, v := range logits {
		if !(math.Abs(float64(v)) <= math.MaxFloat32) {
			return 0, fmt.Errorf("a logit is NaN or infinite")
		}
		least, most = min(least, v), max(most, v)
	}
	r := float32(min(float64(most)-float64(least), math.MaxFloat32))
	for i, v := range logits {
		c := uint16(0)
		if r > 0 {
			share := min((float64(most)-float64(v))/float64(r), 1)
			c = uint16(math.RoundToEven(float64(math.Sqrt(share) * math.MaxUint16)))
		}
		high[i], low[i] = byte(c>>8), byte(c)
	}
	return r, nil
}

// decodeRow is the reverse of encodeRow, with logits relative to the largest logit.
func decodeRow(dst []float32, r float32, high, low []byte) {
	for i := range dst {
		share := float64(uint16(high[i])<<8|uint16(low[i])) / math.MaxUint16
		dst[i] = float32(-float64(r) * float64(share*share))
	}
}

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
	if len(header) > maxHeader {
		return nil, fmt.Errorf("these predictions do not fit the format: a header of %d bytes: %d are possible", len(header), maxHeader)
	}
	if _, err := parseHeader(header); err != nil {
		return nil, fmt.Errorf("these predictions do not fit the format: %w", err)
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
