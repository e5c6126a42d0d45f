package calib_test

import (
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/calib"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

// TestChoice: a row is rounded with the second moments exactly if its outputs on the text have the
// smaller error; without a text, if the second moments say so. Both happen.
func TestChoice(t *testing.T) {
	testshared.SlowEmulated(t, "TestChoiceThreads has a hash of the choice")
	dir := testmodels.FirstLayers(t, fixture(t), 2)
	for _, mapping := range []gqf.Mapping{gqf.MappingFullRange, gqf.MappingAsymmetric} {
		p := testplan.New(t, dir, quantizer.Recipe{Bits: 2, Mapping: mapping, Algorithm: gqf.AlgorithmImatrix})
		tx := testplan.Text(1024, 100, 60)
		inputs := everyInput(t, p, tx)
		collected := calib.NewImatrix()
		if err := collected.Collect(t.Context(), p, tx, calib.Options{Threads: 3}); err != nil {
			t.Fatal(err)
		}
		file := calib.NewImatrix()
		if err := file.Merge(collected); err != nil {
			t.Fatal(err)
		}
		if err := file.Choose(t.Context(), p, calib.Options{Threads: 2}); err != nil {
			t.Fatal(err)
		}
		byText, byFile := importance(t, collected, p), importance(t, file, p)
		counts := [2]int{}
		for _, m := range p.Matrices() {
			if m.Scheme.Algorithm != gqf.AlgorithmImatrix {
				continue
			}
			x, d := inputs[m.Name()], byText(m).Weights
			if !slices.Equal(d, byFile(m).Weights) {
				t.Fatalf("%s: the weights of columns differ", m.Name())
			}
			plain, weighted := roundings(t, p, m, nil), roundings(t, p, m, d)
			for r := range m.Rows {
				was, now := outputError(plain[r], x), outputError(weighted[r], x)
				chosen := byText(m).Row(r) != nil
				if chosen != (now < was) && math.Abs(now-was) > 1e-5*was {
					t.Errorf("%s row %d: weighted %v, with errors %g, without weights %g", m.Name(), r, chosen, now, was)
				}
				if chosen {
					counts[1]++
				} else {
					counts[0]++
				}
				was, now = 0.9*weightedError(plain[r], d), weightedError(weighted[r], d)
				if chosen := byFile(m).Row(r) != nil; chosen != (now < was) && math.Abs(now-was) > 1e-5*was {
					t.Errorf("%s row %d, of a file: weighted %v, with errors %g, without weights .9 of %g", m.Name(), r, chosen, now, was/0.9)
				}
			}
		}
		if min(counts[0], counts[1]) < 100 {
			t.Errorf("%s: %d rows without weights and %d with them", mapping, counts[0], counts[1])
		}
	}
}

// TestChoiceThreads: neither the number of threads nor the CPU changes the choice.
func TestChoiceThreads(t *testing.T) {
	p := testplan.New(t, fixture(t), quantizer.Recipe{Bits: 3, Algorithm: gqf.AlgorithmImatrix})
	var first func(plan.Matrix) *plan.Importance
	numbers := []int{1, 5}
	if testing.Short() {
		numbers = numbers[1:] // the hash covers the rest
	}
	for _, threads := range numbers {
		im := calib.NewImatrix()
		if err := im.Collect(t.Context(), p, testplan.Text(1024, 70, 3, 50), calib.Options{Threads: threads}); err != nil {
			t.Fatal(err)
		}
		got := importance(t, im, p)
		if first == nil {
			first = got
		}
		for _, m := range p.Matrices() {
			if m.Scheme.Algorithm == gqf.AlgorithmImatrix && !slices.Equal(got(m).Rows, first(m).Rows) {
				t.Errorf("%s: other rows with %d threads", m.Name(), threads)
			}
		}
	}
	hash := crc32.NewIEEE()
	for _, m := range p.Matrices() {
		if m.Scheme.Algorithm == gqf.AlgorithmImatrix {
			fmt.Fprintln(hash, m.Name(), first(m).Rows)
		}
	}
	if got, want := hash.Sum32(), uint32(0x6442a6bb); got != want {
		t.Errorf("the rows have hash %#x, want %#x", got, want)
	}
}

func importance(t *testing.T, im *calib.Imatrix, p *fromcheckpoint.Plan) func(plan.Matrix) *plan.Importance {
	t.Helper()
	codes, err := im.Codes(p, provenance.Calibration{})
	if err != nil || len(codes.Warnings) > 0 {
		t.Fatal(err, codes)
	}
	return codes.Importance
}

// everyInput returns the rows of inputs of each linear layer.
func everyInput(t *testing.T, p *fromcheckpoint.Plan, tx *text.Text) map[string][][]float32 {
	t.Helper()
	m, err := forward.OpenCheckpoint(p.SourceDir(), forward.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	stream, err := m.NewStream(tx.Sequences)
	if err != nil {
		t.Fatal(err)
	}
	list := map[string][][]float32{}
	add := func(in *forward.Input) bool {
		for r := range in.Rows {
			list[in.Name] = append(list[in.Name], slices.Clone(in.X[r*in.K:][:in.K]))
		}
		return true
	}
	for layer := range m.Config().Layers {
		for block := range stream.Blocks(layer) {
			for seq := range stream.Len() {
				if err := stream.Visit(seq, layer, block, add); err != nil {
					t.Fatal(err)
				}
				if err := stream.Advance(seq, layer, block); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for seq := range stream.Len() {
		stream.HeadInput(seq, func(in *forward.Input) { add(in) })
	}
	return list
}

// roundings returns the errors of a matrix's weights, rounded with weights d of columns.
func roundings(t *testing.T, p *fromcheckpoint.Plan, m plan.Matrix, d []float32) [][]float32 {
	t.Helper()
	q, err := rounding.NewRounder(m.Scheme, m.Cols)
	if err != nil {
		t.Fatal(err)
	}
	q.Weigh(d, false)
	q.LimitScales(m.SmallestScale)
	q.Recover(m.Precision)
	w := make([]float32, m.Rows*m.Cols)
	if err := p.ReadMatrix(w, m); err != nil {
		t.Fatal(err)
	}
	list := make([][]float32, m.Rows)
	for r := range list {
		e := make([]float32, m.Cols)
		x := w[r*m.Cols:][:m.Cols]
		if err := q.Round(e, x); err != nil {
			t.Fatal(err)
		}
		for k := range e {
			e[k] = x[k] - e[k]
		}
		list[r] = e
	}
	return list
}

func outputError(e []float32, x [][]float32) (sum float64) {
	for _, row := range x {
		dot := 0.0
		for k, v := range row {
			dot += float64(v) * float64(e[k])
		}
		sum += dot * dot
	}
	return sum
}

func weightedError(e, d []float32) (sum float64) {
	for k, v := range e {
		sum += float64(d[k]) * float64(v) * float64(v)
	}
	return sum
}
