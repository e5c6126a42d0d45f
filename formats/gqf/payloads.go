package gqf

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"

	"github.com/lowbit-go/gq/packing"
)

type payloadCheck struct {
	*front
	next int    // index of the next payload
	end  uint64 // offset in the file behind the previous payload

	// The last parsed packed header: most headers are repeated many times.
	raw     []byte
	header  packing.Header
	size    uint64 // of header and data
	unknown error  // the reason why this version cannot read the payload, or nil
}

// tensor checks the payloads of tensor i, variant by variant, and records the variants that this
// version does not know. dims is the index of the tensor's first dimension.
func (c *payloadCheck) tensor(i int, r *tensorRecord, dims int) error {
	shape := make([]uint64, 0, maxDims)
	for j := range int(r.ndim) {
		shape = append(shape, c.dim(dims+j))
	}
	if _, ok := product(shape); !ok {
		return c.badRecord(secTensors, i, 8, "tensor %q: shape %d has more than 2^62 elements", c.tensorName(i), shape)
	}
	v := variantCheck{payloadCheck: c, tensor: i, record: r, shape: shape, limit: c.next + int(r.payloads)}
	for c.next < v.limit {
		if v.number == maxVariants {
			return v.bad(25, "a tensor has more than %d variants", maxVariants)
		}
		if err := v.check(); err != nil {
			return err
		}
		if v.unknown {
			if c.front.unknown == nil {
				c.front.unknown = map[int32]uint8{}
			}
			c.front.unknown[int32(i)] |= 1 << v.number
		}
		v.number++
	}
	return nil
}

// variantCheck checks a variant of a tensor: slice 0 with its weights and exactly the companions
// that the weights demand, then the other slices with equal headers.
type variantCheck struct {
	*payloadCheck
	tensor  int
	record  *tensorRecord
	shape   []uint64
	limit   int // index behind the tensor's last payload
	number  int // of the variant
	weights packing.Header
	unknown bool // this version does not know the layout of its weights
}

func (v *variantCheck) bad(at int, format string, args ...any) *FormatError {
	k := v.next - int(v.record.payloadFirst)
	return v.badRecord(secPayloads, v.next, at, "payload %d of tensor %q: %s", k, v.tensorName(v.tensor), fmt.Sprintf(format, args...))
}

func (v *variantCheck) check() error {
	first := v.next // payload of slice 0
	for v.next < v.limit {
		p := v.payload(v.next)
		if v.next > first && (int(p.variant) != v.number || p.slice != 0) {
			break
		}
		inOrder := v.next == first && p.kind == 0 || v.next > first && p.kind > v.payload(v.next-1).kind
		if err := v.one(&p, 0, inOrder); err != nil {
			return err
		}
		if v.next == first {
			v.weights, v.unknown = v.header, v.payloadCheck.unknown != nil
		}
		if msg := v.fits(Kind(p.kind)); msg != "" {
			return v.bad(payloadHeader, "%s", msg)
		}
		v.advance(&p)
	}
	kinds := v.next - first
	if !v.unknown {
		have := 1
		for kind := KindScales; kind <= KindTable; kind++ {
			if _, ok := CompanionOf(&v.weights, kind); !ok {
				continue
			}
			if have == kinds || Kind(v.payload(first+have).kind) != kind {
				return v.badRecord(secPayloads, first, 24, "tensor %q, variant %d: %s without a companion of kind %s", v.tensorName(v.tensor), v.number, v.weights.Layout, kind)
			}
			have++
		}
	}
	for slice := uint32(1); slice < v.record.slices; slice++ {
		for k := range kinds {
			if v.next == v.limit {
				return v.badRecord(secTensors, v.tensor, 20, "tensor %q: payloads of variant %d are missing from slice %d, kind %d on", v.tensorName(v.tensor), v.number, slice, v.payload(first+k).kind)
			}
			p, model := v.payload(v.next), v.payload(first+k)
			if err := v.one(&p, slice, p.kind == model.kind); err != nil {
				return err
			}
			if p.cpu != model.cpu {
				return v.bad(payloadCPU, "its CPU features differ from slice 0's")
			}
			if !bytes.Equal(v.packedHeader(first+k), v.packedHeader(v.next)) {
				return v.bad(payloadHeader, "its packed header differs from slice 0's")
			}
			v.advance(&p)
		}
	}
	return nil
}

