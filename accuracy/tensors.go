package accuracy

import (
	"context"
	"fmt"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/kernels"
)

// TensorStats compares weights of a .gqf with the checkpoint: one slice of a tensor (most tensors
// have one) in one of its layouts.
type TensorStats struct {
	Name       string   `json:"name"` // the canonical one
	SharedWith []string `json:"shared_with,omitempty"`
	Role       string   `json:"role"`
	Slice      int      `json:"slice"`   // expert
	Slices     int      `json:"slices"`  // of the tensor: 1 for most
	Variant    int      `json:"variant"` // 0 is the first layout
	Layout     string   `json:"layout"`
	Tile       string   `json:"tile,omitempty"`
	Bits       int      `json:"bits"`
	Group      int      `json:"group"` // 0: per channel
	Mapping    string   `json:"mapping"`
	Algorithm  string   `json:"algorithm"`
	Rows       int64    `json:"rows"` // outputs
	Cols       int64    `json:"cols"`
	// Bytes is the size of the payload and its companions, headers included. BPW is Bytes as bits
	// per weight.
	Bytes int64   `json:"bytes"`
	BPW   float64 `json:"bits_per_weight"`
	// SourceChanged says that the checkpoint's bytes differ from the ones that the file was made
	// from, by their checksum: the checkpoint was changed, or has another dtype.
	SourceChanged bool `json:"source_changed,omitempty"`
	// SourceRecorded says that the file records a checksum of the bytes that it was made from.
	SourceRecorded bool `json:"source_recorded,omitempty"`

	// Unquantized tensors are compared byte by byte: Equal reports whether the bytes match;
	// Difference describes the first mismatch. The figures that follow compare the numbers, if the
	// tensor holds any.
	Unquantized bool   `json:"kept"`
	Equal       bool   `json:"equal,omitempty"`
	Difference  string `json:"difference,omitempty"`
	// Tuned: the tensor is a norm that differs from the checkpoint's in a file whose norms were
	// tuned, which is no fault.
	Tuned bool `json:"tuned,omitempty"`
	// NotFinite names the first element of an unquantized tensor that is NaN or infinite: "element 2 is
	// NaN in the checkpoint and NaN in the file".
	NotFinite string `json:"not_finite,omitempty"`

	SQNR       Decibels `json:"sqnr_db"`
	MSE        float64  `json:"mse"`
	MaxError   float64  `json:"max_error"`
	MaxErrorAt [2]int64 `json:"max_error_at"` // row and column of the first
	Cosine     float64  `json:"cosine"`
	// Saturated is the share of codes at an end of their range. A quantizer puts the largest weight
	// of a group there, so at least 1 code of a group is saturated, and all codes of 1 bit are.
	Saturated float64 `json:"saturated"`
	// ZeroGroups counts groups whose stored weights are all 0. LostGroups counts the groups among
	// them whose weights are not all 0. Groups counts all groups.
	ZeroGroups int64 `json:"zero_groups"`
	LostGroups int64 `json:"lost_groups"`
	Groups     int64 `json:"groups"`
	// Signal and Noise are the sums of squares of the weights and of their errors, for totals over
	// tensors.
	Signal float64        `json:"signal"`
	Noise  float64        `json:"noise"`
	Errors ErrorHistogram `json:"errors"`

	// Output compares the outputs of the layer. If it is nil, NoOutput says why.
	Output   *OutputStats `json:"output,omitempty"`
	NoOutput string       `json:"no_output,omitempty"`
}

// Label is the tensor's name, with the index of the expert in a fused tensor:
// "model.layers.0.mlp.experts.down_proj[3]".
func (s *TensorStats) Label() string { return label(s.Name, s.Slice, s.Slices) }

func label(name string, slice, slices int) string {
	if slices > 1 {
		return fmt.Sprintf("%s[%d]", name, slice)
	}
	return name
}

// TensorOptions are the options of Tensors. The zero value is ready to use.
type TensorOptions struct {
	// Threads is the number of goroutines. Default: GOMAXPROCS. The results do not depend on it.
	Threads int
	// CPU limits kernels as kernels.Options.CPU does. The results do not depend on it.
	CPU string
	// Match selects tensors by any of their names. Default: all.
	Match func(name string) bool
	// Inputs returns m rows of real activations of a layer, or m = 0. Several goroutines call it,
	// with each of a tensor's names until one has activations. An expert of a fused tensor is
	// called X[i], as in model.Session.OnInput. Layers without real activations get RandomInputs.
	// Default: none.
	Inputs func(name string) (x []float32, m int)
	// NoOutputs skips the outputs of layers, which take half of the time.
	NoOutputs bool
	// Progress is called with the number of weights done and the total, one call at a time.
	Progress func(done, total int64)
}

// Tensors compares every tensor of f with the checkpoint src, in the file's order, one result for
// each variant and slice. If the checkpoint lacks a tensor, or a shape differs, the error is a
// *MismatchError.
//
// Tensors reads the weights once. Private memory is a few MiB for each thread, and the activations
// of Inputs.
func Tensors(ctx context.Context, src *safetensors.Checkpoint, f *gqf.File, o TensorOptions) ([]TensorStats, error) {
	f.CheckSums()
	j := &tensorJob{f: f, o: o, kernels: kernels.Options{CPU: o.CPU}}
	if err := j.plan(src); err != nil {
		return nil, err
	}
	if err := j.run(ctx); err != nil {
		return nil, err
	}
	if err := src.Unchanged(); err != nil {
		return nil, err
	}
	j.checkSources()
	stats := make([]TensorStats, len(j.entries))
	for i, e := range j.entries {
		stats[i] = e.stats
	}
	return stats, nil
}
