package hfquant

import (
	"fmt"

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
	// Scales is the dtype of scales and offsets: BF16, F16 or F32.
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

// Row is one row of a weight. Codes has K elements, the others one per group or none.
type Row struct {
	Codes   []int8    // -2^(bits-1) to 2^(bits-1) - 1
	Scales  []float32 // values of the scheme's dtype
	Zeros   []int8    // of IntZeros, on the same scale as codes
	Offsets []float32 // of Offsets
}

// Part is a tensor that holds some of a weight.
type Part struct {
	Name  string
	Dtype packing.Dtype
	Shape []int64
}
