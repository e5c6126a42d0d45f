package vec

import (
	"fmt"
	"math"
)

// Near has a scale of each of FitLanes groups, next to which NearScales looks.
type Near struct {
	From [FitLanes]uint32 // bits of the scales
	// Present are the groups' present scales, and Unit the factors of scaled.
	Present, Unit [FitLanes]float32
}

// NearScales sets stored to scales that a group may have, and scaled to their products with Unit: at index 0 the
// present ones, and at index 1+i those whose bits are From + distances[i]. Where the bits of a magnitude are not
// within least .. most, the present scale stands instead.
func NearScales(stored, scaled [][FitLanes]float32, n *Near, distances []uint32, least, most uint32) {
	if len(distances) == 0 || len(stored) != 1+len(distances) || len(scaled) != len(stored) || most > math.MaxInt32 || least > most {
		panic(fmt.Sprintf("vec: %d scales for %d distances, within %#x .. %#x", len(stored), len(distances), least, most))
	}
	nearScales(stored, scaled, n, distances, least, most)
}

func nearScalesGeneric(stored, scaled [][FitLanes]float32, n *Near, distances []uint32, least, most uint32) {
	stored[0] = n.Present
	for i, v := range n.Present {
		scaled[0][i] = float32(v * n.Unit[i])
	}
	for c, d := range distances {
		stored, scaled := &stored[1+c], &scaled[1+c]
		for i, from := range n.From {
			bits := from + d
			if bits&^(1<<31)-least > most-least {
				bits = math.Float32bits(n.Present[i])
			}
			v := math.Float32frombits(bits)
			stored[i], scaled[i] = v, float32(v*n.Unit[i])
		}
	}
}
