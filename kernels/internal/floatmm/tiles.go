package floatmm

import "fmt"

// nextTile is the index in s.Tiles of the next tile if m rows are left. It is the largest tile that
// fits, unless two tiles of the second size are better than the largest one and a small one: the
// few chains of sums of a small tile wait for each other.
func (s *Set) nextTile(m int) int {
	i := 0
	for s.Tiles[i] > m {
		i++
	}
	if i == 0 && len(s.Tiles) > 1 {
		if rest, second := m-s.Tiles[0], s.Tiles[1]; 0 < rest && rest < second && m >= 2*second {
			return 1
		}
	}
	return i
}

// XLen is the number of float32 that m packed rows of cols columns take.
func (s *Set) XLen(m, cols int) int { return m * filled(cols) }

// PackX packs rows from to to-1 of the m rows of x, which is row-major, into dst, of XLen(m, cols)
// elements.
func (s *Set) PackX(dst, x []float32, m, cols, from, to int) {
	if len(x) != m*cols {
		panic(fmt.Sprintf("floatmm: %d values, want %d x %d activations", len(x), m, cols))
	}
	s.PackColumns(dst, x, cols, m, cols, from, to)
}

// PackColumns is PackX for rows of x that begin stride values apart.
func (s *Set) PackColumns(dst, x []float32, stride, m, cols, from, to int) {
	if cols <= 0 || m < 0 || stride < cols || m > 0 && len(x) < (m-1)*stride+cols || len(dst) != s.XLen(m, cols) || from < 0 || to > m {
		panic(fmt.Sprintf("floatmm: rows %d to %d of %d x %d activations from %d values to %d", from, to, m, cols, len(x), len(dst)))
	}
	k := filled(cols)
	for at := 0; at < to; {
		mr := s.Tiles[s.nextTile(m-at)]
		for i := max(at, from); i < min(at+mr, to); i++ {
			packRow(dst[at*k:(at+mr)*k], x[i*stride:][:cols:cols], mr, i-at)
		}
		at += mr
	}
}

// packRow writes row i of a tile of mr rows.
func packRow(tile, row []float32, mr, i int) {
	if mr == 1 {
		clear(tile[copy(tile, row):])
		return
	}
	k := 0
	for ; k+4 <= len(row); k += 4 {
		*(*[4]float32)(tile[k*mr+4*i:]) = [4]float32(row[k:])
	}
	if k < len(row) {
		last := [4]float32{}
		copy(last[:], row[k:])
		*(*[4]float32)(tile[k*mr+4*i:]) = last
	}
}
