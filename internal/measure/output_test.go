package measure

import (
	"math"
	"testing"

	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// TestOutput compares the float outputs with products in float64, and the packed kernel's error
// with a bound from its activations.
func TestOutput(t *testing.T) {
	const rows, cols, m = 300, 96, 300 // more rows of activations than are multiplied at a time
	w := testTensor{name: "layers.0.up_proj.weight", dtype: packing.F32, shape: []int64{rows, cols}}
	bias := testTensor{name: "layers.0.up_proj.bias", dtype: packing.F32, shape: []int64{rows}}
	dir := writeCheckpoint(t, "", w, bias)
	path, _ := quantize(t, dir, conversion.Options{})
	x := RandomInputs("some", m, cols)
	var asked []string
	stats := tensorsOf(t, dir, path, TensorOptions{Inputs: func(name string) ([]float32, int) {
		asked = append(asked, name)
		return x, m
	}})
	out := stats[1].Output
	if stats[1].Name != w.name || out == nil || out.Source != "calibration" || out.Inputs != m || out.Outputs != rows || len(asked) != 1 || asked[0] != w.name {
		t.Fatalf("%+v, asked for %q", stats[1], asked)
	}
	f, ck := openFile(t, path), openCheckpoint(t, dir)
	tensor, _ := f.Lookup(w.name)
	stored, err := tensor.Rows(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	weights, b := readAll(t, ck, w.name), readAll(t, ck, bias.name)
	var signal, noise float64
	y := make([]float32, cols)
	for r := range rows {
		stored.Dequantize(y, r)
		for i := range m {
			a, q := float64(b[r]), float64(b[r])
			for k := range cols {
				a += float64(x[i*cols+k]) * float64(weights[r*cols+k])
				q += float64(x[i*cols+k]) * float64(y[k])
			}
			signal += a * a
			noise += (a - q) * (a - q)
		}
	}
	if want := 10 * math.Log10(signal/noise); math.Abs(float64(out.WeightSQNR)-want) > 1e-4 {
		t.Errorf("the weights cost %v, want %v", out.WeightSQNR, want)
	}
	// The noise of weights and of activations is independent, so it adds up, within a few percent.
	sum := -10 * math.Log10(math.Pow(10, -float64(out.WeightSQNR)/10)+math.Pow(10, -float64(out.ActivationSQNR)/10))
	if math.Abs(float64(out.SQNR)-sum) > 0.2 || out.ActivationSQNR < 30 || out.ActivationSQNR > 50 {
		t.Errorf("in all %v, of the activations %v, of both %.2f dB", out.SQNR, out.ActivationSQNR, sum)
	}
}

// TestTallOutput checks a matrix whose blocks are sampled.
func TestTallOutput(t *testing.T) {
	testshared.SlowEmulated(t, "TestGolden has the same code")
	w := testTensor{name: "lm_head.weight", dtype: packing.BF16, shape: []int64{40_003, 128}}
	dir := writeCheckpoint(t, "", w)
	path, _ := quantize(t, dir, conversion.Options{})
	s := tensorsOf(t, dir, path, TensorOptions{})[0]
	if n := s.Output.Outputs; n < maxOutputs/2 || n > 2*maxOutputs {
		t.Errorf("%d outputs of %d", n, s.Rows)
	}
}

func TestRandomInputs(t *testing.T) {
	const m, k = 400, 500
	x := RandomInputs("a", m, k)
	mean, square, spread := 0.0, 0.0, 0.0
	for c := range k {
		column := 0.0
		for i := range m {
			v := float64(x[i*k+c])
			mean += v
			column += v * v
		}
		square += column
		spread += math.Pow(math.Log(column/m)/2, 2)
	}
	mean, square, spread = mean/m/k, square/m/k, math.Sqrt(spread/k)
	// The mean square of a log-normal gain is exp(2 * 0.5^2).
	if math.Abs(mean) > 0.02 || math.Abs(square-math.Exp(0.5)) > 0.15 || math.Abs(spread-0.5) > 0.05 {
		t.Errorf("mean %v, mean square %v, spread of the gains %v", mean, square, spread)
	}
	if y := RandomInputs("b", m, k); y[0] == x[0] || y[1] == x[1] {
		t.Error("another name gives the same numbers")
	}
}
