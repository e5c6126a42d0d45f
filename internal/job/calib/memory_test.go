package calib

import (
	"math"
	"testing"
	"unsafe"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/quantizer"
)

// TestMemory compares the sizes that Estimate adds with the buffers of a job.
func TestMemory(t *testing.T) {
	testshared.SlowEmulated(t, "sizes are the same on every CPU")
	books, mixture := testmodels.Books(t, 2), t.TempDir()
	testmodels.Mixture(t).Write(t, mixture)
	for _, tt := range []struct {
		name   string
		dir    string
		recipe quantizer.Recipe
		refine bool
	}{
		{"gptq", books, quantizer.Recipe{Bits: 4, Algorithm: gqf.AlgorithmGPTQ}, false},
		{"gptq-ft", books, quantizer.Recipe{Bits: 4, Algorithm: gqf.AlgorithmGPTQFT}, false},
		{"refine", books, quantizer.Recipe{Bits: 4, Group: new(64), Mapping: gqf.MappingAsymmetric, Algorithm: gqf.AlgorithmGPTQFT}, true},
		{"gptq of experts", mixture, quantizer.Recipe{Bits: 4, Algorithm: gqf.AlgorithmGPTQ}, false},
		{"gptq-ft of experts", mixture, quantizer.Recipe{Bits: 4, Algorithm: gqf.AlgorithmGPTQFT}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := testplan.Text(512, 128, 50, 128)
			p := testplan.New(t, tt.dir, tt.recipe)
			o := Options{Refine: tt.refine, Threads: 2}
			j := newJob(t.Context(), p, text, o)
			store, err := openStore(nil, "")
			if err != nil {
				t.Fatal(err)
			}
			j.store = store
			if err := j.attempt(j.find(), &Result{plan: p, store: store}); err != nil {
				t.Fatal(err)
			}
			s := &sizes{job: j, tokens: text.Tokens()}
			codes := int64(0)
			for layer := range j.quant.Config().Layers {
				codes = max(codes, s.layer(layer))
			}
			grids := int64(cap(j.e.solver.grids)) * int64(unsafe.Sizeof(vec.ColumnGrids{}))
			held, scales := int64(0), int64(0)
			for _, m := range p.Matrices() {
				if m.Scheme.Algorithm.ByLayers() {
					scales = max(scales, m.Scheme.Shape(m.Rows, m.Cols).Bytes()-int64(m.Rows)*int64(m.Cols))
				}
			}
			for _, c := range j.store.results {
				held += c.(interface{ Bytes() int64 }).Bytes()
			}
			layers := int64(len(j.quant.Config().Layers))
			for _, c := range []struct {
				what      string
				got, want int64
			}{
				{"values of the pool", 4 * s.floats, j.e.floats.MostBytes()},
				{"inputs", 4 * s.inputs, 4 * int64(cap(j.inputs))},
				{"codes and grids of a solver", s.solver, j.e.codes.MostBytes() + grids + 3*scales},
				{"codes of a layer", codes, held / layers},
			} {
				if math.Abs(float64(c.got)/float64(c.want)-1) > .1 {
					t.Errorf("%s: %d bytes are stated, %d were in use", c.what, c.got, c.want)
				}
			}
		})
	}
}
