package kleidiai

import (
	"github.com/lowbit-go/gq/packing"
)

// frame describes a panel of a layout; the package's documentation states how codes become bytes.
// Offsets are from the panel's start.
type frame struct {
	n, k           int // rows and columns of the matrix
	cols           int // columns stored: k, rounded up to 32
	group, groups  int // stored columns of a group; groups of a row
	nr             int
	bits, distance int
	run            int // bytes of a row's stream that are adjacent

	panelBytes         int
	data0, dataStep    int // codes of group g: data0 + g*dataStep
	scale0, recordStep int // nr scales of group g: scale0 + g*recordStep
	zero0              int // likewise float32 zero points; none if < 0
	sum0               int // nr sums; none if < 0
	bias0              int // nr biases; none if < 0

	scaleDtype  packing.ScaleDtype
	scaleFactor float32 // factor of stored scales: 1 or 1/16
	sumFactor   int32   // factor of stored sums: 1 or 16
	// zeroPadding: rows past the last row of the matrix have codes, sums, scales and biases of 0.
	// Otherwise they repeat the last row.
	zeroPadding bool
}

const sixteenth = 0.0625

// newFrame computes the frame of a valid header with a layout of KleidiAI.
func newFrame(h *packing.Header) *frame {
	f := &frame{
		n: int(h.Rows), k: int(h.Cols), nr: int(h.Tile.NR), bits: int(h.Bits), groups: int(h.Groups()),
		distance: 16, run: int(h.Tile.KR) / int(h.Tile.SR), scaleDtype: h.ScaleDtype, scaleFactor: 1, sumFactor: 1,
		zero0: -1, sum0: -1, bias0: -1,
	}
	f.cols = (f.k + 31) / 32 * 32
	f.group = f.cols / f.groups
	codes := f.nr * f.stream()
	switch h.Layout {
	case packing.LayoutQSI4C32PF16: // scales, codes
		f.distance = f.group / 2
		f.data0 = 2 * f.nr
		f.dataStep = f.data0 + codes
		f.recordStep = f.dataStep
		f.panelBytes = f.groups * f.dataStep
		return f
	case packing.LayoutQAI4C32P: // codes, zero points, scales; biases
		f.scaleFactor = sixteenth
		f.zero0 = codes
		f.scale0 = f.zero0 + 4*f.nr
		f.dataStep = f.scale0 + 4*f.nr
		f.recordStep = f.dataStep
		f.bias0 = f.groups * f.dataStep
		f.panelBytes = f.bias0 + 4*f.nr
		return f
	case packing.LayoutQSI4CXP: // the layout's kernels see the codes times 16
		f.sumFactor, f.scaleFactor = 16, sixteenth
	case packing.LayoutQSU2CXP:
		f.distance, f.zeroPadding = 4, true
	}
	// A scale per row: codes, sums, scales, biases.
	f.sum0 = codes
	f.scale0 = f.sum0 + 4*f.nr
	f.bias0 = f.scale0 + 4*f.nr
	f.panelBytes = f.bias0 + 4*f.nr
	return f
}

// stream is the number of bytes that a row contributes to the codes of a group.
func (f *frame) stream() int { return f.group * f.bits / 8 }

// data returns the bytes of a panel that hold the codes of group g.
func (f *frame) data(panel []byte, g int) []byte {
	return panel[f.data0+g*f.dataStep:][:f.nr*f.stream()]
}

// scaleAt and zeroAt are the offsets of row i's scale and float32 zero point in group g of a panel.
func (f *frame) scaleAt(i, g int) int { return f.scale0 + g*f.recordStep + i*f.scaleDtype.Bytes() }
func (f *frame) zeroAt(i, g int) int  { return f.zero0 + g*f.recordStep + 4*i }

// place returns the byte o of a group's stream that holds the code of column k, and the code's
// place t in 0 .. 8/bits-1 within the byte.
func (f *frame) place(k int) (o, t int) {
	d := f.distance
	chunk, c := k/(d*8/f.bits), k%(d*8/f.bits)
	return chunk*d + c%d, c / d
}

// offset is the offset of byte o of row i's stream in the data of a group.
func (f *frame) offset(i, o int) int {
	return f.nr*f.run*(o/f.run) + f.run*i + o%f.run
}
