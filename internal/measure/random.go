package measure

import (
	"hash/fnv"
	"math"
	"math/bits"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/splitmix"
)

// inputSpread is the standard deviation of the logarithm of a channel's gain.
const inputSpread = 0.5

// RandomInputs makes m rows of k activations for a layer without real activations: normally
// distributed with deviation 1, times a gain per column. The gain's natural logarithm is normally
// distributed with deviation 0.5. So the columns of a layer with 2,048 inputs differ by a factor of
// up to 30, and a few stand out, as in real linear layers. Only the name determines the numbers.
func RandomInputs(name string, m, k int) []float32 {
	n := newNormals(name)
	gain := make([]float64, k)
	for i := range gain {
		gain[i] = detmath.Exp(inputSpread * n.normal())
	}
	x := make([]float32, m*k)
	for i := range x {
		x[i] = float32(float64(gain[i%k] * n.normal()))
	}
	return x
}

// normals generates random numbers that are the same on any machine. math/rand's normal numbers
// depend on logarithms and exponentials of package math.
type normals struct {
	splitmix.Source
	spare float64
	has   bool
}

func newNormals(seed string) *normals {
	h := fnv.New64a()
	h.Write([]byte(seed))
	return &normals{Source: splitmix.Source(h.Sum64())}
}

// uniform returns a number above -1 and below 1.
func (n *normals) uniform() float64 {
	return float64(int64(n.Next()>>11|1)-1<<52) / (1 << 52)
}

// below returns an integer in [0, k).
func (n *normals) below(k int) int {
	hi, _ := bits.Mul64(n.Next(), uint64(k))
	return int(hi)
}

// normal returns a normally distributed number, by Marsaglia's polar method.
func (n *normals) normal() float64 {
	if n.has {
		n.has = false
		return n.spare
	}
	for {
		u, v := n.uniform(), n.uniform()
		s := float64(u*u) + float64(v*v)
		if s >= 1 {
			continue
		}
		f := math.Sqrt(-2 * detmath.Log(s) / s)
		n.spare, n.has = float64(v*f), true
		return float64(u * f)
	}
}
