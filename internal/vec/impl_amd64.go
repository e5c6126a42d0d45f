//go:build !purego

package vec

import "github.com/lowbit-go/gq/internal/cpu"

func init() {
	accelerated.Register(cpu.AVX2, assembly)
	accelerated.Register(cpu.AVX512, wide)
}

func decodeNibbles(dst []float32, src []byte) {
	if !assembled() || len(dst) == 0 {
		decodeNibblesGeneric(dst, src)
		return
	}
	decodeNibblesBlock(&dst[0], &src[0], len(dst)/codeBlock)
}

func decodeBytes(dst []float32, src []byte) {
	if !assembled() || len(dst) == 0 {
		decodeBytesGeneric(dst, src)
		return
	}
	decodeBytesBlock(&dst[0], &src[0], len(dst)/codeBlock)
}

func fitSearch(f *Fit) {
	switch accelerated.Chosen() {
	case wide:
		fitSearchWide(&f.Scale[0], &f.data[0], &f.starts[0][0], &f.limits[0], f.width)
	case assembly:
		fitSearchBlock(&f.Scale[0], &f.data[0], &f.starts[0][0], &f.limits[0], f.width)
	default:
		fitSearchGeneric(f)
	}
}

func fitChoose(f *Fit) {
	switch accelerated.Chosen() {
	case wide:
		fitChooseWide(&f.Choice[0], &f.Stored[0][0], &f.data[0], &f.limits[0], f.width, f.power)
	case assembly:
		fitChooseBlock(&f.Choice[0], &f.Stored[0][0], &f.data[0], &f.limits[0], f.width, f.power)
	default:
		fitChooseGeneric(f)
	}
}

func searchGrids(f *Fit, s *GridSearch, list []GridStart) {
	switch accelerated.Chosen() {
	case wide:
		searchGridsWide(&s.Inverse[0], &list[0].Factor, &f.data[0], f.width, len(list)/4, 16-f.bits)
	case assembly:
		searchGridsBlock(&s.Inverse[0], &list[0].Factor, &f.data[0], f.width, len(list)/4, 16-f.bits)
	default:
		searchGridsGeneric(f, s, list)
	}
}

func chooseGrids(f *Fit, c *GridChoice, count int) {
	switch accelerated.Chosen() {
	case wide:
		chooseGridsWide(&c.Choice[0], &c.Values[0], &f.data[0], f.width, count, 16-f.bits, f.power)
	case assembly:
		chooseGridsBlock(&c.Choice[0], &c.Values[0], &f.data[0], f.width, count, 16-f.bits, f.power)
	default:
		chooseGridsGeneric(f, c, count)
	}
}

func nearScales(stored, scaled [][FitLanes]float32, n *Near, distances []uint32, least, most uint32) {
	if !assembled() {
		nearScalesGeneric(stored, scaled, n, distances, least, most)
		return
	}
	nearScalesBlock(&stored[0][0], &scaled[0][0], &n.From[0], &distances[0], len(distances), least, most)
}
