package packing

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
)

// matrix is a quantized matrix of Rows x Cols, row-major and unpacked.
type matrix struct {
	h      Header
	codes  []int8    // Rows x Cols
	scales []float32 // Rows x G
	zeros  []int8    // Rows x G, nil if the layout has none
	bias   []float32 // Rows, nil without FlagBias
}

func randomMatrix(rng *rand.Rand, h Header) *matrix {
	n, k, g := int(h.Rows), int(h.Cols), int(h.Groups())
	m := &matrix{h: h, codes: randomCodes(rng, int(h.Bits), n*k), scales: make([]float32, n*g)}
	for i := range m.scales {
		// The exponents are spread so far that the order of the sums' additions matters.
		m.scales[i] = h.ScaleDtype.Round(float32(math.Ldexp(1+rng.Float64(), rng.IntN(14)-12)))
		if h.Flags&FlagPositiveScales == 0 && rng.IntN(2) == 0 {
			m.scales[i] = -m.scales[i]
		}
	}
	if h.ZeroKind.IsInt8() {
		m.zeros = randomCodes(rng, 8, n*g)
	}
	if h.Flags&FlagBias != 0 {
		m.bias = make([]float32, n)
		for i := range m.bias {
			m.bias[i] = float32(rng.NormFloat64())
		}
	}
	return m
}

// pack packs m with PackPanel. It fills the entries that the layout ignores or repeats with
// rubbish.
func (m *matrix) pack(t testing.TB, l *Lowbit) []byte {
	t.Helper()
	size, err := m.h.DataSize()
	if err != nil {
		t.Fatal(err)
	}
	n, k, g, nr := int(m.h.Rows), int(m.h.Cols), int(m.h.Groups()), int(m.h.Tile.NR)
	data := slices.Repeat([]byte{0xaa}, int(size))
	if want := l.Panels() * l.PanelBytes(); want != len(data) {
		t.Fatalf("%d bytes of data, %d of panels", len(data), want)
	}
	p := l.NewPanel()
	for i := range l.Panels() {
		p.Rows = l.PanelRows(i)
		for r := range nr {
			row := i*nr + r
			if row >= n {
				fill(p.Codes[r*l.PackedCols():][:k], 77)
				fill(p.Scales[r*g:][:g], float32(math.NaN()))
				continue
			}
			copy(p.Codes[r*l.PackedCols():], m.codes[row*k:][:k])
			copy(p.Scales[r*g:], m.scales[row*g:][:g])
			if m.zeros != nil {
				copy(p.Zeros[r*g:], m.zeros[row*g:][:g])
			}
			if m.bias != nil {
				p.Bias[r] = m.bias[row]
			}
		}
		l.PackPanel(data[i*l.PanelBytes():][:l.PanelBytes()], p)
	}
	return data
}

func fill[T any](s []T, v T) {
	for i := range s {
		s[i] = v
	}
}

// reference packs m as the design's text says, lane by lane and bit by bit with TorchAO's bitmap
// for a unit of 128. It shares no code with PackPanel.
func (m *matrix) reference(bitmap [][]int) []byte {
	nr, kr, b := int(m.h.Tile.NR), int(m.h.Tile.KR), int(m.h.Bits)
	n, k, group := int(m.h.Rows), int(m.h.Cols), int(m.h.Group)
	if group == 0 {
		group = k
	}
	L, groups := kr/2, (k+group-1)/group
	var out []byte
	for n0 := 0; n0 < n; n0 += nr {
		row := func(r int) int { return min(n0+r, n-1) }
		for block := range (k + 31) / 32 {
			unit, lane := make([]byte, 16*b), 0
			for s := range 16 / L {
				for p := range nr * L / 16 {
					for h := range 2 {
						for i := range 16 {
							r, col := row(16/L*p+i/L), 32*block+16*h+L*s+i%L
							q := 0
							if col < k {
								q = int(m.codes[r*k+col])
							}
							if b != 4 && b != 8 {
								q += 1 << (b - 1)
							}
							for j := range b {
								at := bitmap[16*lane+i][j]
								unit[at/8] |= byte(q >> j & 1 << (at % 8))
							}
						}
						if lane++; lane == 8 {
							out, unit, lane = append(out, unit...), make([]byte, 16*b), 0
						}
					}
				}
			}
			for g := range groups {
				if last := min((g+1)*group, k) - 1; last/32 != block {
					continue
				}
				for r := range nr {
					out = appendScale(out, m.h.ScaleDtype, m.scales[row(r)*groups+g])
				}
				for r := 0; r < nr && m.zeros != nil; r++ {
					out = append(out, byte(m.zeros[row(r)*groups+g]))
				}
			}
		}
		for r := range nr {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(m.sum(row(r), L, group)))
		}
		for r := range nr {
			bias := float32(0)
			if m.bias != nil {
				bias = m.bias[row(r)]
			}
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(bias))
		}
	}
	return out
}

func appendScale(b []byte, d ScaleDtype, s float32) []byte {
	switch d {
	case ScaleBF16:
		return binary.LittleEndian.AppendUint16(b, floats.BF16FromF32(s))
	case ScaleF16:
		return binary.LittleEndian.AppendUint16(b, floats.F16FromF32(s))
	}
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(s))
}

// sum is the design's sum of a row: group by group, block by block, segment by segment.
func (m *matrix) sum(row, L, group int) float32 {
	k, sum := int(m.h.Cols), float32(0)
	groups := (k + group - 1) / group
	for g := range groups {
		// Other blocks have no columns of the group.
		for block := g * group / 32; block <= (min((g+1)*group, k)-1)/32; block++ {
			for s := range 16 / L {
				part, any := 0.0, false
				for i := range 2 * L {
					col := 32*block + i/L*16 + L*s + i%L
					if col/group != g || col >= k {
						continue
					}
					any = true
					part += float64(m.codes[row*k+col]) - m.zero(row*groups+g)
				}
				if any {
					sum += float32(float32(part) * m.scales[row*groups+g])
				}
			}
		}
	}
	return sum
}

func (m *matrix) zero(i int) float64 {
	switch {
	case m.h.Grid == GridHalfStep:
		return -0.5
	case m.zeros != nil:
		z := float64(m.zeros[i])
		if m.h.ZeroKind == ZeroFraction {
			z = math.Ldexp(z, int(m.h.Bits)-8)
		}
		return z
	}
	return 0
}

// weight is the weight at row, col: exact in float64, then rounded.
func (m *matrix) weight(row, col int) float32 {
	k, group := int(m.h.Cols), int(m.h.Group)
	if group == 0 {
		group = k
	}
	i := row*((k+group-1)/group) + col/group
	return float32((float64(m.codes[row*k+col]) - m.zero(i)) * float64(m.scales[i]))
}

func randomCodes(rng *rand.Rand, bits, n int) []int8 {
	q := make([]int8, n)
	for i := range q {
		q[i] = int8(rng.IntN(1<<bits) - 1<<(bits-1))
	}
	return q
}
