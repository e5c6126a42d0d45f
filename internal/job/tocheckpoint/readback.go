package tocheckpoint

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/togguf"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
)

// Check opens the complete temporaries. It compares samples with the source's unquantized bytes,
// and with the checksums of the rows that were written.
func (o *Output) Check(to write.Target, w *write.Written) error {
	t := to.(*Target)
	var paths []string
	for i := range t.Layout.Shards {
		paths = append(paths, w.Temp(len(t.First)+i))
	}
	ck, err := safetensors.OpenFiles(paths, safetensors.Options{})
	if err != nil {
		return err
	}
	defer ck.Close()
	for _, it := range o.Items {
		if it, ok := it.(*plan.Unquantized); ok && it.As == packing.DtypeNone {
			if err := o.compareBytes(ck, it, w.Codes); err != nil {
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
func (o *Output) compareCodes(t *Target, ck *safetensors.Checkpoint) error {
	config, err := t.First[0].Content()
	if err != nil {
		return err
	}
	found, err := hfquant.Find(ck, config)
	switch {
	case err != nil:
		return err
	case found == nil:
		return fmt.Errorf("no weight is quantized")
	case found.Format != o.opts.Format:
		return fmt.Errorf("the format is %s, %s was written", found.Format, o.opts.Format)
	}
	count := 0
	for it := range o.Quantized() {
		for _, name := range o.namesOf(&it.Entry) {
			count++
			if err := CompareWeight(ck, found, name, it, t.samples[it.Index]); err != nil {
				return err
			}
		}
	}
	if n := len(found.Weights); n != count {
		return fmt.Errorf("%d weights are quantized, %d were written", n, count)
	}
	return nil
}

// CompareWeight compares the sampled rows of one weight.
func CompareWeight(ck *safetensors.Checkpoint, q *hfquant.Quantized, name string, it *plan.Quantized, want *Samples) error {
	w := q.Weight(name)
	if w == nil {
		return fmt.Errorf("tensor %q is not among the quantized weights", name)
	}
	if !slices.Equal(w.Shape, it.Src.Shape) || w.Scheme.Bits != it.Stored.Bits || w.Scheme.Groups(it.Cols) != it.Stored.Groups(it.Cols) {
		return fmt.Errorf("tensor %q has shape %v and %s, expected were %v and %s", name, w.Shape, w.Scheme, it.Src.Shape, it.Stored)
	}
	if n := min(it.Rows, togguf.SampledRows); int64(len(want.sums)) != n {
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
func (o *Output) compareBytes(ck *safetensors.Checkpoint, it *plan.Unquantized, c *plan.Codes) error {
	var buf []byte
	for _, s := range o.tensors[it.Index] {
		name := o.Specs[s.first].Name
		tensor, ok := ck.Lookup(name)
		if !ok || tensor.Size != it.Src.Size {
			return fmt.Errorf("tensor %q is missing or has another size", name)
		}
		got, err := ck.Bytes(tensor)
		if err != nil {
			return err
		}
		n := min(comparedBytes, tensor.Size)
		for _, at := range []int64{0, tensor.Size - n} {
			same := true
			err := o.from.Guard(func() error {
				want, err := o.from.Bytes(&it.Entry, at, n, &buf)
				if err != nil || n == 0 {
					return err
				}
				if own := c.Vector(&it.Entry); own != nil {
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
