package packing

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Layout is the arrangement of a payload's bytes. Files store the numbers.
type Layout uint8

// The layouts. Numbers 16..31 are KleidiAI's, 32..47 TorchAO's; the bytes equal the output of the
// library's own packer. KleidiAI's qsi4c32p with BF16 scales has no number: lowbit with
// FlagQSI4C32P is the same.
const (
	LayoutPlain  Layout = 1 // row-major elements of Dtype, as in the checkpoint
	LayoutLowbit Layout = 2 // 1 to 8 bits in interleaved panels, see Lowbit
	// a signed byte per code, row-major; scales and zero points are companions, see Codes
	LayoutCodes Layout = 3

	LayoutQSI4CXP     Layout = 17 // 4 bits, an F32 scale per row
	LayoutQSI4C32PF16 Layout = 18 // 4 bits, an F16 scale per group (Q4_0)
	LayoutQSI8CXP     Layout = 19 // 8 bits, an F32 scale per row
	LayoutQAI4C32P    Layout = 20 // 4 bits, an F32 scale and an F32 zero point per group
	LayoutQSU2CXP     Layout = 21 // 2 bits, an F32 scale per row

	LayoutTorchAOLinear    Layout = 33 // TorchAO's packed weights of type 1, "universal"
	LayoutTorchAOEmbedding Layout = 34 // type 2; scales and zero points are companions
	LayoutTorchAOKleidiAI  Layout = 35 // type 3: TorchAO's header, then qsi4c32p

	// LayoutBlocks is rows of ggml's blocks in memory of a GGUF file, see gqf.View. A .gqf file
	// cannot have LayoutBlocks.
	LayoutBlocks Layout = 64
)

// Layouts are the layouts that this version knows, in order of number.
var Layouts = []Layout{
	LayoutPlain, LayoutLowbit, LayoutCodes,
	LayoutQSI4CXP, LayoutQSI4C32PF16, LayoutQSI8CXP, LayoutQAI4C32P, LayoutQSU2CXP,
	LayoutTorchAOLinear, LayoutTorchAOEmbedding, LayoutTorchAOKleidiAI,
}

// String gives the layout's name, such as "lowbit" or "qsi4cxp", else "unknown(9)".
func (l Layout) String() string {
	switch l {
	case LayoutPlain:
		return "plain"
	case LayoutLowbit:
		return "lowbit"
	case LayoutCodes:
		return "codes"
	}
	if f := l.foreign(); f != nil {
		return f.name
	}
	return fmt.Sprintf("%s(%d)", unknownName, uint8(l))
}

func ParseLayout(s string) (Layout, bool) {
	for _, l := range Layouts {
		if l.String() == s {
			return l, true
		}
	}
	return 0, false
}

// Panels reports whether payloads consist of a Packer's panels, and not of rows.
func (l Layout) Panels() bool { return l != LayoutPlain && l != LayoutBlocks }

// IsKleidiAI reports whether l is KleidiAI's alone. Lowbit with FlagQSI4C32P is KleidiAI's too.
func (l Layout) IsKleidiAI() bool { return l >= LayoutQSI4CXP && l <= LayoutQSU2CXP }

// IsTorchAO reports whether l is a layout of TorchAO.
func (l Layout) IsTorchAO() bool { return l >= LayoutTorchAOLinear && l <= LayoutTorchAOKleidiAI }

// Tiles are the tiles that a payload of this layout may have; nil for layouts without tiles.
func (l Layout) Tiles() []Tile {
	if l == LayoutLowbit {
		return lowbitTiles
	}
	if f := l.foreign(); f != nil {
		return f.tiles
	}
	return nil
}

// ZeroKind is the type of a payload's zero points. Files store the numbers.
type ZeroKind uint8

const (
	ZeroNone ZeroKind = 0 // symmetric: z = 0, nothing stored
	ZeroInt8 ZeroKind = 1 // an int8 per group
	ZeroF32  ZeroKind = 2 // a float32 per group, added to q * scale (qai4c32p only)
	// an int8 per group, in units of 2^(bits-8) (lowbit, codes; up to 7 bits)
	ZeroFraction ZeroKind = 3
)

