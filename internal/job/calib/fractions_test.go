package calib_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/calib"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

// TestFractionsInFile: the file's rows are what calibration's codes, scales and fractional zero
// points stand for.
func TestFractionsInFile(t *testing.T) {
	testshared.SlowEmulated(t, "TestSameBits runs there")
	for _, algorithm := range []gqf.Algorithm{gqf.AlgorithmGPTQ, gqf.AlgorithmGPTQFT} {
		for _, refine := range []bool{false, true} {
			recipe := quantizer.Recipe{Bits: 3, Mapping: gqf.MappingAsymmetric, Algorithm: algorithm}
			p := testplan.New(t, tiny, recipe)
			r, err := calib.Run(context.Background(), p, tinyText(), calib.Options{Refine: refine})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			path := filepath.Join(t.TempDir(), "model.gqf")
			if _, err := p.WriteWith(context.Background(), path, write.Options{Codes: r.Codes()}); err != nil {
				t.Fatal(err)
			}
			f, err := gqf.Open(path, gqf.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			fractions := 0
			for _, m := range p.Matrices() {
				reader := r.Codes().Rows(m)
				if reader == nil {
					continue
				}
				tensor, ok := f.Lookup(m.Tensor)
				if !ok || !m.Scheme.Fractions {
					t.Fatalf("%s: in the file %v, scheme %+v", m.Name(), ok, m.Scheme)
				}
				rows, err := tensor.Rows(0, m.Slice)
				if err != nil {
					t.Fatal(err)
				}
				shape := m.Scheme.Shape(m.Rows, m.Cols)
				row := rounding.NewCodes(m.Scheme.Shape(1, m.Cols)).Row(0)
				want, got := make([]float32, m.Cols), make([]float32, m.Cols)
				for i := range m.Rows {
					if err := reader.ReadRow(i, row); err != nil {
						t.Fatal(err)
					}
					shape.Dequantize(want, row)
					for _, z := range row.Zeros {
						if z%(1<<shape.ZeroShift) != 0 {
							fractions++
						}
					}
					rows.Dequantize(got, i)
					if !slices.Equal(got, want) {
						t.Fatalf("%s, refine %v, %s: row %d is %v, calibration chose %v", algorithm, refine, m.Name(), i, got, want)
					}
				}
			}
			if fractions == 0 {
				t.Errorf("%s, refine %v: all zero points are integers", algorithm, refine)
			}
		}
	}
}
