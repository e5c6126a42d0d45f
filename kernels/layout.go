package kernels

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/kernels/ggml"
	"github.com/lowbit-go/gq/internal/kernels/tile"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// maxGroup is the longest group, in columns. A group's sum of products of an int8 and a difference
// of two int8 is below 2^31. With fractional zero points the difference is code << shift - zero
// point, in the range of 8-bit codes.
const maxGroup = 1 << 16

// quantization is how a layout quantizes rows of activations to int8.
type quantization uint8

const (
	asymmetric quantization = iota // act.Asymmetric
	blocksF16                      // act.BlocksF16
	blocksF32                      // act.BlocksF32
	blocksSums                     // act.BlocksSums
)

// epilogue is how a layout turns dot products into outputs.
type epilogue uint8

const (
	epilogueGroup   epilogue = iota // tile.Step.Group
	epilogueRow                     // int32 arithmetic, then a scale per row
	epilogueF16                     // tile.Set.EpilogueFMA
	epilogueQAI4                    // tile.Set.EpilogueQAI4
	epilogueTorchAO                 // tile.Set.EpilogueTorchAO
	epilogueMin                     // tile.Step.BlocksMin
	epilogueSubs                    // tile.Step.Subs
)

// panelLayout describes how the panels of a payload lie in memory and how products are computed:
// everything that the driver of the tile kernels depends on.
type panelLayout struct {
	header     packing.Header // header of the panels: lowbit for torchao-kleidiai
	bits       int
	rows, cols int
	nr         int // rows of a packed panel
	prefix     int // bytes before the first panel
	panels     int
	panelBytes int
	stored     int // columns that a panel holds: cols, rounded up
	group      int // columns of a group, at most cols
	groups     int
	block      int  // columns of activations with a common scale
	blocks     int  // of a row of activations
	half       bool // the half-step grid
	shift      int  // bits by which dot products are moved into the unit of fractional zero points

	quantize quantization
	epilogue epilogue

	// Of a matrix of ggml's blocks, that has no field below.
	ggml      *ggml.Format // nil: packed panels
	rowBytes  int
	unpackRow ggml.Unpack
	words     int // of activations.words for a row

	// Codes: the lanes of all units of 128 codes, in contiguous runs.
	runs      []run
	place     func(lane int) (row, col int) // of a lane's first code, from the run's first column on
	width     int                           // columns of a row in a lane: 8, or 4 of each of 4 rows
	flip, sub uint8                         // a stored field u is the code int8((u ^ flip) - sub)

	// Offsets in a panel.
	scaleAt    []int              // [groups] of nr scales
	scaleDtype packing.ScaleDtype //
	zeroAt     int                // relative to the scales of their group: nr int8, float32 or int32
	// nr row sums (epilogueGroup: float32, epilogueRow: int32), or nr int32 relative to the scales
	// (epilogueTorchAO)
	sumAt      int
	biasAt     int   // nr float32; -1 if not stored
	codeFactor int32 // epilogueRow: factor of the codes in row sums and scales
}

// run is a sequence of contiguous blocks of codes.
type run struct {
	at    int // offset in the panel
	units int // units of 128 codes
	col   int // first column
}

// UnsupportedError reports a payload that no kernel reads.
type UnsupportedError struct {
	Header packing.Header
	Msg    string
}

func (e *UnsupportedError) Error() string {
	h := e.Header
	if h.Layout == packing.LayoutPlain {
		return fmt.Sprintf("no kernel reads %s %s, %d x %d: %s", h.Layout, h.Dtype, h.Rows, h.Cols, e.Msg)
	}
	name := h.Layout.String()
	if h.Tile != (packing.Tile{}) {
		name += " " + h.Tile.String()
	}
	return fmt.Sprintf("no kernel reads %s, %d bits, group %d, %d x %d: %s", name, h.Bits, h.Group, h.Rows, h.Cols, e.Msg)
}

