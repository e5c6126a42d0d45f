package hfquant

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/lowbit-go/gq/internal/suggest"
	"github.com/lowbit-go/gq/packing"
)

type Format string

// The formats. The first two are compressed-tensors, by its own names.
const (
	IntQuantized  Format = "int-quantized"  // codes as int8: W4A8 and W8A8 of vLLM on CPUs
	PackQuantized Format = "pack-quantized" // codes packed into int32: W4A16 and W8A16
	GPTQ          Format = "gptq"
	AWQ           Format = "awq" // read only
	MLX           Format = "mlx"
	TorchAO       Format = "torchao"
	ONNX          Format = "onnx" // of ONNX Runtime: package toonnx writes it
)

// ParseFormat reads the name of a format that NewLayout and Config write, or suggests a name.
func ParseFormat(name string) (Format, error) {
	if err := NotWritten(name); err != nil {
		return "", err
	}
	f := Format(name)
	if _, ok := writers[f]; ok {
		return f, nil
	}
	var known []string
	for _, f := range Formats() {
		known = append(known, string(f))
	}
	return "", suggest.Unknown("format", name, known)
}

// NotWritten says what to use instead of a name of several formats, or of a format that is only
// read. The error is nil for other names.
func NotWritten(name string) error {
	switch name {
	case "compressed-tensors":
		return fmt.Errorf("compressed-tensors is two formats: use %s (codes as int8, for vLLM on CPUs) or %s (packed codes, 16-bit activations)",
			IntQuantized, PackQuantized)
	case string(AWQ):
		return fmt.Errorf("awq is only read: use %s", GPTQ)
	}
	return nil
}

// Formats lists the formats that NewLayout and Config write.
func Formats() []Format { return []Format{IntQuantized, PackQuantized, GPTQ, MLX, TorchAO} }

// Library is the name of the library that the format comes from.
func (f Format) Library() string {
	switch f {
	case IntQuantized, PackQuantized:
		return "compressed-tensors"
	}
	return string(f)
}

// Zeros is what a group stores in addition to its scale.
type Zeros uint8

const (
	NoZeros  Zeros = iota
	IntZeros       // zero points: a weight is (code - zero) * scale
	Offsets        // a weight is code * scale + offset
)

type Scheme struct {
	Bits  int   // of a code, 1 to 8
	Group int64 // weights of a row that share a scale; 0: the row; 1 for scattered columns as well
	Zeros Zeros
	// Scales is the dtype of scales: BF16, F16 or F32. Offsets are float32 numbers.
	Scales packing.Dtype
}

// String is the scheme in messages: "4 bits, group 32, BF16 scales".
func (s Scheme) String() string {
	group := "per channel"
	switch {
	case s.Group == 1:
		group = "a scale per column (activation order)"
	case s.Group > 0:
		group = fmt.Sprintf("group %d", s.Group)
	}
	text := fmt.Sprintf("%d bits, %s, %s scales", s.Bits, group, s.Scales)
	switch s.Zeros {
	case IntZeros:
		text += ", zero points"
	case Offsets:
		text += ", offsets"
	}
	return text
}

func (s Scheme) Groups(k int64) int64 {
	if s.Group == 0 || s.Group >= k {
		return 1
	}
	return (k + s.Group - 1) / s.Group
}

// limits are the smallest and the largest code, and zero point, of a number of bits.
func limits(bits int) (low, high int) { return -1 << (bits - 1), 1<<(bits-1) - 1 }

// Row is a row of a weight. Codes has K elements, each other slice an element per group or none.
type Row struct {
	Codes   []int8    // -2^(bits-1) to 2^(bits-1) - 1
	Scales  []float32 // values of the scheme's dtype
	Zeros   []int8    // of IntZeros, on the same scale as codes
	Offsets []float32 // of Offsets

	tile tile // what the last Read left
}

// resize gives the slices of row the lengths for k weights of scheme s, in the same memory.
func (r *Row) resize(s Scheme, k int64) {
	groups := int(s.Groups(k))
	r.Codes = resize(r.Codes, int(k))
	r.Scales = resize(r.Scales, groups)
	r.Zeros, r.Offsets = r.Zeros[:0], r.Offsets[:0]
	switch s.Zeros {
	case IntZeros:
		r.Zeros = resize(r.Zeros, groups)
	case Offsets:
		r.Offsets = resize(r.Offsets, groups)
	}
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Part is a tensor of a weight: codes, scales or zero points. One of the functions fills it.
type Part struct {
	Name  string
	Dtype packing.Dtype
	Shape []int64

	fill     func(dst []byte, r *Row) // sets a row of the part, zeros before, to a row of the weight
	put      putFunc                  // writes ranges of bytes that rows fill
	constant func() []byte            // of a part that no row fills, such as weight_shape
}

// putFunc calls write for every range of bytes that rows first to first + len(rows) - 1 fill.
type putFunc func(rows []Row, first int64, write func(off int64, b []byte) error) error

func int8Codes(name string, n, k int64) Part {
	return Part{Name: name, Dtype: packing.I8, Shape: []int64{n, k}, fill: func(dst []byte, r *Row) { putInt8s(dst, r.Codes) }}
}

// streamPart holds each row's codes as a stream in words of 32 bits.
func streamPart(name string, words packing.Dtype, n, k int64, s Scheme) Part {
	return Part{Name: name, Dtype: words, Shape: []int64{n, streamWords(k, s.Bits)}, fill: func(dst []byte, r *Row) { packCodes(dst, r.Codes, s.Bits) }}
}

func scalesPart(name string, n, k int64, s Scheme) Part {
	return Part{Name: name, Dtype: s.Scales, Shape: []int64{n, s.Groups(k)}, fill: func(dst []byte, r *Row) { putFloats(dst, s.Scales, r.Scales) }}
}

// FormatError reports quantized weights that contradict themselves or the checkpoint's config.json.
type FormatError struct {
	Dir    string // of the checkpoint
	Tensor string // "" for the file
	File   string // which says how weights are quantized; "" for config.json
	Msg    string
}

func (e *FormatError) Error() string {
	if e.Tensor == "" {
		return e.Dir + ": " + cmp.Or(e.File, "config.json") + ": " + e.Msg
	}
	return fmt.Sprintf("%s: tensor %s: %s", e.Dir, quote(e.Tensor), e.Msg)
}

// UnsupportedError reports well-formed quantized weights that this package cannot read exactly.
type UnsupportedError FormatError

func (e *UnsupportedError) Error() string { return (*FormatError)(e).Error() }

// quote makes a string from a file fit for a message: escaped, and shortened if very long.
func quote(s string) string {
	const longest = 200
	if len(s) > longest {
		return fmt.Sprintf("%q... (%d bytes)", s[:longest], len(s))
	}
	return fmt.Sprintf("%q", s)
}

func list[T any](items []T) string {
	words := make([]string, len(items))
	for i, item := range items {
		words[i] = fmt.Sprint(item)
	}
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return strings.Join(words, "")
}
