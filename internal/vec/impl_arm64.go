//go:build !purego

package vec

import "github.com/lowbit-go/gq/internal/cpu"

func init() { accelerated.Register(cpu.NEON, assembly) }

func fitSearch(f *Fit) {
	if !assembled() {
		fitSearchGeneric(f)
		return
	}
	fitSearchBlock(&f.Scale[0], &f.data[0], &f.starts[0][0], &f.limits[0], f.width)
}

func fitChoose(f *Fit) {
	if !assembled() {
		fitChooseGeneric(f)
		return
	}
	fitChooseBlock(&f.Choice[0], &f.Stored[0][0], &f.data[0], &f.limits[0], f.width, f.power)
}

func searchGrids(f *Fit, s *GridSearch, list []GridStart) {
	if !assembled() {
		searchGridsGeneric(f, s, list)
		return
	}
	searchGridsBlock(&s.Inverse[0], &list[0].Factor, &f.data[0], f.width, len(list)/4, 16-f.bits)
}

func chooseGrids(f *Fit, c *GridChoice, count int) {
	if !assembled() {
		chooseGridsGeneric(f, c, count)
		return
	}
	chooseGridsBlock(&c.Choice[0], &c.Values[0], &f.data[0], f.width, count, 16-f.bits, f.power)
}

func nearScales(stored, scaled [][FitLanes]float32, n *Near, distances []uint32, least, most uint32) {
	nearScalesGeneric(stored, scaled, n, distances, least, most)
}