// IsInt8 reports whether an int8 is stored for each group; Header.ZeroUnit is its unit.
func (z ZeroKind) IsInt8() bool { return z == ZeroInt8 || z == ZeroFraction }

// String gives "none", "int8", "f32" or "fraction".
func (z ZeroKind) String() string { return nameOf(uint8(z), "none", "int8", "f32", "fraction") }

func nameOf(code uint8, names ...string) string {
	if int(code) >= len(names) {
		return fmt.Sprintf("%s(%d)", unknownName, code)
	}
	return names[code]
}

// FloatZero converts an integer or fractional zero point to a floating-point zero point (ZeroF32):
// q * scale + FloatZero(z, scale) stands for (q - z) * scale.
func FloatZero(z, scale float32) float32 { return float32((0 - z) * scale) }

// IntegerZero inverts FloatZero: z is the integer in -128..127 nearest to -zero/scale, or 0 if the
// quotient is NaN or the scale is 0. exact reports whether zero equals FloatZero(z, scale) bit for
// bit; otherwise no integer zero point gives the same weights.
func IntegerZero(zero, scale float32) (z int8, exact bool) {
	f := math.RoundToEven(float64(-zero) / float64(scale))
	if math.IsNaN(f) || scale == 0 {
		f = 0
	}
	z = int8(max(-128, min(f, 127)))
	return z, math.Float32bits(FloatZero(float32(z), scale)) == math.Float32bits(zero)
}

// Grid maps a group's codes q with scale s and zero point z to weights. Files store the numbers.
type Grid uint8

const (
	GridInteger  Grid = 0 // w = (q - z) * s
	GridHalfStep Grid = 1 // w = (q + 1/2) * s; 1 and 2 bits only, no zero points
)

// String gives "integer" or "half-step".
func (g Grid) String() string { return nameOf(uint8(g), "integer", "half-step") }

// Flags are facts about a payload that a reader may rely on. Files store the bits.
type Flags uint8

const (
	// FlagBias: the bias fields hold the layer's bias. Without this flag, all biases are 0.
	FlagBias Flags = 1
	// FlagQSI4C32P: the bytes are exactly KleidiAI's qsi4c32p with BF16 scales, so KleidiAI's
	// kernels can read them. The flag is set exactly when Header.IsQSI4C32P is true.
	FlagQSI4C32P Flags = 2
	// FlagPositiveScales: no scale is below 0.
	FlagPositiveScales Flags = 4

	flagsKnown = FlagBias | FlagQSI4C32P | FlagPositiveScales
)

// String lists the flags: "bias,qsi4c32p"; "" when there is none.
func (f Flags) String() string {
	var s []string
	for i, name := range []string{"bias", "qsi4c32p", "positive-scales"} {
		if f&(1<<i) != 0 {
			s = append(s, name)
		}
	}
	if rest := f &^ flagsKnown; rest != 0 {
		s = append(s, fmt.Sprintf("%s(%#x)", unknownName, uint8(rest)))
	}
	return strings.Join(s, ",")
}

// Tile is the shape of a panel: NR rows are interleaved, and each row in turn contributes L = KR/SR
// values of half a block of 32 values.
type Tile struct{ NR, KR, SR uint8 }

// DefaultTile suits KleidiAI's fastest kernels, both dot product and i8mm.
var DefaultTile = Tile{8, 16, 2}

// lowbitTiles are the tiles of LayoutLowbit.
var lowbitTiles = []Tile{{4, 8, 2}, {4, 16, 2}, {8, 8, 2}, {8, 16, 2}}

// String gives "8x16x2"; "" for the zero Tile.
func (t Tile) String() string {
	if t == (Tile{}) {
		return ""
	}
	return fmt.Sprintf("%dx%dx%d", t.NR, t.KR, t.SR)
}

// ParseTile reads a tile of any layout as String writes it.
func ParseTile(s string) (Tile, error) {
	var known []string
	for _, l := range Layouts {
		for _, t := range l.Tiles() {
			name := t.String()
			if name == s {
				return t, nil
			}
			if !slices.Contains(known, name) {
				known = append(known, name)
			}
		}
	}
	return Tile{}, fmt.Errorf("unknown tile %s: use one of %s", strconv.Quote(s), strings.Join(known, ", "))
}