// newPanelLayout fails with *UnsupportedError without a kernel, and otherwise as layouts.New does.
func newPanelLayout(h packing.Header) (*panelLayout, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	reads, ok := supported[h.Layout]
	if !ok {
		msg := "this layout has no matrix product"
		if h.Layout == packing.LayoutPlain {
			msg = "want a quantized layout; NewFloat multiplies with plain F32, F16 and BF16"
		}
		return nil, &UnsupportedError{h, msg}
	}
	p, err := layouts.New(h)
	if err != nil {
		return nil, err
	}
	f := &panelLayout{
		header: h, bits: int(h.Bits), rows: int(h.Rows), cols: int(h.Cols), nr: int(h.Tile.NR), prefix: len(p.Prefix()),
		panels: p.Panels(), panelBytes: p.PanelBytes(), stored: p.PackedCols(), groups: p.Groups(), group: int(h.Cols),
		half: h.Grid == packing.GridHalfStep, shift: h.ZeroShift(), scaleDtype: h.ScaleDtype, biasAt: -1, codeFactor: 1,
	}
	if f.groups > 1 {
		f.group = int(h.Group)
	}
	f.block, f.blocks = f.group, f.groups
	if f.group > maxGroup {
		return nil, &UnsupportedError{h, fmt.Sprintf("a group of %d columns, want at most %d, so that sums of products are exact", f.group, maxGroup)}
	}
	if err := reads.lay(f, p); err != nil {
		return nil, err
	}
	return f, nil
}

// layoutSupport is how the tile kernels read a layout, and which payloads the kernels read.
type layoutSupport struct {
	lay func(f *panelLayout, p packing.Packer) error // sets the fields that depend on the layout
	// layout of the kernels that multiply it; 0: its own
	as     packing.Layout
	widths []int // bits of a code
	zeros  []packing.ZeroKind
	scales []packing.ScaleDtype
}

var (
	allWidths   = []int{1, 2, 3, 4, 5, 6, 7, 8}
	noZeros     = []packing.ZeroKind{packing.ZeroNone}
	integerZero = []packing.ZeroKind{packing.ZeroNone, packing.ZeroInt8}
	lowbitZero  = []packing.ZeroKind{packing.ZeroNone, packing.ZeroInt8, packing.ZeroFraction}
	floatZero   = []packing.ZeroKind{packing.ZeroF32}
	allScales   = []packing.ScaleDtype{packing.ScaleBF16, packing.ScaleF16, packing.ScaleF32}
	scalesF32   = []packing.ScaleDtype{packing.ScaleF32}
	scalesF16   = []packing.ScaleDtype{packing.ScaleF16}
)

// supported lists the layouts that the tile kernels multiply with. Others have no kernels.
var supported = map[packing.Layout]layoutSupport{
	packing.LayoutLowbit:          {lay: (*panelLayout).lowbit, widths: allWidths, zeros: lowbitZero, scales: allScales},
	packing.LayoutTorchAOKleidiAI: {lay: (*panelLayout).torchAOKleidiAI, as: packing.LayoutLowbit},
	packing.LayoutQSI4CXP:         {lay: (*panelLayout).qsi4cxp, widths: []int{4}, zeros: noZeros, scales: scalesF32},
	packing.LayoutQSI8CXP:         {lay: (*panelLayout).qsi8cxp, widths: []int{8}, zeros: noZeros, scales: scalesF32},
	packing.LayoutQSU2CXP:         {lay: (*panelLayout).qsu2cxp, widths: []int{2}, zeros: noZeros, scales: scalesF32},
	packing.LayoutQSI4C32PF16:     {lay: (*panelLayout).qsi4c32pF16, widths: []int{4}, zeros: noZeros, scales: scalesF16},
	packing.LayoutQAI4C32P:        {lay: (*panelLayout).qai4c32p, widths: []int{4}, zeros: floatZero, scales: scalesF32},
	packing.LayoutTorchAOLinear:   {lay: (*panelLayout).torchAOLinear, widths: allWidths, zeros: integerZero, scales: scalesF32},
}

