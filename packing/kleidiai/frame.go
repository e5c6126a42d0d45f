package kleidiai

import (
	"fmt"
	"math"

	"github.com/lowbit-go/gq/packing"
)

// frame describes one panel of a layout; see the package's documentation for
// how codes become bytes. Offsets are from the panel's start.
type frame struct {
	n, k           int // rows and columns of the matrix
	cols           int // columns stored: k, rounded up
	group, groups  int // stored columns of a group; groups of a row
	nr             int
	bits, distance int
	run            int  // bytes of a row's stream that stay together
	flip           byte // a code q is stored as q's low bits XOR flip
	codec          codec

	panelBytes         int
	data0, dataStep    int // codes of group g: data0 + g*dataStep
	scale0, recordStep int // scales of group g: scale0 + g*recordStep, nr of them
	zero0              int // likewise float32 zero points; none if < 0
	sum0               int // nr sums; none if < 0
	bias0              int // nr biases; none if < 0

	scaleDtype  packing.ScaleDtype
	scaleFactor float32 // scales are stored times this: 1 or 1/16
	floatSums   bool    // sums are float32 of blocks of 32, else int32
	sumFactor   int32   // of integer sums
	lut         [4]int32
	padding     padding
}

// padding is what is stored for rows past the last row of the matrix. Where no
// bit says otherwise they repeat it.
type padding uint8

const (
	zeroCodes  padding = 1 << iota // codes and sum are 0
	zeroScales                     // scales are 0
	zeroBias                       // bias is 0
	unwritten                      // PackPanel leaves the bytes as they are
)

const sixteenth = 0.0625

// newFrame computes the frame of c, whose BL is not 0. Of QSI4C32P only the
// checks: packing.Lowbit packs it.
func newFrame(c RHSConfig) (*frame, error) {
	f := &frame{
		n: c.N, k: c.K, cols: c.K, group: c.K, nr: c.NR, bits: 4, distance: 1, scaleFactor: 1, sumFactor: 1,
		lut: [4]int32{-2, -1, 0, 1}, scale0: -1, zero0: -1, sum0: -1, bias0: -1,
	}
	fail := func(format string, args ...any) (*frame, error) {
		return nil, fmt.Errorf("kleidiai: %s: "+format, append([]any{c.Kind}, args...)...)
	}
	switch {
	case kindNames[c.Kind] == "":
		return fail("no such kind")
	case c.N < 1 || c.K < 1 || c.NR < 1 || c.KR < 1 || c.SR < 1 || c.BL < 1:
		return fail("%d x %d weights, bl %d, nr %d, kr %d, sr %d: all must be above 0", c.N, c.K, c.BL, c.NR, c.KR, c.SR)
	case c.K > math.MaxInt32-32 || c.NR > 1<<16 || int64(c.NR)*(2*int64(c.K)+64) > math.MaxInt/8/(int64(c.N-1)/int64(c.NR)+1):
		return fail("%d x %d weights, nr %d: more than this machine can address", c.N, c.K, c.NR)
	case c.KR%c.SR != 0:
		return fail("kr %d is not a multiple of sr %d", c.KR, c.SR)
	}
	width := c.KR / c.SR // what KleidiAI's names give behind "x"
	switch c.Kind {
	case QSI4C32P, QSI4C32PScaleF16, QSI4CXP, QAI4C32P:
		if width > 16 || 16%width != 0 {
			return fail("kr/sr is %d, want a divisor of 16", width)
		}
		f.run, f.distance = width, 16
	case QSI4C32PS1S0NRX4, QAI4C32PS1S0NRX4:
		if width != 4 {
			return fail("kr/sr is %d, want 4", width)
		}
		f.run = 2
	case QSI4C32PS1S0ScaleF16, QSI4C32PS4S0SF16:
		if c.KR != 4 || c.SR != 2 {
			return fail("kr %d, sr %d: want 4 and 2", c.KR, c.SR)
		}
		f.run = 2
		if c.Kind == QSI4C32PS4S0SF16 {
			f.run, f.distance = 4, 4
		}
	case QSI4CXPS1S0:
		if c.KR%2 != 0 || 32%c.KR != 0 {
			return fail("kr is %d, want an even divisor of 32", c.KR)
		}
		f.run = c.KR / 2
	case QSI8CXP:
		if 32%c.KR != 0 {
			return fail("kr is %d, want a divisor of 32", c.KR)
		}
		f.run, f.bits = c.KR, 8
	case QSU2CXP4X4, QSU2CXP4VLX4:
		if c.KR != 4 || c.SR != 1 {
			return fail("kr %d, sr %d: want 4 and 1", c.KR, c.SR)
		}
		if c.Kind == QSU2CXP4X4 && c.NR != 4 {
			return fail("nr is %d, want 4", c.NR)
		}
		f.bits, f.flip, f.run = 2, 2, 1
		if c.Kind == QSU2CXP4X4 {
			f.run, f.distance = 4, 4
		}
	}
	switch c.Kind {
	case QSI4CXP, QSI4CXPS1S0, QSI8CXP:
		f.cols = (c.K + 31) / 32 * 32
		f.group = f.cols
	default:
		if c.K%32 != 0 {
			return fail("%d columns, want a multiple of 32", c.K)
		}
	}
	switch c.Kind {
	case QSI4CXP, QSI4CXPS1S0, QSI8CXP, QSU2CXP4X4, QSU2CXP4VLX4:
		if c.BL != c.K {
			return fail("bl is %d: there is one scale per row", c.BL)
		}
		f.perRow(c)
	default:
		if c.BL%32 != 0 || c.K%c.BL != 0 {
			return fail("bl is %d, want a multiple of 32 that divides the %d columns", c.BL, c.K)
		}
		f.group = c.BL
		f.perGroup(c)
	}
	f.codec = f.chooseCodec()
	return f, nil
}

