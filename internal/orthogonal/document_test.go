package orthogonal

import (
	"fmt"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
)

// documented computes R of docs/FOLDS.md, from the document alone, for sizes with a Hadamard
// matrix.
func documented(n int, seed, stream uint64) [][]float64 {
	mix := func(s *uint64) uint64 {
		*s += 0x9e3779b97f4a7c15
		z := *s
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	state := seed
	state = mix(&state) ^ stream*0xd1342543de82ef95
	isPrime := func(q int) bool {
		for d := 2; d < q; d++ {
			if q%d == 0 {
				return false
			}
		}
		return q > 1
	}
	m := 0
	for o := n; ; o /= 2 {
		if o == 1 || o%4 == 0 && (isPrime(o-1) || isPrime(o/2-1) && (o/2-1)%4 == 1) {
			m = o
		}
		if o%2 == 1 {
			break
		}
	}
	h := n / m
	chi := func(a, q int) float64 {
		for x := range q {
			if x*x%q == ((a%q)+q)%q {
				return 1
			}
		}
		return -1
	}
	p := func(i, j int) float64 {
		switch q := m - 1; {
		case m == 1:
			return 1
		case isPrime(q):
			if i == 0 || i == j {
				return 1
			} else if j == 0 {
				return -1
			}
			return chi(i-j, q)
		}
		q, a, b := m/2-1, i/2, j/2
		if a == b {
			return [4]float64{1, -1, -1, -1}[i%2*2+j%2]
		}
		c := 1.0
		if a != 0 && b != 0 {
			c = chi(a-b, q)
		}
		return [4]float64{c, c, c, -c}[i%2*2+j%2]
	}
	r := make([][]float64, n)
	for i := range r {
		s := 1.0
		if mix(&state)>>63 == 1 {
			s = -1
		}
		r[i] = make([]float64, n)
		for j := range r[i] {
			sign := 1.0
			if bits.OnesCount(uint(i%h)&uint(j%h))%2 == 1 {
				sign = -1
			}
			r[i][j] = s * p(i/h, j/h) * sign / math.Sqrt(float64(n))
		}
	}
	return r
}

// TestDocument compares the rotations with docs/FOLDS.md, which prints one of them.
func TestDocument(t *testing.T) {
	for _, n := range []int{1, 2, 4, 8, 12, 20, 24, 28, 36, 56, 64, 96, 112, 180} {
		for stream := range uint64(2) {
			want, r := documented(n, 7, stream), New(n, 7, stream)
			scratch := make([]float64, n)
			for i := range n {
				x := make([]float64, n)
				x[i] = 1
				r.Turn(x, scratch)
				for j := range x {
					if math.Abs(x[j]-want[i][j]) > 1e-15 {
						t.Fatalf("size %d, stream %d: R(%d, %d) is %v, the document's %v", n, stream, i, j, x[j], want[i][j])
					}
				}
			}
		}
	}
	document, err := os.ReadFile(filepath.Join(testshared.Root(t), "docs", "FOLDS.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{4, 12, 28} {
		for i, row := range documented(n, 7, 0)[:2] {
			line := fmt.Sprintf("    %2d, row %d: ", n, i)
			for _, v := range row {
				line += map[bool]string{true: "-", false: "+"}[v < 0]
			}
			if !strings.Contains(string(document), line+"\n") {
				t.Errorf("docs/FOLDS.md lacks the line %q", line)
			}
		}
	}
	line := "     3, row 0:"
	for _, v := range New(3, 7, 0).dense[0] {
		line += fmt.Sprintf(" %.17g", v)
	}
	if !strings.Contains(string(document), line+"\n") {
		t.Errorf("docs/FOLDS.md lacks the line %q", line)
	}
}
