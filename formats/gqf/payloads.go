package gqf

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"

	"github.com/lowbit-go/gq/packing"
)

// payloadCheck goes through the payloads in order.
type payloadCheck struct {
	*front
	next int    // payload
	end  uint64 // of the payload before, in the file

	// The last packed header that was parsed: most are repeated many times.
	raw    []byte
	header packing.Header
	size   uint64 // of header and data
}

// tensor checks the payloads of tensor i, whose dimensions start at dims: for
// each variant, for each slice, the weights and then the companions that slice 0
// has, with slice 0's headers.
func (c *payloadCheck) tensor(i int, r *tensorRecord, dims int) error {
	shape := make([]uint64, 0, 8)
	for j := range int(r.ndim) {
		shape = append(shape, c.dim(dims+j))
	}
	if _, ok := product(shape); !ok {
		return c.badRecord(secTensors, i, 8, "tensor %q: shape %d has more than 2^62 elements", c.tensorName(i), shape)
	}
	var first [KindTable + 1][]byte // headers of this variant's slice 0 by kind
	var weights packing.Header      // of this variant
	var weightsAt int               // payload of slice 0
	var prev payloadRecord
	complete := func() error { // has slice 0 all companions?
		for kind := KindScales; kind <= KindTable; kind++ {
			if _, ok := CompanionOf(&weights, kind); ok && first[kind] == nil {
				return c.badRecord(secPayloads, weightsAt, 24, "tensor %q, variant %d: %s without a companion of kind %s", c.tensorName(i), prev.variant, weights.Layout, kind)
			}
		}
		return nil
	}
	var kinds, missing int64 // of this variant: kinds in slice 0, payloads to come
	for k := range int(r.payloads) {
		p, rec := c.payload(c.next), c.record(secPayloads, c.next)
		bad := func(at int, format string, args ...any) *FormatError {
			return c.badRecord(secPayloads, c.next, at, "payload %d of tensor %q: %s", k, c.tensorName(i), fmt.Sprintf(format, args...))
		}
		follows := p.variant == prev.variant && (p.slice == prev.slice && p.kind > prev.kind || p.slice == prev.slice+1 && p.kind == 0)
		if k > 0 && prev.slice == 0 && (p.slice != 0 || p.variant != prev.variant) {
			if err := complete(); err != nil {
				return err
			}
		}
		if k == 0 || int(p.variant) == int(prev.variant)+1 && missing == 0 {
			follows = p.slice == 0 && p.kind == 0 && (k > 0 || p.variant == 0)
			first, kinds, missing = [KindTable + 1][]byte{}, 0, 0
		}
		switch {
		case p.tensor != uint32(i):
			return bad(16, "is of tensor %d", p.tensor)
		case p.slice >= r.slices:
			return bad(20, "slice %d of %d", p.slice, r.slices)
		case int(p.kind) >= len(kindNames):
			return bad(24, "kind %d does not exist", p.kind)
		case !follows:
			return bad(20, "variant %d, slice %d, kind %d is out of order or repeated, or one before it is missing", p.variant, p.slice, p.kind)
		case !isZero(rec[payloadReserved:payloadHeader]):
			return bad(payloadReserved, "reserved bytes are not zero")
		}
		if p.slice == 0 {
			first[p.kind] = rec[payloadHeader:]
			kinds++
			missing = kinds * int64(r.slices-1)
		} else {
			missing--
		}
		if !bytes.Equal(first[p.kind], rec[payloadHeader:]) {
			return bad(payloadHeader, "its packed header differs from that of slice 0")
		}
		if err := c.place(&p, rec[payloadHeader:], bad); err != nil {
			return err
		}
		if p.slice == 0 { // the others are equal
			if p.kind == 0 {
				weights, weightsAt = c.header, c.next
			}
			if msg := checkPayload(shape, r, Kind(p.kind), &weights, &c.header); msg != "" {
				return bad(payloadHeader, "%s", msg)
			}
		}
		c.end = p.off + p.length
		c.next++
		prev = p
	}
	if prev.slice == 0 {
		if err := complete(); err != nil {
			return err
		}
	}
	if missing != 0 {
		return c.badRecord(secTensors, i, 20, "tensor %q: %d payloads are missing behind variant %d, slice %d, kind %d", c.tensorName(i), missing, prev.variant, prev.slice, prev.kind)
	}
	return nil
}

