package hfquant

import "github.com/lowbit-go/gq/formats/safetensors"

// Quantized describes the quantized weights of a checkpoint.
type Quantized struct {
	Format  Format
	Weights []Weight
	// Parts maps each tensor of the checkpoint that holds some of a weight to the weight's index.
	Parts map[string]int
	// Config is config.json without the entry that describes quantization.
	Config []byte
}

// Weight is a quantized weight of a checkpoint.
type Weight struct {
	Name   string  // as a checkpoint that is not quantized has it: "model.layers.0.mlp.up_proj.weight"
	Shape  []int64 // [N, K]
	Scheme Scheme

	codec codec
}

// codec reads the rows of one weight.
type codec interface {
	// read sets row to row n.
	read(row *Row, n int64) error
}

// Find lists the quantized weights of ck. config is its config.json, nil if there is none. Find returns
// nil if no weight is quantized, and for FP8 weights, which [safetensors.Weights] reads. It fails
// if a weight is quantized in a way that it cannot read.
func Find(ck *safetensors.Checkpoint, config []byte) (*Quantized, error) {
	return nil, nil
}

// Read sets row to row n of the weight. It grows the slices of row as needed. Several goroutines may
// read rows at once, each into a Row of its own, inside the checkpoint's Guard.
func (w *Weight) Read(row *Row, n int64) error { return w.codec.read(row, n) }