// one checks the next payload record by itself, and its place in the order.
func (v *variantCheck) one(p *payloadRecord, slice uint32, inOrder bool) error {
	switch {
	case p.tensor != uint32(v.tensor):
		return v.bad(16, "is of tensor %d", p.tensor)
	case p.slice >= v.record.slices:
		return v.bad(20, "slice %d of %d", p.slice, v.record.slices)
	case int(p.variant) != v.number || p.slice != slice || !inOrder:
		return v.bad(20, "variant %d, slice %d, kind %d is out of order or repeated, or an earlier one is missing", p.variant, p.slice, p.kind)
	case !isZero(v.payloadPlace(v.next)[payloadReserved:payloadCPU]):
		return v.bad(payloadReserved, "reserved bytes are not zero")
	case p.kind != 0 && p.cpu != v.payload(v.next-1).cpu:
		return v.bad(payloadCPU, "its CPU features differ from its weights'")
	}
	return v.place(p, v.packedHeader(v.next))
}

func (v *variantCheck) place(p *payloadRecord, raw []byte) error {
	c := v.payloadCheck
	if !bytes.Equal(raw, c.raw) {
		h, err := v.front.parseHeader(raw)
		if e, ok := errors.AsType[*packing.HeaderError](err); ok {
			return v.bad(payloadHeader+e.Offset, "%s", e)
		}
		// Newer kinds of packed headers state their data's size, too. Only this can be out of range.
		size := packing.DataSizeOf(raw)
		if size > 1<<62 {
			return v.bad(payloadHeader, "%d bytes of data, at most 2^62 are possible", size)
		}
		c.raw, c.header, c.unknown, c.size = raw, h, err, packing.HeaderSize+size
	}
	switch {
	case p.off%align != 0:
		return v.bad(0, "at byte %d, want a multiple of %d", p.off, align)
	case p.off < c.end:
		return v.bad(0, "at byte %d, want %d or more, where the previous one ends", p.off, c.end)
	case p.length != c.size:
		return v.bad(8, "%d bytes, its packed header says %d", p.length, c.size)
	case p.off > c.h.fileSize || p.length > c.h.fileSize-p.off:
		return v.bad(0, "%d bytes at %d, the file has %d", p.length, p.off, c.h.fileSize)
	}
	return nil
}

func (v *variantCheck) advance(p *payloadRecord) {
	v.end = p.off + p.length
	v.next++
}

// fits returns why the next payload, of slice 0, does not fit its tensor and weights, or "". A
// payload of a variant that this version does not know always fits.
func (v *variantCheck) fits(kind Kind) string {
	switch {
	case v.unknown:
		return ""
	case v.payloadCheck.unknown != nil: // a companion
		return fmt.Sprintf("a companion of kind %s that is newer than its weights: %v", kind, v.payloadCheck.unknown)
	}
	return checkPayload(v.shape, v.record, kind, &v.weights, &v.header)
}

// checkPayload returns why the packed header h of a payload does not fit its tensor or, for a
// companion, the header of its weights; or "".
func checkPayload(shape []uint64, r *tensorRecord, kind Kind, weights, h *packing.Header) string {
	if kind == KindWeights {
		if h.Layout == packing.LayoutPlain && h.Dtype != packing.Dtype(r.dtype) {
			return fmt.Sprintf("its elements are %s, the tensor's are %s", h.Dtype, packing.Dtype(r.dtype))
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

// CompanionOf returns the packed header of the companion of a kind for weights with header h; ok is
// false if such weights must not have this companion.
func CompanionOf(h *packing.Header, kind Kind) (want packing.Header, ok bool) {
	if h.Layout != packing.LayoutCodes && h.Layout != packing.LayoutTorchAOEmbedding {
		return want, false
	}
	switch {
	case kind == KindScales:
		dtype := [...]packing.Dtype{packing.ScaleBF16: packing.BF16, packing.ScaleF16: packing.F16, packing.ScaleF32: packing.F32}
		return packing.PlainHeader(dtype[h.ScaleDtype], h.Rows, h.Groups()), true
	case kind == KindZeros && h.ZeroKind.IsInt8():
		return packing.PlainHeader(packing.I8, h.Rows, h.Groups()), true
	}
	return want, false
}

// checkMatrix returns what is wrong with the shape of a payload of weights, or "".
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

// product multiplies dimensions. ok is false if the non-zero dimensions have a product beyond 2^62;
// if ok is true, the product of any part of shape is in range too.
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
