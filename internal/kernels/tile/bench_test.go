package tile

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// BenchmarkTile multiplies 128 rows of activations with a panel of 2048 columns: unpacking, group
// by group as records lie between groups, and products. Instructions per MAC of a matrix equal the
// instructions per MAC of a panel. group=0 is one scale a row, by Dots; other groups are by Group,
// without zero points.
func BenchmarkTile(b *testing.B) {
	for _, i := range asmtest.Implementations(Sets) {
		for bits := 1; bits <= 8; bits++ {
			for _, group := range []int{0, 32, 64, 128} {
				for _, nr := range []int{8, 4} {
					name := fmt.Sprintf("%s/bits=%d/group=%d/tile=%dx16x2", i.Feature, bits, group, nr)
					b.Run(name, func(b *testing.B) {
						p := newBenchPanel(i.Code.Set(bits), bits, group, nr)
						p.run(b, func(step Step) {
							if group == 0 {
								step.Dots(&p.args)
							} else {
								p.group.Args = p.args
								step.Group(&p.group)
							}
						})
					})
				}
			}
		}
	}
}

// BenchmarkEpilogue is BenchmarkTile for 4 bits by Dots and a epilogue.
func BenchmarkEpilogue(b *testing.B) {
	for _, i := range asmtest.Implementations(Sets) {
		for _, group := range []int{32, 128} {
			for _, epilogue := range []string{"fma", "qai4", "torchao"} {
				b.Run(fmt.Sprintf("%s/group=%d/epilogue=%s", i.Feature, group, epilogue), func(b *testing.B) {
					p := newBenchPanel(i.Code.Set(4), 4, group, 8)
					out := make([]float32, p.set.NR)
					p.run(b, func(step Step) {
						step.Dots(&p.args)
						for row := range step.MR {
							t := (*int32)(unsafe.Add(p.args.Out, row*p.args.OutStride))
							switch epilogue {
							case "fma":
								p.set.EpilogueFMA(&out[0], t, p.args.Groups, p.group.Scales, p.group.Scales, 4)
							case "qai4":
								p.set.EpilogueQAI4(&out[0], t, p.args.Groups, p.group.Scales, p.group.Scales, p.group.Scales, p.group.Scales, 4)
							case "torchao":
								p.set.EpilogueTorchAO(&out[0], t, p.args.Groups, p.group.Scales, 1)
							}
						}
					})
				})
			}
		}
	}
}

const benchRows, benchColumns = 128, 2048

// benchPanel is a panel to unpack and activations to multiply it with.
type benchPanel struct {
	set           Set
	args          Args
	group         GroupArgs
	lanes         Lanes
	packed, codes []byte
	acts          []int8
	out           []float32
	tile          int // rows of a tile of the file: each fills so many rows of the panel
	units         int // of a group of a tile
	unit          int // bytes
}

func newBenchPanel(s Set, bits, group, tile int) *benchPanel {
	if group == 0 {
		group = benchColumns
	}
	groups := benchColumns / group
	p := &benchPanel{
		set:    s,
		packed: make([]byte, bits*s.NR*benchColumns/8),
		codes:  make([]byte, s.NR*benchColumns),
		acts:   make([]int8, benchRows*benchColumns),
		out:    make([]float32, benchRows*groups*s.NR),
		tile:   tile,
		units:  group * tile / 128,
		unit:   16 * bits,
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range p.packed {
		p.packed[i] = byte(rng.Uint32())
	}
	for i := range p.acts {
		p.acts[i] = int8(rng.Uint32())
	}
	ones, steps := make([]float32, groups*s.NR), make([]int32, groups)
	for i := range ones {
		ones[i] = 1
	}
	for i := range steps {
		steps[i] = int32(group / 16)
	}
	p.args = Args{
		OutStride: 4 * groups * s.NR,
		Codes:     &p.codes[0],
		Sums:      &make([]int32, benchRows*groups)[0],
		Zeros:     &make([]int32, s.NR)[0],
		Steps:     &steps[0],
		Groups:    groups,
		NoZeros:   true,
	}
	p.group = GroupArgs{
		Scales: &ones[0], RowSums: &ones[0], Bias: &ones[0], NegZero: &make([]float32, benchRows)[0], Rec: &make([]float32, benchRows)[0],
	}

	// The lanes of tiles of 8 or 4 rows, 16x2, see someLanes.
	chunk := int64(8 * s.NR)
	p.lanes = Lanes{Step: [2]int64{chunk, 3 * chunk}}
	if tile == 4 {
		p.lanes.Step = [2]int64{4 * chunk, 4 * chunk}
	}
	for j := range int64(8) {
		p.lanes.Lane[j] = j%2*2*chunk + j/2*16
		if tile == 4 {
			p.lanes.Lane[j] = j%2*2*chunk + j/4*chunk + j/2%2*16
		}
	}
	half := uint8(1 << (bits - 1))
	if bits == 4 || bits == 8 { // stored as two's complement
		p.lanes.Flip = half
	}
	p.lanes.Sub = half - uint8(s.Offset)
	return p
}

// run has product called for all rows of activations, after the panel is unpacked.
func (p *benchPanel) run(b *testing.B, product func(step Step)) {
	nr, groups := p.set.NR, p.args.Groups
	b.ReportAllocs()
	for b.Loop() {
		src := 0
		for row := 0; row < nr; row += p.tile {
			for g := range groups {
				p.set.Unpack(&p.codes[8*row+g*len(p.codes)/groups], &p.packed[src], p.units, &p.lanes)
				src += p.unit * p.units
			}
		}
		for row := 0; row < benchRows; {
			step := p.set.Steps[0]
			for i := 1; step.MR > benchRows-row; i++ {
				step = p.set.Steps[i]
			}
			p.args.Acts, p.args.Out = &p.acts[row*benchColumns], unsafe.Pointer(&p.out[row*groups*nr])
			product(step)
			row += step.MR
		}
	}
	b.ReportMetric(float64(b.N)*benchRows*benchColumns*float64(nr)/1e9/b.Elapsed().Seconds(), "GMAC/s")
}