// halves places lanes of two halves h, distance columns apart: lanes run over h, then pairs or
// fours of rows, then along the columns. lowbit and KleidiAI's 4-bit layouts are arranged so.
func (f *panelLayout) halves(distance int) {
	f.width = int(f.header.Tile.KR) / 2
	nr, width := f.nr, f.width
	pairs := nr * width / 16
	f.place = func(lane int) (row, col int) {
		s := lane / (2 * pairs) * width
		return lane / 2 % pairs * (16 / width), s/distance*2*distance + s%distance + lane%2*distance
	}
}

func (f *panelLayout) lowbit(p packing.Packer) error {
	l := p.(*packing.Lowbit)
	f.halves(16)
	half := uint8(1) << (f.bits - 1)
	switch f.bits {
	case 8: // stored unchanged
	case 4: // in two's complement
		f.flip, f.sub = half, half
	default:
		f.sub = half
	}
	for g := range f.groups {
		f.scaleAt = append(f.scaleAt, l.RecordOffset(g))
		// The blocks up to the end of g are contiguous, without a record in between.
		from, to := 0, (min((g+1)*f.group, f.cols)+31)/32
		if n := len(f.runs); n > 0 {
			last := f.runs[n-1]
			from = (last.col + last.units*128/f.nr) / 32
		}
		if from < to {
			f.runs = append(f.runs, run{at: l.BlockOffset(from), units: (to - from) * f.nr / 4, col: 32 * from})
		}
	}
	f.zeroAt = f.nr * f.scaleDtype.Bytes()
	f.sumAt = l.TailOffset()
	f.biasAt = f.sumAt + 4*f.nr
	return nil
}

// torchAOKleidiAI is TorchAO's header followed by qsi4c32p.
func (f *panelLayout) torchAOKleidiAI(packing.Packer) error {
	h := f.header
	h.Layout = packing.LayoutLowbit
	l, err := packing.NewLowbit(h.Canonical())
	if err != nil {
		return err
	}
	f.header = l.Header()
	return f.lowbit(l)
}

// perRow lays out a panel of codes, nr int32 sums, nr float32 scales and nr float32 biases.
func (f *panelLayout) perRow() {
	f.epilogue = epilogueRow
	f.runs = []run{{units: f.nr * f.stored / 128}}
	f.sumAt = f.nr * f.stored * f.bits / 8
	f.scaleAt = []int{f.sumAt + 4*f.nr}
	f.biasAt = f.sumAt + 8*f.nr
}

func (f *panelLayout) qsi4cxp(packing.Packer) error {
	f.halves(16)
	f.flip, f.sub, f.codeFactor = 8, 8, 16
	f.perRow()
	return nil
}

// qsi8cxp has runs of kr columns of a row: a lane is 2 or 4 runs.
func (f *panelLayout) qsi8cxp(packing.Packer) error {
	f.width = int(f.header.Tile.KR)
	nr, width := f.nr, f.width
	f.place = func(lane int) (row, col int) {
		lanes := nr * width / 16 // lanes of width columns of all rows
		return lane % lanes * (16 / width), lane / lanes * width
	}
	f.perRow()
	return nil
}

// qsu2cxp holds 16 columns of 4 rows in each 16 bytes, columns 4i to 4i+3 in bits 2i. TorchAO's
// planes of 2 bits, beginning with the highest bits, unpack qsu2cxp.
func (f *panelLayout) qsu2cxp(packing.Packer) error {
	f.width, f.sub = 4, 2
	f.place = func(lane int) (row, col int) { return 0, lane/4*16 + (3-lane%4)*4 }
	f.perRow()
	return nil
}

// qsi4c32pF16 has nr scales and the codes for each group, the codes' halves half a group apart.
func (f *panelLayout) qsi4c32pF16(packing.Packer) error {
	f.quantize, f.epilogue = blocksF16, epilogueF16
	f.halves(f.group / 2)
	f.flip, f.sub = 8, 8
	step := f.nr * (2 + f.group/2)
	for g := range f.groups {
		f.scaleAt = append(f.scaleAt, g*step)
		f.runs = append(f.runs, run{at: g*step + 2*f.nr, units: f.nr * f.group / 128, col: g * f.group})
	}
	return nil
}

