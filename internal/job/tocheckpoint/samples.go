package tocheckpoint

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/togguf"
)

// Samples are the checksums of sampled rows of a matrix, as they were before they became bytes.
type Samples struct {
	rows int64
	mu   sync.Mutex
	sums map[int64]uint32 // by row
}

// SamplesOf returns empty samples by the index of the items, nil for unquantized items.
func SamplesOf(p *plan.Plan) []*Samples {
	list := make([]*Samples, len(p.Items))
	for it := range p.Quantized() {
		list[it.Index] = &Samples{rows: it.Rows}
	}
	return list
}

// sampled reports whether a row is one of the sampledRows of a matrix, which lie at equal
// distances.
func (r *Samples) sampled(row int64) bool {
	n := min(r.rows, togguf.SampledRows)
	if n == 1 {
		return row == 0
	}
	i := (row*(n-1) + r.rows - 2) / (r.rows - 1)
	return i*(r.rows-1)/(n-1) == row
}

// add takes the sums of the sampled ones among rows first, first + 1, ...
func (r *Samples) add(rows []hfquant.Row, first int64) {
	for i := range rows {
		row := first + int64(i)
		if !r.sampled(row) {
			continue
		}
		sum := sumOf(&rows[i])
		r.mu.Lock()
		if r.sums == nil {
			r.sums = map[int64]uint32{}
		}
		r.sums[row] = sum
		r.mu.Unlock()
	}
}

// sumOf is the CRC32C of a row's codes, scales and offsets. A zero point counts as the offset that
// it stands for, so that the sum does not depend on how a format stores it.
func sumOf(r *hfquant.Row) uint32 {
	b := make([]byte, 0, len(r.Codes)+8*len(r.Scales))
	for _, q := range r.Codes {
		b = append(b, byte(q))
	}
	for g, s := range r.Scales {
		offset := float32(0)
		if r.Zeros != nil {
			offset = float32(-float32(r.Zeros[g]) * s)
		}
		if r.Offsets != nil {
			offset = r.Offsets[g]
		}
		if offset == 0 { // or -0
			offset = 0
		}
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(s))
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(offset))
	}
	return crc32c.Checksum(b)
}
