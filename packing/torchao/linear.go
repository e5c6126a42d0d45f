package torchao

import (
	"sync"

	"github.com/lowbit-go/gq/packing"
)

// nr is the number of rows of a panel of types 1 and 3.
const nr = 8

// chunkCols is the number of columns of each of the panel's 8 rows in a unit of 128 codes. Lane
// 4h+p of the unit is half h, 8 columns, of rows 2p and 2p+1.
const chunkCols = 16

// Linear packs and reads the panels of one packing.LayoutTorchAOLinear payload, TorchAO's type 1.
// With G groups of g columns, a panel is
//
//	G times: 8 x g codes | 8 float32 scales | 8 int32 sums of codes [| 8 int32 zero points]
//	[8 float32 biases]
//
// Rows past the last one have codes, scales, sums, zero points and biases of 0. A Linear is
// immutable; many goroutines may use it at once. It implements packing.Packer, which states when
// methods panic.
type Linear struct {
	packing.Geometry
	planes     *bitPlanes
	prefix     []byte
	bits       int
	k          int // columns
	group      int // columns of a group
	groups     int
	zeros      bool
	bias       bool
	codeBytes  int            // codes of a group in a panel; the group's record follows
	groupBytes int            // codes and record of a group
	blank      func() packRow // a row past the last
}

// NewLinear prepares packing and reading of a payload with header h. It fails like
// packing.NewGeometry.
func NewLinear(h packing.Header) (*Linear, error) {
	g, err := packing.NewGeometry(h, packing.LayoutTorchAOLinear)
	if err != nil {
		return nil, err
	}
	l := &Linear{
		Geometry: g, planes: planesOf(int(h.Bits)), prefix: tiledHeader(typeLinear, &h), bits: int(h.Bits), k: int(h.Cols),
		groups: int(h.Groups()), zeros: h.ZeroKind == packing.ZeroInt8, bias: h.Flags&packing.FlagBias != 0,
	}
	l.blank = sync.OnceValue(func() packRow {
		return packRow{codes: make([]byte, l.k), scales: make([]float32, l.groups), zeros: make([]int8, l.groups)}
	})
	l.group = l.k / l.groups
	l.codeBytes = l.group * l.bits // 8 rows; 8 codes take as many bytes as a code has bits
	l.groupBytes = l.codeBytes + 2*4*nr
	if l.zeros {
		l.groupBytes += 4 * nr
	}
	return l, nil
}

// Prefix is TorchAO's header.
func (l *Linear) Prefix() []byte { return l.prefix }