// qai4c32p has codes, nr float32 zero points and nr scales for each group, then nr biases.
func (f *panelLayout) qai4c32p(packing.Packer) error {
	f.quantize, f.epilogue = blocksF32, epilogueQAI4
	f.halves(16)
	f.flip, f.sub = 8, 8
	codes := f.nr * f.group / 2
	step := codes + 8*f.nr
	for g := range f.groups {
		f.runs = append(f.runs, run{at: g * step, units: f.nr * f.group / 128, col: g * f.group})
		f.scaleAt = append(f.scaleAt, g*step+codes+4*f.nr)
	}
	f.zeroAt = -4 * f.nr
	f.biasAt = f.groups * step
	return nil
}

// torchAOLinear has the codes in units of 16 columns of 8 rows, 8 scales, 8 int32 sums and, if
// asymmetric, 8 int32 zero points for each group; 8 biases, if any, follow the last group.
func (f *panelLayout) torchAOLinear(packing.Packer) error {
	f.epilogue = epilogueTorchAO
	f.width = 8
	f.place = func(lane int) (row, col int) { return lane % 4 * 2, lane/8*16 + lane/4%2*8 }
	if f.bits < 8 {
		f.sub = 1 << (f.bits - 1)
	}
	codes := f.group * f.bits
	step := codes + 2*4*f.nr
	if f.header.ZeroKind == packing.ZeroInt8 {
		step += 4 * f.nr
	}
	for g := range f.groups {
		f.runs = append(f.runs, run{at: g * step, units: f.group / 16, col: g * f.group})
		f.scaleAt = append(f.scaleAt, g*step+codes)
	}
	f.sumAt, f.zeroAt = 4*f.nr, 8*f.nr
	if f.header.Flags&packing.FlagBias != 0 {
		f.biasAt = f.groups * step
	}
	return nil
}

func (f *panelLayout) steps() []int32 {
	steps := make([]int32, f.groups)
	for g := range steps {
		steps[g] = int32((min((g+1)*f.group, f.cols) - g*f.group + 15) / 16)
	}
	return steps
}

// unpacking is a call of tile.Set.Unpack. Runs are joined if equally spaced in the packed panel and
// contiguous in the unpacked panel.
type unpacking struct {
	at, to int // offsets in the packed panel and in the codes of the unpacked panel
	units  int
	lanes  tile.Lanes
}

// unpackings are the calls that unpack a packed panel into a panel of nr rows, as codes q + offset.
func (f *panelLayout) unpackings(nr, offset int) []unpacking {
	lanes := f.lanes(nr, offset)
	var calls []unpacking
	for i := 0; i < len(f.runs); {
		first := f.runs[i]
		c := unpacking{at: first.at, to: first.col * nr, units: first.units, lanes: lanes}
		// moved is how far a run's units move dst. A further run must begin with an even unit to join.
		moved := int(lanes.Step[0]+lanes.Step[1])*(first.units/2) + int(lanes.Step[0])*(first.units%2)
		even := first.units%2 == 0 || lanes.Step[0] == lanes.Step[1]
		size := first.units * 16 * f.bits
		for i++; i < len(f.runs) && even; i++ {
			last, next := f.runs[i-1], f.runs[i]
			gap := int64(next.at - last.at - size)
			if next.units != first.units || (next.col-last.col)*nr != moved || c.units > first.units && gap != c.lanes.Gap {
				break
			}
			c.units, c.lanes.Run, c.lanes.Gap = c.units+next.units, int64(first.units), gap
		}
		calls = append(calls, c)
	}
	return calls
}

// lanes states where tile.Set.Unpack puts a run's lanes in a panel of nr rows, for codes q +
// offset.
func (f *panelLayout) lanes(nr, offset int) tile.Lanes {
	at := func(lane int) int64 {
		row, col := f.place(lane)
		to := col/8*8*nr + 8*row
		if f.width == 4 {
			to += col % 8 / 4 * 16 // until tile.Set.Zip
		}
		return int64(to)
	}
	l := tile.Lanes{Flip: f.flip, Sub: f.sub - uint8(offset), Step: [2]int64{at(8) - at(0), at(16) - at(8)}}
	for j := range l.Lane {
		l.Lane[j] = at(j)
	}
	return l
}
