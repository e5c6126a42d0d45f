package eval

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// resampled returns the standard deviation of the mean when whole windows are drawn with
// replacement.
func resampled(v []float64, windows []int, seed uint64) float64 {
	random := detmath.Source(seed)
	sums := make([]float64, len(windows))
	at := 0
	for i, n := range windows {
		for _, x := range v[at : at+n] {
			sums[i] += x
		}
		at += n
	}
	const draws = 4000
	mean, squares := 0.0, 0.0
	for d := range draws {
		sum, n := 0.0, 0
		for range windows {
			i := int(random.Next() % uint64(len(windows)))
			sum, n = sum+sums[i], n+windows[i]
		}
		m := sum / float64(n)
		delta := m - mean
		mean += delta / float64(d+1)
		squares += delta * (m - mean)
	}
	return math.Sqrt(squares / (draws - 1))
}

// independent returns the standard error of the mean for independent values.
func independent(v []float64) float64 {
	_, e := meanOf(v, nil)
	return float64(e)
}

// TestResampling compares the standard error, with windows as clusters, with resampling of whole
// windows: on numbers that are similar within a window, and on the losses and divergences of a
// model.
func TestResampling(t *testing.T) {
	testshared.SlowEmulated(t, "it tests a formula, which is the same natively")
	random := detmath.Source(7)
	var v []float64
	var windows []int
	for range 150 {
		n := 5 + int(random.Next()%60)
		level := random.Float()
		for range n {
			v = append(v, level+random.Float())
		}
		windows = append(windows, n)
	}
	check := func(name string, v []float64, windows []int, tolerance float64) {
		t.Helper()
		_, sums := clusterSums(v, windows)
		e := stdErrOf(sums, float64(len(v)), false)
		want := resampled(v, windows, 1)
		t.Logf("%s: %.3g by clusters, %.3g by resampling, %.3g if tokens were independent (%.2f times)", name, float64(e), want, independent(v), float64(e)/independent(v))
		if r := float64(e) / want; math.Abs(r-1) > tolerance {
			t.Errorf("%s: %.4g, resampling of windows gives %.4g", name, float64(e), want)
		}
	}
	check("synthetic", v, windows, .05)
	if e := independent(v); e > .5*resampled(v, windows, 1) {
		t.Errorf("values are not alike within windows: %g", e)
	}

	dir := testshared.Dir(t)
	data, err := os.ReadFile(filepath.Join(dir, "text", "books-heldout.txt"))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Open(fixture)
	if err != nil {
		t.Fatal(err)
	}
	cut, err := text.Cut(t.Context(), tok, tok.VocabSize(), text.Input{Data: data}, text.Options{Window: 128, MaxTokens: 10000})
	if err != nil {
		t.Fatal(err)
	}
	quantized, float := quantizedFixture(t), openFixture(t)
	scores, err := run(t.Context(), []*forward.Model{float, quantized}, cut.Windows, CompareOptions{Sessions: 2})
	if err != nil {
		t.Fatal(err)
	}
	sizes := make([]int, len(scores))
	for i, w := range scores {
		sizes[i] = len(w)
	}
	for name, get := range map[string]func(*score) float64{
		"loss": func(s *score) float64 { return s.nll[1] }, "KL": func(s *score) float64 { return s.pairs[0].kl },
		"difference of losses": func(s *score) float64 { return s.nll[1] - s.nll[0] },
	} {
		check(name, collect(scores, get), sizes, .1)
	}
}

func TestStdErrJSON(t *testing.T) {
	_, one := meanOf([]float64{1, 2, 3}, []int{3})
	if one.Known() || one.times(2).Known() {
		t.Errorf("one window has a standard error of %g", float64(one))
	}
	for _, e := range []StdErr{0, .25, one} {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var got StdErr
		if err := json.Unmarshal(b, &got); err != nil || got != e {
			t.Errorf("%g becomes %s and %g, %v", float64(e), b, float64(got), err)
		}
	}
	var e StdErr
	for _, bad := range []string{"-1", `"x"`} {
		if err := json.Unmarshal([]byte(bad), &e); err == nil {
			t.Errorf("%s is a standard error", bad)
		}
	}
}