// place checks where a payload lies, and parses its packed header.
func (c *payloadCheck) place(p *payloadRecord, raw []byte, bad func(int, string, ...any) *FormatError) error {
	if !bytes.Equal(raw, c.raw) {
		h, err := packing.ParseHeader(raw)
		if e, ok := errors.AsType[*packing.HeaderError](err); ok {
			return bad(payloadHeader+e.Offset, "%s", e)
		}
		if err != nil {
			return &UnsupportedError{c.name, bad(0, "%s", err).Msg}
		}
		size, _ := h.DataSize() // ParseHeader checked it
		c.raw, c.header, c.size = raw, h, packing.HeaderSize+uint64(size)
	}
	switch {
	case p.off%align != 0:
		return bad(0, "at byte %d, want a multiple of %d", p.off, align)
	case p.off < c.end:
		return bad(0, "at byte %d, want %d or more, where the one before ends", p.off, c.end)
	case p.length != c.size:
		return bad(8, "%d bytes, its packed header says %d", p.length, c.size)
	case p.off > c.h.fileSize || p.length > c.h.fileSize-p.off:
		return bad(0, "%d bytes at %d, the file has %d", p.length, p.off, c.h.fileSize)
	}
	return nil
}

// checkPayload says what is wrong with the packed header h of a payload for its
// tensor and, in a companion, for the weights that it goes with; or nothing.
func checkPayload(shape []uint64, r *tensorRecord, kind Kind, weights, h *packing.Header) string {
	if kind == KindWeights {
		if h.Layout == packing.LayoutPlain && h.Dtype != packing.Dtype(r.dtype) {
			return fmt.Sprintf("its elements are %s, those of the tensor are %s", h.Dtype, packing.Dtype(r.dtype))
		}
		return checkMatrix(shape, r, h)
	}
	want, ok := CompanionOf(weights, kind)
	switch {
	case !ok:
		return fmt.Sprintf("a companion of kind %s, which weights of layout %s and zero points of kind %s do not have", kind, weights.Layout, weights.ZeroKind)
	case h.Layout != packing.LayoutPlain:
		return fmt.Sprintf("a companion must be plain, this is %s", h.Layout)
	case *h != want:
		return fmt.Sprintf("%d x %d elements of %s, the weights need %d x %d of %s", h.Rows, h.Cols, h.Dtype, want.Rows, want.Cols, want.Dtype)
	}
	return ""
}

// CompanionOf gives the packed header of the companion of a kind that weights
// with header h must have; ok is false where they must not have one.
func CompanionOf(h *packing.Header, kind Kind) (want packing.Header, ok bool) {
	if h.Layout != packing.LayoutCodes && h.Layout != packing.LayoutTorchAOEmbedding {
		return want, false
	}
	switch {
	case kind == KindScales:
		dtype := [...]packing.Dtype{packing.ScaleBF16: packing.BF16, packing.ScaleF16: packing.F16, packing.ScaleF32: packing.F32}
		return packing.PlainHeader(dtype[h.ScaleDtype], h.Rows, h.Groups()), true
	case kind == KindZeros && h.ZeroKind == packing.ZeroInt8:
		return packing.PlainHeader(packing.I8, h.Rows, h.Groups()), true
	}
	return want, false
}

// checkMatrix says what is wrong with the shape of a payload of weights, or
// nothing.
func checkMatrix(shape []uint64, r *tensorRecord, h *packing.Header) string {
	plain := h.Layout == packing.LayoutPlain
	n := len(shape)
	var rows, cols uint64
	switch {
	case plain && r.slices == 1 && n == 0:
		rows, cols = 1, 1
	case plain && r.slices == 1:
		rows, _ = product(shape[:n-1])
		cols = shape[n-1]
	case n < 2:
		return fmt.Sprintf("a tensor of shape %d can only be one plain slice", shape)
	default:
		if lead, _ := product(shape[:n-2]); lead != uint64(r.slices) {
			return fmt.Sprintf("%d slices of a tensor of shape %d", r.slices, shape)
		}
		rows, cols = shape[n-2], shape[n-1]
		if r.flags&flagTransp != 0 && !plain {
			rows, cols = cols, rows
		}
	}
	if h.Rows != rows || h.Cols != cols {
		return fmt.Sprintf("its packed header says %d x %d, shape %d needs %d x %d", h.Rows, h.Cols, shape, rows, cols)
	}
	return ""
}

// product multiplies dimensions; ok is false where those that are not zero have a
// product beyond 2^62, so it is true of every part of shape where it is true of
// the whole.
func product(shape []uint64) (n uint64, ok bool) {
	n = 1
	zero := false
	for _, d := range shape {
		if d == 0 {
			zero = true
			continue
		}
		hi, lo := bits.Mul64(n, d)
		if hi != 0 || lo > 1<<62 {
			return 0, false
		}
		n = lo
	}
	if zero {
		return 0, true
	}
	return n, true
}
