package hfquant

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/suggest"
	"github.com/lowbit-go/gq/packing"
)

// Format is a way to store quantized weights.
type Format string

// The formats. The first two are compressed-tensors, by its own names.
const (
	IntQuantized  Format = "int-quantized"  // codes as int8: W4A8 and W8A8 of vLLM on CPUs
	PackQuantized Format = "pack-quantized" // codes packed into int32: W4A16 and W8A16
	GPTQ          Format = "gptq"
	AWQ           Format = "awq" // read only
	MLX           Format = "mlx"
	TorchAO       Format = "torchao"
)

// ParseFormat reads the name of a format that NewLayout and Config write. An unknown name gets a
// suggestion.
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

// NotWritten says what to use instead of a name that stands for more than one format, or for one
// that is only read. It returns nil for other names.
func NotWritten(name string) error {
	switch name {
	case "compressed-tensors":
		return fmt.Errorf("compressed-tensors is two formats: use %s (codes as int8, for vLLM on CPUs) or %s (packed codes, 16-bit activations)",
			IntQuantized, PackQuantized)
	case string(AWQ):
		return fmt.Errorf("format awq is only read: use one of %s", list(Formats()))
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

// Zeros is what a group stores beside its scale.
type Zeros uint8

// The kinds.
const (
	NoZeros  Zeros = iota
	IntZeros       // zero points: a weight is (code - zero) * scale
	Offsets        // a weight is code * scale + offset
)

// Scheme is how a weight is quantized.
type Scheme struct {
	Bits  int   // of a code, 1 to 8
	Group int64 // weights of a row that share a scale; 0: the row
	Zeros Zeros
	// Scales is the dtype of scales: BF16, F16 or F32. Offsets are float32 numbers.
	Scales packing.Dtype
}

// String is the scheme in messages: "4 bits, group 32, BF16 scales".
func (s Scheme) String() string {
	group := "per channel"
	if s.Group > 0 {
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

// Groups is the number of groups in a row of k weights.
func (s Scheme) Groups(k int64) int64 {
	if s.Group == 0 || s.Group >= k {
		return 1
	}
	return (k + s.Group - 1) / s.Group
}

// limits are the smallest and the largest code of a number of bits; zero points have the same.
func limits(bits int) (low, high int) { return -1 << (bits - 1), 1<<(bits-1) - 1 }

// Row is one row of a weight. Codes has K elements, the others one per group or none.
type Row struct {
	Codes   []int8    // -2^(bits-1) to 2^(bits-1) - 1
	Scales  []float32 // values of the scheme's dtype
	Zeros   []int8    // of IntZeros, on the same scale as codes
	Offsets []float32 // of Offsets

	tile tile // what the last Read left
}

// resize gives the slices of row the lengths for k weights of scheme s. It keeps their memory.
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

// Part is a tensor that holds some of a weight.
type Part struct {
	Name  string
	Dtype packing.Dtype
	Shape []int64
}

// bytes is the size of the part.
func (p Part) bytes() int64 {
	n := int64(p.Dtype.Bits() / 8)
	for _, d := range p.Shape {
		n *= d
	}
	return n
}
