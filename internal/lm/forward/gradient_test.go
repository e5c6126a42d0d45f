package forward

import (
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// derivative is the central difference of the loss along a direction for each of some tensors of
// one layer.
func (r *reference) derivative(layer int, dirs map[string][]float64) float64 {
	step := 1e-5
	if r.m.config.Activation == arch.ClampedSilu || r.m.config.Layers[0].Sparse {
		step = 1e-6 // fewer values cross the limit, where the slope changes
	}
	values := make(map[string][]float64, len(dirs))
	for name := range dirs {
		values[name] = r.params[name]
	}
	defer maps.Copy(r.params, values)
	at := func(step float64) float64 {
		for name, dir := range dirs {
			moved := make([]float64, len(dir))
			for i, v := range values[name] {
				moved[i] = v + step*dir[i]
			}
			r.params[name] = moved
		}
		return r.total(layer)
	}
	return (at(step) - at(-step)) / (2 * step)
}

// layerOf returns the layer of a tensor, the number of layers for tensors behind them, and -1 for
// others.
func (r *reference) layerOf(name string) int {
	if m := regexp.MustCompile(`\blayers\.(\d+)\.`).FindStringSubmatch(name); m != nil {
		layer, _ := strconv.Atoi(m[1])
		return layer
	}
	if name == r.m.norm.Tensor || name == r.m.Head() {
		return len(r.m.layers)
	}
	return -1
}

// worst compares all gradients with numeric ones, in a random direction, and returns the largest
// error relative to the norm of the tensor's gradient, and its tensor. The tensors of a layer move
// together, each so far that all change the loss alike. Where the sum of a layer differs, each
// tensor moves alone.
func (r *reference) worst(t testing.TB, got gradients) (worst float64, tensor string) {
	rng := rand.New(rand.NewPCG(41, 42))
	r.fix()
	layers := map[int][]string{}
	for _, name := range slices.Sorted(maps.Keys(r.params)) {
		if g := got[name]; g == nil && strings.Contains(name, "experts") { // no tokens
			got[name] = make([]float32, len(r.params[name]))
		} else if len(g) != len(r.params[name]) {
			t.Errorf("%s: %d gradients, want %d", name, len(g), len(r.params[name]))
			continue
		}
		layer := r.layerOf(name)
		layers[layer] = append(layers[layer], name)
	}
	for _, layer := range slices.Sorted(maps.Keys(layers)) {
		err := r.differs(rng, layer, layers[layer], got)
		if !(err < gradientError) {
			for _, name := range layers[layer] {
				if err := r.differs(rng, layer, []string{name}, got); !(err < gradientError) {
					t.Errorf("the gradient of %s differs by %.2g of its norm from the numeric one", name, err)
				}
			}
		}
		if !(err <= worst) {
			worst, tensor = err, layers[layer][0]
		}
	}
	return worst, tensor
}

// gradientError is the largest error of a gradient, relative to its norm.
const gradientError = 1e-4

// differs moves tensors of a layer in a random direction and returns the difference of the slope
// from the gradients' sum, relative to the least norm of their gradients.
func (r *reference) differs(rng *rand.Rand, layer int, names []string, got gradients) float64 {
	norms, least := map[string]float64{}, math.Inf(1)
	for _, name := range names {
		square := 0.0
		for _, v := range got[name] {
			square += float64(v) * float64(v)
		}
		if norms[name] = math.Sqrt(square); square > 0 {
			least = min(least, norms[name])
		}
	}
	dirs, sum := map[string][]float64{}, 0.0
	for _, name := range names {
		scale := 1.0
		if norms[name] > 0 {
			scale = least / norms[name]
		}
		dir := make([]float64, len(got[name]))
		for i, v := range got[name] {
			dir[i] = scale * rng.NormFloat64()
			sum += float64(v) * dir[i]
		}
		dirs[name] = dir
	}
	err := math.Abs(sum - r.derivative(layer, dirs))
	if err <= 1e-9 {
		return 0
	}
	return err / least
}

// gradientSequences are longer than the windows of the test models, and of one token.
func gradientSequences(vocab int) [][]int32 {
	tokens := someTokens(64, vocab)
	return [][]int32{tokens[:11], tokens[11:12], tokens[12:18]}
}

// TestGradients holds the gradients of every architecture to numeric derivatives of an independent
// float64 implementation.
func TestGradients(t *testing.T) {
	if testing.Short() {
		t.Skip("numeric derivatives take long; TestGradientBits has the bits, emulated, and the threads, with the race detector")
	}
	for _, c := range torchCases(t) {
		t.Run(filepath.Base(c.dir), func(t *testing.T) {
			checkGradients(t, openCase(t, c.dir, Options{Threads: 2}), nil)
		})
	}
	t.Run("neighbours", func(t *testing.T) { // as llama.cpp stores models
		m := openCase(t, "testdata/torch/phi4-mini", Options{Threads: 2})
		m.config.Ropes[0].Neighbours = true
		checkGradients(t, m, nil)
	})
	t.Run("chunks", func(t *testing.T) { // llama4's are longer than the sequences
		for _, g := range testmodels.AllGenerated(t) {
			if g.Name != "llama4" {
				continue
			}
			m := openCase(t, generatedCase(t, g).dir, Options{Threads: 2})
			for i := range m.layers {
				if a := m.layers[i].blocks[0].part.(*attention); a.Chunk > 0 {
					a.Chunk, m.caches[a.cache].chunk = 4, 4
				}
			}
			checkGradients(t, m, nil)
		}
	})
	for _, name := range []string{"mixtral", "qwen3-moe", "qwen3-moe-unnormalized"} {
		t.Run(name+" with another model's routing", func(t *testing.T) {
			m := openCase(t, "testdata/torch/"+name, Options{Threads: 2})
			e, routing := m.config.Experts, make([][]int32, len(m.layers))
			for i := range routing {
				for at := range totalTokens(gradientSequences(m.VocabSize())) * e.PerToken {
					// Expert 1 has no tokens.
					routing[i] = append(routing[i], int32(at%e.PerToken+2*(at/e.PerToken+i)%(e.Count-e.PerToken)))
				}
				for at, expert := range routing[i] {
					if expert == 1 {
						routing[i][at] = int32(e.Count - 1)
					}
				}
			}
			checkGradients(t, m, routing)
		})
	}
}

func checkGradients(t *testing.T, m *Model, routing [][]int32) {
	t.Helper()
	sequences := gradientSequences(m.VocabSize())
	o := TapeOptions{MaxTokens: 21, MaxLength: 11, LogitRows: 8, Outputs: true}
	tape, err := m.NewTape(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := tape.Forward(sequences, routing); err != nil {
		t.Fatal(err)
	}
	r := newReference(t, m, sequences, tape.Routing())
	got := gradientsOf(t, m, o, sequences, routing)
	worst, tensor := r.worst(t, got)
	for name, factors := range got {
		if name, ok := strings.CutSuffix(name, " factors"); ok {
			err, square := 0.0, 0.0
			for n, v := range factors {
				cols := len(got[name]) / len(factors)
				slope := float64(v)
				for k, d := range got[name][n*cols:][:cols] {
					slope -= float64(d) * r.params[name][n*cols+k]
				}
				err, square = max(err, math.Abs(slope)), square+float64(v)*float64(v)
			}
			if !(err <= gradientError*math.Sqrt(square)) {
				t.Errorf("%s: factors differ by %.2g from the sums of gradients times weights, their norm is %.2g", name, err, math.Sqrt(square))
			}
		}
	}
	t.Logf("largest relative error %.2g, of the layer of %s", worst, tensor)
	if !(worst < gradientError) {
		t.Errorf("the gradients of the layer of %s differ by %.2g of the least of their norms from the numeric slope", tensor, worst)
	}
}

// TestLayerGradients holds the gradients of a layer's inputs, and of its weights, to numeric
// derivatives of the layer alone, for sequences of several blocks of queries.
func TestLayerGradients(t *testing.T) {
	testshared.SlowEmulated(t, "TestGradientBits has the bits")
	const n = 64
	for i, c := range torchCases(t) {
		t.Run(filepath.Base(c.dir), func(t *testing.T) {
			if i%8 != 0 {
				testshared.SlowEmulated(t, "TestGradientBits has the bits")
			}
			m := openCase(t, c.dir, Options{Threads: 2})
			ids := someTokens(n, m.VocabSize())
			sequences := [][]int32{ids[:40], ids[40:41], ids[41:]}
			tape, err := m.NewTape(TapeOptions{MaxTokens: n, MaxLength: 40})
			if err != nil {
				t.Fatal(err)
			}
			if err := tape.Forward(sequences, nil); err != nil {
				t.Fatal(err)
			}
			h := m.Width()
			r := newReference(t, m, sequences, tape.Routing())
			in := &LayerInput{X: slices.Clone(tape.states[1][:n*h]), Experts: tape.Routing()[1]}
			for _, ids := range sequences {
				in.Lengths = append(in.Lengths, len(ids))
			}
			rng := rand.New(rand.NewPCG(43, 44))
			a, dir := make([]float32, n*h), make([]float64, n*h)
			for i := range a {
				a[i], dir[i] = float32(rng.NormFloat64()), rng.NormFloat64()
			}
			loss := func(step float64) (sum float64) {
				token := 0
				for _, length := range in.Lengths {
					x := make([][]float64, length)
					for p := range x {
						for j := range h {
							at := (token+p)*h + j
							x[p] = append(x[p], float64(in.X[at])+step*dir[at])
						}
					}
					r.layer(1, token, x)
					for p := range x {
						for j, v := range x[p] {
							sum += float64(a[(token+p)*h+j]) * v
						}
					}
					token += length
				}
				return sum
			}
			dx, all := make([]float32, n*h), gradients{}
			run := func(dx []float32, g *Gradients) {
				if err := tape.LayerBackward(1, in, func(out []float32) error { copy(out, a); return nil }, g, dx); err != nil {
					t.Fatal(err)
				}
			}
			run(dx, all.collect(t, 100))
			const step = 1e-5
			slope, square, want := 0.0, 0.0, (loss(step)-loss(-step))/(2*step)
			for i, v := range dx {
				slope, square = slope+float64(v)*dir[i], square+float64(v)*float64(v)
			}
			if err := math.Abs(slope-want) / math.Sqrt(square); !(err < 1e-4) {
				t.Errorf("the gradient of the input differs by %.2g of its norm from the numeric one", err)
			}
			// The gradients of weights do not depend on what else is wanted.
			again := gradients{}
			run(nil, &Gradients{Linear: again.collect(t, 3).Linear})
			for name, g := range again {
				sameBits(t, name, g, all[name])
			}
			if want := len(all) - len(again); len(again) == 0 || want < 1 {
				t.Errorf("%d gradients, of them %d of linear layers", len(all), len(again))
			}
		})
	}
}
