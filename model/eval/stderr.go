package eval

import (
	"fmt"
	"math"
	"strconv"
)

// StdErr is a standard error. Tokens of one window depend on each other (they share a context, a
// subject, names), so the estimate uses windows as clusters, not tokens. With one window the
// standard error is unknown: +Inf, or null in JSON.
type StdErr float64

// Known reports whether there were at least two windows.
func (e StdErr) Known() bool { return !math.IsInf(float64(e), 1) }

// times scales a standard error. It stays finite, because JSON has no infinity.
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

// UnmarshalJSON parses the output of MarshalJSON.
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

// meanOf returns the mean of v and its standard error, with the windows as clusters:
//
//	sqrt(G/(G-1) sum over windows of (sum over its tokens of (v - mean))^2) / n
//
// for G windows and n tokens. windows are the numbers of values per window, in order. Resampling
// whole windows gives the same result (TestResampling), and so does the formula of Cameron and
// Miller, "A Practitioner's Guide to Cluster-Robust Inference", 2015, section II.B, for a
// regression on a constant.
func meanOf(v []float64, windows []int) (mean float64, stdErr StdErr) {
	if len(v) == 0 {
		return 0, 0
	}
	n := float64(len(v))
	for _, x := range v {
		mean += x
	}
	mean /= n
	squares, clusters, at := 0.0, 0, 0
	for _, size := range windows {
		sum := 0.0
		for _, x := range v[at : at+size] {
			sum += x - mean
		}
		at += size
		squares += float64(sum * sum)
		if size > 0 {
			clusters++
		}
	}
	if clusters < 2 {
		return mean, StdErr(math.Inf(1))
	}
	g := float64(clusters)
	return mean, StdErr(math.Sqrt(squares*g/(g-1)) / n)
}

// ratioOf returns sum(v) / sum(w), where v and w have a number per window, and its standard error
// with the windows as clusters:
//
//	sqrt(G/(G-1) sum over windows of (v - ratio w)^2) / sum(w)
//
// for G windows. With w the numbers of tokens, this is meanOf. ok is false if sum(w) is 0.
func ratioOf(v, w []float64) (ratio float64, stdErr StdErr, ok bool) {
	sumV, sumW, clusters := 0.0, 0.0, 0
	for i := range v {
		sumV += v[i]
		sumW += w[i]
		if v[i] != 0 || w[i] != 0 {
			clusters++
		}
	}
	if sumW == 0 {
		return 0, 0, false
	}
	ratio = sumV / sumW
	if clusters < 2 {
		return ratio, StdErr(math.Inf(1)), true
	}
	squares := 0.0
	for i := range v {
		d := v[i] - float64(ratio*w[i])
		squares += float64(d * d)
	}
	g := float64(clusters)
	return ratio, StdErr(math.Sqrt(squares*g/(g-1)) / sumW), true
}
