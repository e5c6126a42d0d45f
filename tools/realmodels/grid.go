package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
)

// Codes of at most 8 bits lie on a grid of at most 255 steps between a group's least and greatest
// weight. Weights within gridTolerance of a step of such a grid count as on the grid: 30 other
// weights are there with a probability of 1e-51, 14 with a probability of 2e-24.
const (
	maxSteps      = 255
	gridTolerance = 0.01
)

// Upper limits of the histograms' columns. The last column of steps is for groups without a grid.
var (
	distinctLimits = []int{8, 16, 24, 28, 31, 32}
	stepLimits     = []int{1, 15, 31, 63, 127, 255}
)

// histogram counts the groups of a tensor: by the number of distinct weights of a group of 32, and
// by the steps of the coarsest grid that holds a group of 32, and a group of 16.
type histogram struct {
	distinct []int
	steps    [2][]int
}

func newHistogram(w [][]float32) *histogram {
	h := &histogram{distinct: make([]int, len(distinctLimits))}
	for i, size := range []int{32, 16} {
		h.steps[i] = make([]int, len(stepLimits)+1)
		for _, row := range w {
			for g := range slices.Chunk(row, size) {
				sorted := slices.Clone(g)
				slices.Sort(sorted)
				h.steps[i][column(stepLimits, steps(sorted))]++
				if i == 0 {
					h.distinct[column(distinctLimits, len(slices.Compact(sorted)))]++
				}
			}
		}
	}
	return h
}

// column returns the index of the first limit that n does not exceed.
func column(limits []int, n int) int {
	i, _ := slices.BinarySearch(limits, n)
	return i
}

// steps returns the least number of equal steps from the least to the greatest weight such that all
// weights are on steps, or more than maxSteps if there is no such number.
func steps(sorted []float32) int {
	low := float64(sorted[0])
	width := float64(sorted[len(sorted)-1]) - low
	if width == 0 {
		return 1
	}
	for n := 1; n <= maxSteps; n++ {
		if !slices.ContainsFunc(sorted, func(v float32) bool {
			x := (float64(v) - low) / width * float64(n)
			return math.Abs(x-math.RoundToEven(x)) > gridTolerance
		}) {
			return n
		}
	}
	return maxSteps + 1
}

// histograms writes a line for each matrix before and after the change. It fails if a group of the
// changed matrix is on a grid.
func histograms(path, plain, hidden string) error {
	a, err := safetensors.Open(plain, safetensors.Options{})
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := safetensors.Open(hidden, safetensors.Options{})
	if err != nil {
		return err
	}
	defer b.Close()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	fmt.Fprint(w, "tensor\twhen\tgroups\tdistinct weights of 32:")
	for _, n := range distinctLimits {
		fmt.Fprintf(w, "\t<=%d", n)
	}
	for _, size := range []int{32, 16} {
		fmt.Fprintf(w, "\tsteps of a grid of %d:", size)
		for _, n := range stepLimits {
			fmt.Fprintf(w, "\t<=%d", n)
		}
		fmt.Fprint(w, "\tnone")
	}
	fmt.Fprintln(w)
	left := 0
	for i, t := range a.Tensors() {
		if len(t.Shape) < 2 {
			continue
		}
		for when, in := range []struct {
			ck *safetensors.Checkpoint
			t  safetensors.Tensor
		}{{a, t}, {b, b.Tensors()[i]}} {
			rows, err := read(in.ck, in.t)
			if err != nil {
				return err
			}
			h := newHistogram(rows)
			fmt.Fprintf(w, "%s\t%s\t%d\t", t.Name, []string{"before", "after"}[when], sum(h.steps[0]))
			line(w, h.distinct)
			for _, s := range h.steps {
				fmt.Fprint(w, "\t")
				line(w, s)
				if when == 1 {
					left += sum(s[:len(stepLimits)])
				}
			}
			fmt.Fprintln(w)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%s: %d groups are on a grid after the change", path, left)
	}
	return f.Close()
}

func line(w *bufio.Writer, counts []int) {
	for _, n := range counts {
		fmt.Fprintf(w, "\t%d", n)
	}
}

func sum(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}
