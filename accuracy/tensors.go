package accuracy

import (
	"fmt"

	"github.com/lowbit-go/gq/formats/gqf"
)

// TensorStats compares weights of a .gqf with the checkpoint: a tensor, or its slice, in a layout.
type TensorStats struct {
	Name       string   `json:"name"` // the canonical name
	SharedWith []string `json:"shared_with,omitempty"`
	Role       string   `json:"role"`
	Slice      int      `json:"slice"`   // expert
	Slices     int      `json:"slices"`  // of the tensor: 1 for most
	Variant    int      `json:"variant"` // 0 is the first layout
	*TensorScheme
	// Bytes is the size of payload and companions with headers. BPW is Bytes as bits per weight.
	Bytes int64   `json:"bytes"`
	BPW   float64 `json:"bits_per_weight"`
	// SourceChanged says that the checkpoint's bytes are not the bytes that the file was made from, by
	// checksum: the checkpoint was changed, or has another dtype. Unquantized tensors with equal
	// numbers have not changed.
	SourceChanged bool `json:"source_changed,omitempty"`
	// SourceRecorded says that the file records a checksum of the source's bytes.
	SourceRecorded bool `json:"source_recorded,omitempty"`

	// Equal reports whether an unquantized tensor has the checkpoint's bytes, or its numbers in
	// another dtype, rounded if that is F16; Difference describes the first mismatch. The figures
	// that follow compare the numbers, if the tensor holds any.
	Unquantized bool   `json:"unquantized"`
	Equal       bool   `json:"equal,omitempty"`
	Difference  string `json:"difference,omitempty"`
	// Tuned reports whether the file's numbers were tuned and the tensor is quantized, or a norm. A
	// tuned norm may differ from the checkpoint's.
	Tuned bool `json:"tuned,omitempty"`
	// NotFinite names the first element of an unquantized tensor that is NaN or infinite: "element 2
	// is NaN in the checkpoint and NaN in the file".
	NotFinite string `json:"not_finite,omitempty"`

	SQNR       Decibels `json:"sqnr_db"`
	MSE        float64  `json:"mse"`
	MaxError   float64  `json:"max_error"`
	MaxErrorAt [2]int64 `json:"max_error_at"` // row and column of the first
	Cosine     float64  `json:"cosine"`
	// Saturated is the share of codes at an end of their range. A quantizer puts the largest weight of
	// a group there, so at least 1 code of a group is saturated, and all codes of 1 bit are.
	Saturated float64 `json:"saturated"`
	// ZeroGroups counts groups stored as zero. LostGroups counts groups stored as zero with weights
	// that are not all zero. Groups counts all groups.
	ZeroGroups int64 `json:"zero_groups"`
	LostGroups int64 `json:"lost_groups"`
	Groups     int64 `json:"groups"`
	// Signal and Noise are the sums of squares of the weights and of their errors.
	Signal float64        `json:"signal"`
	Noise  float64        `json:"noise"`
	Errors ErrorHistogram `json:"errors"`

	// Activations is the type of activations that the model multiplied the matrix with: int8, a type
	// of ggml such as Q8_K, or float32; "" if the model did not run.
	Activations string `json:"activations,omitempty"`
	// Output compares the outputs of the layer. If Output is nil, NoOutput says why.
	Output   *OutputStats `json:"output,omitempty"`
	NoOutput string       `json:"no_output,omitempty"`
}

// A TensorScheme says how a tensor is stored. Tensors with the same scheme share one: a model has
// many tensors and few schemes.
type TensorScheme struct {
	Layout    string `json:"layout"`
	Tile      string `json:"tile,omitempty"`
	Bits      int    `json:"bits"`
	Group     int    `json:"group"` // 0: per channel
	Mapping   string `json:"mapping"`
	Algorithm string `json:"algorithm"`
	Rows      int64  `json:"rows"` // outputs
	Cols      int64  `json:"cols"`
}

// Label is the tensor's name, with the index of the expert in a fused tensor:
// "model.layers.0.mlp.experts.down_proj[3]".
func (s *TensorStats) Label() string { return label(s.Name, s.Slice, s.Slices) }

// fitted reports whether calibration or tuning chose the codes or scales for the outputs of the
// layer or of the model. Errors of the weights then make up for other errors, and say little.
func (s *TensorStats) fitted() bool {
	a, _ := gqf.ParseAlgorithm(s.Algorithm)
	return s.Tuned && !s.Unquantized || a.Calibrated()
}

func label(name string, slice, slices int) string {
	if slices > 1 {
		return fmt.Sprintf("%s[%d]", name, slice)
	}
	return name
}

// OutputStats compares the outputs of a layer, biases included.
type OutputStats struct {
	// SQNR and Cosine compare the packed kernel, with activations quantized to int8, with float32
	// activations times the checkpoint's weights.
	SQNR   Decibels `json:"sqnr_db"`
	Cosine float64  `json:"cosine"`
	// WeightSQNR isolates the error of the weights: float32 activations times dequantized weights,
	// compared with the checkpoint's weights.
	WeightSQNR Decibels `json:"weight_sqnr_db"`
	// ActivationSQNR isolates the error of int8 activations: the packed kernel, compared with float32
	// activations times dequantized weights.
	ActivationSQNR Decibels `json:"activation_sqnr_db"`
	// Source of the activations: "calibration", or "random" for RandomInputs.
	Source string `json:"source"`
	// Inputs is the number of rows of activations. Outputs is the number of rows of weights that were
	// multiplied: all rows, or in very tall matrices evenly spread blocks.
	Inputs  int   `json:"inputs"`
	Outputs int64 `json:"outputs"`
}

// ErrorHistogram counts weights by the magnitude of their error, in octaves.
type ErrorHistogram struct {
	// None is the number of weights without an error, or with an error below 2^-126.
	None int64 `json:"none"`
	// Counts[i] is the number of errors in [2^(First+i), 2^(First+i+1)), without zeros at the ends.
	First  int     `json:"first_exponent"`
	Counts []int64 `json:"counts,omitempty"`
}

// Parity says whether a kernel gives the bits of the portable reference for a payload.
type Parity struct {
	Tensor  string `json:"tensor"` // canonical name
	Slice   int    `json:"slice"`
	Variant int    `json:"variant"`
	Layout  string `json:"layout"`
	Tile    string `json:"tile,omitempty"`
	Bits    int    `json:"bits"`
	Group   int    `json:"group"`
	Rows    int64  `json:"rows"`
	Cols    int64  `json:"cols"`
	// Panels are the multiplied panels, out of PanelsOf. A panel of a plain payload is 8 rows.
	Panels   []int  `json:"panels"`
	PanelsOf int    `json:"panels_of"`
	Kernel   string `json:"kernel"`
	CPU      string `json:"cpu"` // the instruction set that kernels were limited to
	// M lists the numbers of rows of activations that the kernel was run on.
	M     []int `json:"m"`
	Equal bool  `json:"equal"`
	// FirstDifference says where outputs differ.
	FirstDifference string `json:"first_difference,omitempty"`
	// NoKernel says why there is nothing to compare. Equal is then true.
	NoKernel string `json:"no_kernel,omitempty"`
}
