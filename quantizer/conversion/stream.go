package conversion

import (
	"bytes"
	"context"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/crc32c"
)

// Streams reports whether the plan's output can be written while weights come from elsewhere: each
// byte of the checkpoint is read once, in about the order of the output. Files of other formats are
// compared with the checkpoint once more, and hashes of its files are made before.
//
// most is the memory for bytes of the checkpoint.
func (p *Plan) Streams() (most int64, ok bool) {
	if _, ok := p.out.(*gqfOutput); !ok || p.opts.Recipe.HashFiles {
		return 0, false
	}
	most = safetensors.ReadAheadBytes
	for it := range p.quantized() {
		if it.transposed {
			most = max(most, it.src.Size/int64(it.slices))
		}
	}
	return most, true
}

// readAhead begins to fetch the bytes of remote files that the units will read; nil if all are
// local.
func (j *job) readAhead(ctx context.Context) *safetensors.ReadAhead {
	in, ok := j.plan.in.(checkpointInput)
	if !ok || !in.ck.Remote() {
		return nil
	}
	return in.ck.ReadAhead(ctx, j.share.end-j.share.first, func(i int, list []safetensors.Range) []safetensors.Range {
		u := j.units.at(j.share.first + i)
		if j.reuse.of(u.item) != nil {
			return list
		}
		return in.ranges(list, u)
	})
}

// ranges appends the ranges of the checkpoint that a unit of a .gqf file reads.
func (p checkpointInput) ranges(list []safetensors.Range, u unit) []safetensors.Range {
	it, ok := u.item.(*quantized)
	src := u.item.common().src
	switch {
	case !ok || u.sum:
		return append(list, src.Range(u.first, u.count))
	case it.transposed: // gathered from all of the slice
		n := src.Size / int64(it.slices)
		list = append(list, src.Range(int64(u.slice)*n, n))
	default:
		row := int64(u.slice)*it.rows + u.first*blockRows
		list = append(list, src.Range(row*it.rowBytes(), u.rows(it)*it.rowBytes()))
	}
	for _, n := range it.aliases {
		if n.absorbed {
			list = append(list, n.src.Range(0, n.src.Size))
		}
	}
	if b := it.bias; b != nil {
		size := b.Size / b.Numel()
		list = append(list, b.Range((int64(u.slice)*it.rows+u.first*blockRows)*size, u.rows(it)*size))
	}
	return list
}

// sumScales sums the bytes of block scales that are multiplied into the item, in the item's first unit.
func (p checkpointInput) sumScales(it *quantized, u unit, r *unitResult) error {
	if u.slice != 0 || u.first != 0 {
		return nil
	}
	for _, n := range it.aliases {
		if !n.absorbed {
			continue
		}
		view, err := p.ck.Bytes(n.src)
		if err != nil {
			return err
		}
		r.scaleCRC = crc32c.Checksum(view)
	}
	return nil
}

// tiePiece is how much of two tensors is compared at a time. The first piece is small: tensors
// that differ differ there.
const tiePiece = 1 << 20

// sameContent compares two tensors byte for byte. A dry run reads no other weights.
func sameContent(ck *safetensors.Checkpoint, a, b safetensors.Tensor) (bool, error) {
	if a.Dtype != b.Dtype || !slices.Equal(a.Shape, b.Shape) || a.Dtype.Bits() == 8 { // FP8: the scales may differ
		return false, nil
	}
	av, err := ck.Bytes(a)
	if err != nil {
		return false, err
	}
	bv, err := ck.Bytes(b)
	if err != nil {
		return false, err
	}
	compare := func(off, n int64) (same bool, err error) {
		err = ck.Guard(func() error { same = bytes.Equal(av[off:off+n], bv[off:off+n]); return nil })
		return same, err
	}
	first := min(a.Size, 1<<16)
	release, err := ck.Fetch(ck.Context(), a.Range(0, first), b.Range(0, first))
	if err != nil {
		return false, err
	}
	same, err := compare(0, first)
	release()
	if !same || err != nil {
		return false, err
	}
	steps := int((a.Size - first + tiePiece - 1) / tiePiece)
	piece := func(i int) (off, n int64) {
		off = first + int64(i)*tiePiece
		return off, min(tiePiece, a.Size-off)
	}
	ahead := ck.ReadAhead(ck.Context(), steps, func(i int, list []safetensors.Range) []safetensors.Range {
		off, n := piece(i)
		return append(list, a.Range(off, n), b.Range(off, n))
	})
	defer ahead.Close()
	for i := range steps {
		if err := ahead.Wait(i); err != nil {
			return false, err
		}
		if same, err := compare(piece(i)); !same || err != nil {
			return false, err
		}
		ahead.Done(i)
	}
	return true, nil
}
