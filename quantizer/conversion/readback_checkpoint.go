package conversion

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/packing"
)

// rowSums are the checksums of sampled rows of a matrix, as they were before they became bytes.
type rowSums struct {
	rows int64
	mu   sync.Mutex
	sums map[int64]uint32 // by row
}

// sampled reports whether a row is one of the sampledRows of a matrix, which lie at equal distances.
func (r *rowSums) sampled(row int64) bool {
	n := min(r.rows, sampledRows)
	if n == 1 {
		return row == 0
	}
	i := (row*(n-1) + r.rows - 2) / (r.rows - 1)
	return i*(r.rows-1)/(n-1) == row
}

// add takes the sums of the sampled ones among rows first, first + 1, ...
func (r *rowSums) add(rows []hfquant.Row, first int64) {
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

// sumOf is the CRC32C of a row's codes, scales and offsets. A zero point counts as the offset that it
// stands for, so that the sum does not depend on how a format stores it.
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

// readBack opens the complete temporaries. It compares samples with the source's unquantized bytes, and
// with the checksums of the rows that were written.
func (o *checkpointOutput) readBack(t *checkpointTarget, temps *temporaries, c *CalibratedCodes) error {
	var paths []string
	for i := range t.layout.Shards {
		paths = append(paths, temps.files[len(t.first)+i].Temp())
	}
	ck, err := safetensors.OpenFiles(paths, safetensors.Options{})
	if err != nil {
		return err
	}
	defer ck.Close()
	for _, it := range o.items {
		if it, ok := it.(*unquantized); ok && it.as == packing.DtypeNone {
			if err := o.compareBytes(ck, it, c); err != nil {
				return err
			}
		}
	}
	if o.opts.Format == "" {
		return nil
	}
	return o.compareCodes(t, ck)
}

// compareCodes reads all quantized weights with hfquant, and compares sampled rows.
func (o *checkpointOutput) compareCodes(t *checkpointTarget, ck *safetensors.Checkpoint) error {
	config, err := t.first[0].content()
	if err != nil {
		return err
	}
	found, err := hfquant.Find(ck, config)
	if err != nil {
		return err
	}
	weights := map[string]*hfquant.Weight{}
	if found != nil {
		if found.Format != o.opts.Format {
			return fmt.Errorf("the format is %s, %s was written", found.Format, o.opts.Format)
		}
		for i := range found.Weights {
			weights[found.Weights[i].Name] = &found.Weights[i]
		}
	}
	count := 0
	for it := range o.quantized() {
		for _, name := range o.namesOf(&it.entry) {
			count++
			if err := compareWeight(ck, weights[name], name, it, t.samples[it.index]); err != nil {
				return err
			}
		}
	}
	if count != len(weights) {
		return fmt.Errorf("%d weights are quantized, %d were written", len(weights), count)
	}
	return nil
}

// compareWeight compares the sampled rows of one weight.
func compareWeight(ck *safetensors.Checkpoint, w *hfquant.Weight, name string, it *quantized, want *rowSums) error {
	if w == nil {
		return fmt.Errorf("tensor %q is not among the quantized weights", name)
	}
	if !slices.Equal(w.Shape, it.src.Shape) || w.Scheme.Bits != it.stored.Bits || w.Scheme.Groups(it.cols) != it.stored.Groups(it.cols) {
		return fmt.Errorf("tensor %q has shape %v and %s, expected were %v and %s", name, w.Shape, w.Scheme, it.src.Shape, it.stored)
	}
	if n := min(it.rows, sampledRows); int64(len(want.sums)) != n {
		return fmt.Errorf("%d rows of tensor %q were sampled, not %d: this is a defect of gq, please report it", len(want.sums), name, n)
	}
	var row hfquant.Row
	for _, n := range slices.Sorted(maps.Keys(want.sums)) {
		err := ck.Guard(func() error { return w.Read(&row, n) })
		if err != nil {
			return err
		}
		if sumOf(&row) != want.sums[n] {
			return fmt.Errorf("row %d of tensor %q has other codes or scales than were written: this is a defect of gq, please report it with the model's name", n, name)
		}
	}
	return nil
}

// comparedBytes is how much of an unquantized tensor is compared, at its start and at its end.
const comparedBytes = 1 << 14

// compareBytes compares the first and the last bytes of an unquantized item with the source's, or
// with tuned ones.
func (o *checkpointOutput) compareBytes(ck *safetensors.Checkpoint, it *unquantized, c *CalibratedCodes) error {
	var buf []byte
	for _, s := range o.tensors[it.index] {
		name := o.specs[s.first].Name
		tensor, ok := ck.Lookup(name)
		if !ok || tensor.Size != it.src.Size {
			return fmt.Errorf("tensor %q is missing or has another size", name)
		}
		got, err := ck.Bytes(tensor)
		if err != nil {
			return err
		}
		n := min(comparedBytes, tensor.Size)
		for _, at := range []int64{0, tensor.Size - n} {
			same := true
			err := o.from.guard(func() error {
				want, err := o.from.piece(&it.entry, at, n, &buf)
				if err != nil || n == 0 {
					return err
				}
				if own := c.vector(&it.entry); own != nil {
					want = own[at:][:n]
				}
				return ck.Guard(func() error { same = bytes.Equal(want, got[at:][:n]); return nil })
			})
			if err != nil {
				return err
			}
			if !same {
				return fmt.Errorf("tensor %q has other bytes than its source: this is a defect of gq, please report it with the model's name", name)
			}
		}
	}
	return nil
}
