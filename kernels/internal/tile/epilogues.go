package tile

import (
	"encoding/binary"
	"math"
	"slices"
	"unsafe"

	"github.com/lowbit-go/gq/internal/floats"
)

// fill sets the functions that have portable code for every Set.
func (s *Set) fill() {
	nr := s.NR
	if s.Zip == nil {
		s.Zip = zip
	}
	if s.EpilogueFMA == nil {
		s.EpilogueFMA = func(out *float32, t *int32, groups int, scales, as *float32, step int) {
			epilogueFMA(unsafe.Slice(out, nr), unsafe.Slice(t, nr*groups), unsafe.Slice(scales, nr*groups), as, step)
		}
	}
	if s.EpilogueQAI4 == nil {
		s.EpilogueQAI4 = func(out *float32, t *int32, groups int, scales, zeros, as, asum *float32, step int) {
			epilogueQAI4(unsafe.Slice(out, nr), unsafe.Slice(t, nr*groups), unsafe.Slice(scales, nr*groups), unsafe.Slice(zeros, nr*groups),
				as, asum, step)
		}
	}
	if s.EpilogueTorchAO == nil {
		s.EpilogueTorchAO = func(out *float32, t *int32, groups int, scales *float32, as float32) {
			epilogueTorchAO(unsafe.Slice(out, nr), unsafe.Slice(t, nr*groups), unsafe.Slice(scales, nr*groups), as)
		}
	}
	if s.EpilogueRow == nil {
		s.EpilogueRow = func(out *float32, t, sums *int32, factor, negZero int32, scales, bias *float32, rec float32) {
			epilogueRow(unsafe.Slice(out, nr), unsafe.Slice(t, nr), unsafe.Slice(sums, nr), factor, negZero, unsafe.Slice(scales, nr), unsafe.Slice(bias, nr), rec)
		}
	}
	if s.AddSums == nil {
		s.AddSums = func(t, sums *int32, groups int, factor int32) {
			addSums(unsafe.Slice(t, nr*groups), unsafe.Slice(sums, nr*groups), factor)
		}
	}
	s.Steps = slices.Clone(s.Steps)
	for i := range s.Steps {
		s.compose(&s.Steps[i])
	}
}

// epilogueFMA is Set.EpilogueFMA for panels of len(out) rows.
func epilogueFMA(out []float32, t []int32, scales []float32, as *float32, step int) {
	clear(out)
	for g := 0; len(t) > 0; g++ {
		a := at(as, g*step/4)
		for r := range out {
			out[r] = floats.FMA32(float32(t[r]), float32(a*scales[r]), out[r])
		}
		t, scales = t[len(out):], scales[len(out):]
	}
}

// epilogueQAI4 is Set.EpilogueQAI4.
func epilogueQAI4(out []float32, t []int32, scales, zeros []float32, as, asum *float32, step int) {
	clear(out)
	for g := 0; len(t) > 0; g++ {
		a, sum := at(as, g*step/4), at(asum, g*step/4)
		for r := range out {
			f := floats.FMA32(zeros[r], sum, out[r])
			out[r] = floats.FMA32(float32(16*t[r]), float32(scales[r]*a), f)
		}
		t, scales, zeros = t[len(out):], scales[len(out):], zeros[len(out):]
	}
}

// epilogueTorchAO is Set.EpilogueTorchAO.
func epilogueTorchAO(out []float32, t []int32, scales []float32, as float32) {
	clear(out)
	for len(t) > 0 {
		for r := range out {
			out[r] += float32(float32(scales[r]*as) * float32(t[r]))
		}
		t, scales = t[len(out):], scales[len(out):]
	}
}

// epilogueRow is Set.EpilogueRow.
func epilogueRow(out []float32, t, sums []int32, factor, negZero int32, scales, bias []float32, rec float32) {
	t, sums, scales, bias = t[:len(out)], sums[:len(out)], scales[:len(out)], bias[:len(out)]
	for r := range out {
		a := factor*t[r] + sums[r]*negZero
		x := float32(float32(a)*float32(scales[r]*rec)) + bias[r]
		if x != x {
			x = math.Float32frombits(canonicalNaN)
		}
		out[r] = x
	}
}

// addSums is Set.AddSums.
func addSums(t, sums []int32, factor int32) {
	sums = sums[:len(t)]
	for i := range t {
		t[i] += factor * sums[i]
	}
}

// zip is Set.Zip.
func zip(dst *byte, n int) {
	le := binary.LittleEndian
	for b := unsafe.Slice(dst, 32*n); len(b) > 0; b = b[32:] {
		x := (*[32]byte)(b)
		a0, a1, b0, b1 := le.Uint64(x[:]), le.Uint64(x[8:]), le.Uint64(x[16:]), le.Uint64(x[24:])
		const low = 0xffffffff
		le.PutUint64(x[:], a0&low|b0<<32)
		le.PutUint64(x[8:], a0>>32|b0&^low)
		le.PutUint64(x[16:], a1&low|b1<<32)
		le.PutUint64(x[24:], a1>>32|b1&^low)
	}
}
