package eval

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/lowbit-go/gq/internal/lm/text"
)

// StdErr is a standard error. The tokens of a window depend on each other (the context, the subject
// and names are the same), so the estimate uses Clusters, not tokens. With a single cluster the
// standard error is unknown: +Inf, or null in JSON.
type StdErr float64

// Known reports whether there were at least two clusters.
func (e StdErr) Known() bool { return !math.IsInf(float64(e), 1) }

// times scales a standard error. The result stays finite, because JSON has no infinity.
func (e StdErr) times(x float64) StdErr {
	if !e.Known() {
		return e
	}
	return StdErr(min(float64(float64(e)*x), math.MaxFloat64))
}

// MarshalJSON returns a number, or null if the standard error is unknown.
func (e StdErr) MarshalJSON() ([]byte, error) {
	switch v := float64(e); {
	case !e.Known():
		return []byte("null"), nil
	case !(v >= 0):
		return nil, fmt.Errorf("%v is not a standard error", v)
	default:
		return strconv.AppendFloat(nil, v, 'g', -1, 64), nil
	}
}

func (e *StdErr) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*e = StdErr(math.Inf(1))
		return nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if err == nil && !(v >= 0) {
		err = fmt.Errorf("%v is not a standard error", v)
	}
	*e = StdErr(v)
	return err
}

// meanOf returns the mean of v and its standard error. sizes are the numbers of values per cluster
// of a text, in order; nil if all values are independent, as questions are.
func meanOf(v []float64, sizes []int) (mean float64, stdErr StdErr) {
	if len(v) == 0 {
		return 0, 0
	}
	mean, sums := clusterSums(v, sizes)
	return mean, stdErrOf(sums, float64(len(v)), sizes != nil)
}

// clusterSums returns the mean of v and each cluster's sum of differences from the mean. Empty
// clusters are left out.
func clusterSums(v []float64, sizes []int) (mean float64, sums []float64) {
	for _, x := range v {
		mean += x
	}
	mean /= float64(len(v))
	if sizes == nil {
		for _, x := range v {
			sums = append(sums, x-mean)
		}
		return mean, sums
	}
	for _, size := range sizes {
		sum := 0.0
		for _, x := range v[:size] {
			sum += x - mean
		}
		if v = v[size:]; size > 0 {
			sums = append(sums, sum)
		}
	}
	return mean, sums
}

// ratioOf returns sum(v) / sum(w), where v and w have a number per cluster, and its standard error.
// With w the numbers of tokens, this is meanOf. ok is false if sum(w) is 0.
func ratioOf(v, w []float64) (ratio float64, stdErr StdErr, ok bool) {
	sumV, sumW := 0.0, 0.0
	for i := range v {
		sumV += v[i]
		sumW += w[i]
	}
	if sumW == 0 {
		return 0, 0, false
	}
	ratio = sumV / sumW
	var sums []float64
	for i := range v {
		if v[i] != 0 || w[i] != 0 {
			sums = append(sums, v[i]-float64(ratio*w[i]))
		}
	}
	return ratio, stdErrOf(sums, sumW, true), true
}

// stdErrOf returns the standard error of a mean over n values. sums has each cluster's sum of
// differences from the mean:
//
//	sqrt(G/(G-1) sum of squares of sums) / n
//
// for G clusters. Resampling whole clusters gives the same result (TestResampling), and so does the
// formula of Cameron and Miller, "A Practitioner's Guide to Cluster-Robust Inference", 2015,
// section II.B, for a regression on a constant. Neighbours in a text that are still correlated add
// twice the sum of their products, as the first term of Newey and West's estimate (Econometrica 55,
// 1987).
func stdErrOf(sums []float64, n float64, inText bool) StdErr {
	if len(sums) < 2 {
		return StdErr(math.Inf(1))
	}
	squares, neighbours, correlated := autocorrelation(sums)
	if inText && correlated {
		squares += 2 * neighbours
	}
	g := float64(len(sums))
	return StdErr(math.Sqrt(squares*g/(g-1)) / n)
}

// autocorrelation returns the sum of squares, the sum of products of neighbours, and whether
// neighbours are correlated. The correlation of G independent numbers has the mean -1/G and the
// standard error 1/sqrt(G); correlated means more than that error above the mean.
func autocorrelation(sums []float64) (squares, neighbours float64, correlated bool) {
	for i, x := range sums {
		squares += float64(x * x)
		if i > 0 {
			neighbours += float64(sums[i-1] * x)
		}
	}
	g := float64(len(sums))
	return squares, neighbours, neighbours/squares+1/g > 1/math.Sqrt(g)
}

// Clusters says over what standard errors are computed.
type Clusters struct {
	// Of is "windows", "documents" or "blocks". Blocks are neighbouring windows, or documents.
	Of string `json:"of"`
	// Count is the number of clusters, and Windows the number of windows in the largest.
	Count   int `json:"count"`
	Windows int `json:"windows"`

	of []int // by window, the number of its cluster
}

// leastClusters is the least number of documents, and of blocks, to be clusters. Over 8 clusters,
// the standard error of a standard error is 27 % of that.
const leastClusters = 8

// String describes the clusters: "16 blocks of up to 8 windows".
func (c *Clusters) String() string {
	s := fmt.Sprintf("%d %s", c.Count, c.Of)
	if c.Windows > 1 {
		s += fmt.Sprintf(" of up to %d windows", c.Windows)
	}
	return s
}

// clustersOf divides the windows of a text into clusters. It begins with documents, or with windows
// if there are too few documents. Then neighbours are joined in pairs until neighbouring blocks are
// uncorrelated in each of the series. A series has a value for each scored token. This is the
// method of batch means.
func clustersOf(windows []text.Window, series ...[]float64) *Clusters {
	c := &Clusters{Of: "documents", of: make([]int, len(windows))}
	for i := 1; i < len(windows); i++ {
		// A window in the document of the window before begins with its last tokens. See text.LMEval.
		before, w := windows[i-1], windows[i]
		at := len(before.Tokens) - w.First
		if c.of[i] = c.of[i-1]; at < 0 || !slices.Equal(before.Tokens[at:], w.Tokens[:w.First]) {
			c.of[i]++
		}
	}
	if c.count(); c.Windows == 1 || c.Count < leastClusters {
		c.Of = "windows"
		for i := range c.of {
			c.of[i] = i
		}
		c.count()
	}
	sizes := func(i int) int { return windows[i].Scored() }
	for c.Count > 2*(leastClusters-1) && slices.ContainsFunc(series, func(v []float64) bool {
		_, sums := clusterSums(v, c.sizes(sizes))
		_, _, correlated := autocorrelation(sums)
		return correlated
	}) {
		c.Of = "blocks"
		for i := range c.of {
			c.of[i] /= 2
		}
		c.count()
	}
	return c
}

func (c *Clusters) count() {
	n := c.sizes(func(int) int { return 1 })
	c.Count, c.Windows = len(n), slices.Max(append(n, 0))
}

// sizes adds up a number of each window by clusters.
func (c *Clusters) sizes(of func(window int) int) []int {
	var list []int
	for i, k := range c.of {
		if k == len(list) {
			list = append(list, 0)
		}
		list[k] += of(i)
	}
	return list
}