// perRow lays out codes, sums, scales and biases of the kinds with a scale per
// row.
func (f *frame) perRow(c RHSConfig) {
	f.groups, f.scaleDtype = 1, packing.ScaleF32
	f.sum0 = f.nr * f.cols * f.bits / 8
	f.scale0 = f.sum0 + 4*f.nr
	f.bias0 = f.scale0 + 4*f.nr
	f.panelBytes = f.bias0 + 4*f.nr
	switch c.Kind {
	case QSI4CXP: // its kernels see the codes times 16
		f.sumFactor, f.scaleFactor = 16, sixteenth
	case QSI4CXPS1S0:
		f.padding = zeroCodes | zeroScales | zeroBias
	case QSI8CXP:
		f.sumFactor = int32(c.LHSZeroPoint)
	case QSU2CXP4X4:
		f.padding = zeroCodes | zeroScales | zeroBias
	case QSU2CXP4VLX4:
		f.padding = zeroScales | zeroBias
	}
	if c.LUT != nil {
		f.lut = *c.LUT
	}
}

// perGroup lays out codes, scales, zero points, sums and biases of the kinds
// with groups.
func (f *frame) perGroup(c RHSConfig) {
	f.groups = f.k / f.group
	codes := f.nr * f.group / 2
	scales := 2 * f.nr
	f.scaleDtype = packing.ScaleF16
	switch c.Kind {
	case QSI4C32PScaleF16: // scales, codes
		f.distance = f.group / 2
		f.scale0, f.data0 = 0, scales
		f.recordStep, f.dataStep = scales+codes, scales+codes
		f.panelBytes = f.groups * f.dataStep
	case QSI4C32PS1S0ScaleF16, QSI4C32PS4S0SF16: // all codes, all scales
		f.dataStep, f.recordStep = codes, scales
		f.scale0 = f.groups * codes
		f.panelBytes = f.scale0 + f.groups*scales
		f.padding = unwritten
		if c.Kind == QSI4C32PS4S0SF16 {
			f.scaleFactor = sixteenth
		} else {
			f.flip = 8
		}
	case QSI4C32P, QSI4C32PS1S0NRX4: // codes, scales; sums, biases
		f.scaleDtype, f.floatSums = packing.ScaleBF16, true
		f.scale0 = codes
		f.recordStep, f.dataStep = codes+scales, codes+scales
		f.sum0 = f.groups * f.dataStep
		f.bias0 = f.sum0 + 4*f.nr
		f.panelBytes = f.bias0 + 4*f.nr
	case QAI4C32P, QAI4C32PS1S0NRX4: // codes, zero points, scales; biases
		f.scaleDtype = packing.ScaleF32
		f.zero0 = codes
		f.scale0 = f.zero0 + 4*f.nr
		f.dataStep = f.scale0 + 4*f.nr
		f.recordStep = f.dataStep
		f.bias0 = f.groups * f.dataStep
		f.panelBytes = f.bias0 + 4*f.nr
		if c.Kind == QAI4C32P {
			f.scaleFactor = sixteenth
		} else {
			f.flip, f.padding = 8, zeroBias
		}
	}
}

// panels is the number of panels.
func (f *frame) panels() int { return (f.n-1)/f.nr + 1 }

// panelRows is the number of rows of a panel that are rows of the matrix.
func (f *frame) panelRows(panel int) int { return min(f.nr, f.n-panel*f.nr) }

// stream is the number of bytes that a row contributes to the codes of a group.
func (f *frame) stream() int { return f.group * f.bits / 8 }

// data is the part of a panel that holds the codes of group g.
func (f *frame) data(panel []byte, g int) []byte {
	return panel[f.data0+g*f.dataStep:][:f.nr*f.stream()]
}

// scaleAt is where the scale of row i in group g lies in a panel, zeroAt its
// float32 zero point.
func (f *frame) scaleAt(i, g int) int { return f.scale0 + g*f.recordStep + i*f.scaleDtype.Bytes() }
func (f *frame) zeroAt(i, g int) int  { return f.zero0 + g*f.recordStep + 4*i }
