package gq

import (
	"fmt"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/inspect"
)

// GGUFTensor is the content of a tensor of a .gguf file, for people and, as JSON, for programs:
// keys never change.
type GGUFTensor struct {
	Tensor       inspect.GGUFTensor `json:"tensor"`
	BlockWeights int                `json:"block_weights"`
	BlockBytes   int                `json:"block_bytes"`
	// Scales, Mins and Codes are null for unquantized types and for types whose blocks gq only
	// decodes. Codes are as gguf.Fields has them.
	Scales *gqf.ScaleStatistics `json:"scales"` // one per block
	Mins   *gqf.ScaleStatistics `json:"mins"`   // one per block; null for types without minima
	Codes  []gqf.CodeCount      `json:"codes"`  // ascending, without codes that do not occur
	// the first 16 weights of row 0; null if gq does not decode the type
	Values []gqf.Value `json:"values"`
}

const shownWeights = 16

// inspectGGUF describes the tensor of a row.
func inspectGGUF(f *gguf.File, row inspect.GGUFTensor) (*GGUFTensor, error) {
	t := f.Tensor(row.Name)
	r := &GGUFTensor{Tensor: row, BlockWeights: t.Type.BlockWeights(), BlockBytes: t.Type.BlockBytes()}
	err := f.Guard(func() error {
		if t.Type.Decodable() {
			if err := r.addValues(t, f.Data(t)); err != nil {
				return err
			}
		}
		if !t.Type.Encodable() {
			return nil
		}
		return r.addFields(t, f.Data(t), f.Paths()[t.Shard])
	})
	return r, err
}

// addValues decodes as many blocks as hold the first weights of row 0.
func (r *GGUFTensor) addValues(t *gguf.Tensor, data []byte) error {
	n := int(min(t.Columns(), shownWeights))
	blocks := (n + r.BlockWeights - 1) / r.BlockWeights
	weights := make([]float32, blocks*r.BlockWeights)
	if err := t.Type.Decode(weights, data[:blocks*r.BlockBytes]); err != nil {
		return err
	}
	r.Values = make([]gqf.Value, n)
	for i := range r.Values {
		r.Values[i] = gqf.Value(weights[i])
	}
	return nil
}

// addFields takes all blocks apart; path is for errors.
func (r *GGUFTensor) addFields(t *gguf.Tensor, data []byte, path string) error {
	var codes [256]int64 // by code + 128
	var scales, mins gqf.ScaleStatistics
	var f gguf.Fields
	for p := range pieces(t, data) {
		if err := t.Type.Unpack(&f, p.data); err != nil {
			at := ""
			if p.at > 0 {
				at = fmt.Sprintf(" from weight %d on", p.at)
			}
			return fmt.Errorf("%s: tensor %q, row %d%s: %w", path, t.Name, p.row, at, err)
		}
		for _, q := range f.Codes {
			codes[int(q)+128]++
		}
		scales.Add(f.Scales)
		mins.Add(f.Mins)
	}
	r.Scales = &scales
	if mins.Count > 0 {
		r.Mins = &mins
	}
	for i, n := range codes {
		if n > 0 {
			r.Codes = append(r.Codes, gqf.CodeCount{Code: i - 128, Count: n})
		}
	}
	return nil
}
