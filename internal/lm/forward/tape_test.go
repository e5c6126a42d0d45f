package forward

import (
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/kernels"
)

// tapeSequences are sequences of several lengths: longer than the windows of the test models, and
// of one token.
func tapeSequences(vocab int) [][]int32 {
	tokens := someTokens(64, vocab)
	return [][]int32{tokens[:21], tokens[21:22], tokens[22:40]}
}

// gradients are all gradients of a backward pass, by the names of tensors; "embedding" are the
// gradients of the looked-up rows.
type gradients map[string][]float32

// testLoss has random coefficients for a loss of the logits: the sum of a l + b l^2 / 2.
type testLoss struct{ a, b [][]float32 }

func newTestLoss(sequences [][]int32, vocab int) *testLoss {
	rng := rand.New(rand.NewPCG(31, 32))
	l := &testLoss{}
	for _, ids := range sequences {
		a, b := make([]float32, len(ids)*vocab), make([]float32, len(ids)*vocab)
		for i := range a {
			a[i], b[i] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
		}
		l.a, l.b = append(l.a, a), append(l.b, b)
	}
	return l
}

// gradient replaces logits by the gradients of the loss.
func (l *testLoss) gradient(sequence, at int, logits []float32) {
	for i, v := range logits {
		logits[i] = l.a[sequence][at+i] + float32(l.b[sequence][at+i]*v)
	}
}

// collect makes Gradients that add to all.
func (all gradients) collect(t testing.TB, rows int) *Gradients {
	add := func(name string, at int, x []float32) {
		if all[name] == nil {
			all[name] = make([]float32, at+len(x))
		}
		to := all[name]
		if len(to) < at+len(x) {
			to = append(to, make([]float32, at+len(x)-len(to))...)
			all[name] = to
		}
		for i, v := range x {
			to[at+i] += v
		}
	}
	return &Gradients{
		Linear: func(g *LinearGradient) error {
			if len(g.X) != g.M*g.K || len(g.DY) != g.M*g.N || g.Tokens != nil && len(g.Tokens) != g.M {
				t.Errorf("%s: %d inputs and %d outputs of %d tokens, %d x %d, %d indices", g.Name, len(g.X), len(g.DY), g.M, g.N, g.K, len(g.Tokens))
			}
			for from := 0; from < g.N; from += rows {
				n := min(rows, g.N-from)
				dst := make([]float32, n*g.K)
				if err := g.Weights(dst, from, n); err != nil {
					return err
				}
				add(g.Name, from*g.K, dst)
			}
			if g.Y == nil {
				return nil
			}
			factors := make([]float32, g.N)
			err := g.Factors(factors)
			add(g.Name+" factors", 0, factors)
			return err
		},
		Norm: func(tensor string, gradient []float32) error {
			if all[tensor] != nil {
				t.Errorf("norm %s comes twice", tensor)
			}
			add(tensor, 0, gradient)
			return nil
		},
		Embedding: func(sequence int, gradient []float32) error {
			add("embedding", len(all["embedding"]), gradient)
			return nil
		},
	}
}

// gradientsOf runs a tape forward and backward.
func gradientsOf(t testing.TB, m *Model, o TapeOptions, sequences [][]int32, routing [][]int32) gradients {
	t.Helper()
	loss := newTestLoss(sequences, m.VocabSize())
	tape, err := m.NewTape(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := tape.Forward(sequences, routing); err != nil {
		t.Fatal(err)
	}
	all := gradients{}
	err = tape.Backward(func(sequence, from, n int, logits []float32) error {
		loss.gradient(sequence, from*m.VocabSize(), logits)
		return nil
	}, all.collect(t, 7))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func totalTokens(sequences [][]int32) (n int) {
	for _, ids := range sequences {
		n += len(ids)
	}
	return n
}

// TestTapeForward: the logits of a tape have the bits of a session, and so has a layer that runs
// alone.
func TestTapeForward(t *testing.T) {
	testshared.SlowEmulated(t, "TestGradientBits has the bits")
	for _, c := range torchCases(t) {
		t.Run(filepath.Base(c.dir), func(t *testing.T) {
			m := openCase(t, c.dir, Options{Threads: 2})
			sequences := tapeSequences(m.VocabSize())
			tape, err := m.NewTape(TapeOptions{MaxTokens: totalTokens(sequences), MaxLength: 21})
			if err != nil {
				t.Fatal(err)
			}
			if err := tape.Forward(sequences, nil); err != nil {
				t.Fatal(err)
			}
			var hidden [2][]float32
			for i, ids := range sequences {
				got := make([]float32, len(ids)*m.VocabSize())
				if err := tape.Logits(i, 0, len(ids), got); err != nil {
					t.Fatal(err)
				}
				s := m.NewSession(21)
				want := make([]float32, len(got))
				if err := s.Forward(ids, want, true); err != nil {
					t.Fatal(err)
				}
				sameBits(t, fmt.Sprintf("sequence %d", i), got, want)
				for j := range hidden {
					hidden[j] = append(hidden[j], tape.Hidden(1+j, i)...)
				}
			}
			out := make([]float32, len(hidden[0]))
			in := &LayerInput{Lengths: []int{21, 1, 18}, X: hidden[0], Experts: tape.Routing()[1]}
			if err := tape.LayerForward(1, in, out); err != nil {
				t.Fatal(err)
			}
			sameBits(t, "a layer alone", out, hidden[1])
		})
	}
}

// hash is a checksum of all gradients.
func (all gradients) hash() string {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		h.Write([]byte(name))
		for _, v := range all[name] {
			u := math.Float32bits(v)
			h.Write([]byte{byte(u), byte(u >> 8), byte(u >> 16), byte(u >> 24)})
		}
	}
	return fmt.Sprintf("%08x", h.Sum32())
}

// TestGradientBits: gradients have the bits of testdata/gradients.txt, for any number of threads
// and on every CPU.
func TestGradientBits(t *testing.T) {
	golden := filepath.Join("testdata", "gradients.txt")
	raw, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	want, lines := map[string]string{}, []string(nil)
	for line := range strings.Lines(string(raw)) {
		name, hash, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[name] = hash
	}
	cpus := everyCPU()
	for i, c := range torchCases(t) {
		name := filepath.Base(c.dir)
		// The models take turns with the instruction sets: package kernels compares every kernel's
		// bits.
		options := []Options{{Threads: 1}, {Threads: 3}, cpus[i%len(cpus)]}
		if testing.Short() && runtime.GOARCH == "arm64" { // emulated
			options = options[i%2:][:1]
		}
		for _, o := range options {
			m := openCase(t, c.dir, o)
			sequences := tapeSequences(m.VocabSize())
			got := gradientsOf(t, m, TapeOptions{MaxTokens: 64, MaxLength: 21, LogitRows: 5}, sequences, nil).hash()
			if flag.Lookup("update").Value.String() == "true" && o.CPU == "" && o.Threads == 1 {
				want[name], lines = got, append(lines, name+" "+got+"\n")
			}
			if got != want[name] {
				t.Errorf("%s: hash %s with %d threads and CPU %q, want %s", name, got, o.Threads, o.CPU, want[name])
			}
		}
	}
	if lines != nil {
		if err := os.WriteFile(golden, []byte(strings.Join(lines, "")), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func everyCPU() (list []Options) {
	for _, cpu := range kernels.Features() {
		list = append(list, Options{Threads: 2, CPU: cpu})
	}
	return list
}

// collect frees all garbage. Memory in pools, and memory with cleanups, outlives the first
// collection.
func collect() {
	for range 3 {
		runtime.GC()
	}
}

// TestTapeBytes compares the stated memory with the memory that a tape holds.
func TestTapeBytes(t *testing.T) {
	testshared.SlowEmulated(t, "the memory is the same natively")
	for _, c := range torchCases(t) {
		name := filepath.Base(c.dir)
		if !slices.Contains([]string{"llama3", "gemma2", "phi4-mini", "qwen3-moe", "lfm2", "qwen3-5", "falcon-h1-norm", "nemotron-h", "kimi-linear"}, name) {
			continue
		}
		for _, threads := range []int{1, 3} {
			m := openCase(t, c.dir, Options{Threads: threads})
			tokens := someTokens(600, m.VocabSize())
			sequences := [][]int32{tokens[:300], tokens[300:310], tokens[310:600]}
			var before, after runtime.MemStats
			collect()
			runtime.ReadMemStats(&before)
			tape, err := m.NewTape(TapeOptions{MaxTokens: 600, MaxLength: 300, LogitRows: 100})
			if err != nil {
				t.Fatal(err)
			}
			want := tape.Bytes()
			var dst []float32
			for range 2 { // the second pass has the first one's memory
				if err := tape.Forward(sequences, nil); err != nil {
					t.Fatal(err)
				}
				err := tape.Backward(func(_, _, _ int, logits []float32) error { clear(logits); return nil }, &Gradients{
					Linear: func(g *LinearGradient) error {
						return g.Weights(buffer.Grow(&dst, g.K*g.N), 0, g.N)
					},
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			collect()
			runtime.ReadMemStats(&after)
			got := int64(after.HeapAlloc) - int64(before.HeapAlloc) - int64(4*cap(dst))
			runtime.KeepAlive(dst)
			runtime.KeepAlive(tape)
			t.Logf("%s, %d threads: %d bytes held, %d stated", name, threads, got, want)
			const rounding = 1 << 16 // of about 40 allocations: Go gives large ones whole pages of 8 KiB
			if got > want+want/20+rounding || got < want*2/3 {
				t.Errorf("%s, %d threads: %d bytes held, %d stated", name, threads, got, want)
			}
		}
	}
}

// TestSetNorm replaces gains: with the stored ones nothing changes, with others logits do, and undo
// brings the bits back.
func TestSetNorm(t *testing.T) {
	for _, name := range []string{"gemma3", "qwen3"} {
		m := openCase(t, "testdata/torch/"+name, Options{Threads: 1})
		tokens := someTokens(9, m.VocabSize())
		want := logitsOf(t, m, tokens, 9)
		norms := m.Norms()
		perLayer := 4 // input, before the feed-forward network, q, k
		if m.config.Facts.Has(arch.PostAttentionNorm) {
			perLayer = 6
		}
		if len(norms) != 1+perLayer*len(m.layers) || norms[0] != m.norm.Norm {
			t.Fatalf("%s: %d norms, the first is %q", name, len(norms), norms[0].Tensor)
		}
		for _, n := range norms {
			gains, err := m.NormGains(n.Tensor)
			if err != nil {
				t.Fatal(err)
			}
			undo := func() {}
			set := func() {
				if undo, err = m.SetNorm(n.Tensor, gains); err != nil {
					t.Fatal(err)
				}
			}
			set()
			sameBits(t, name+" with its own gains", logitsOf(t, m, tokens, 9), want)
			for i := range gains {
				gains[i] += 0.5
			}
			set()
			if slices.Equal(logitsOf(t, m, tokens, 9), want) {
				t.Errorf("%s: other gains of %s change nothing", name, n.Tensor)
			}
			undo()
			sameBits(t, name+" undone", logitsOf(t, m, tokens, 9), want)
			if len(gains) != n.Width || n.PlusOne != m.config.PlusOne {
				t.Errorf("%s: %+v", name, n)
			}
		}
		if _, err := m.SetNorm(norms[0].Tensor, make([]float32, 3)); err == nil {
			t.Error("3 gains: no error")
		}
		if _, err := m.SetNorm("norm", nil); err == nil {
			t.Error("no norm: no error")
		}
		if _, err := m.NormGains("norm"); err == nil {
			t.Error("gains of no norm: no error")
		}
	}
}

// opaque is an operator whose rows cannot be read.
type opaque struct{ kernels.Operator }

// TestTapeRefuses: wrong sizes, tokens and choices of experts are errors, and so are operators
// without rows.
func TestTapeRefuses(t *testing.T) {
	m := openCase(t, "testdata/torch/mixtral", Options{Threads: 1})
	for _, o := range []TapeOptions{{}, {MaxTokens: 3, MaxLength: -1}, {MaxTokens: 3, LogitRows: -1}} {
		if _, err := m.NewTape(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	tape, err := m.NewTape(TapeOptions{MaxTokens: 6, MaxLength: 4})
	if err != nil {
		t.Fatal(err)
	}
	none := func(int, int, int, []float32) error { return nil }
	refused := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	refused("no Forward", tape.Backward(none, &Gradients{}))
	refused("no sequences", tape.Forward(nil, nil))
	refused("an empty sequence", tape.Forward([][]int32{{1}, {}}, nil))
	refused("a long sequence", tape.Forward([][]int32{{1, 1, 1, 1, 1}}, nil))
	refused("many tokens", tape.Forward([][]int32{{1, 1, 1, 1}, {1, 1, 1}}, nil))
	refused("a token beyond the vocabulary", tape.Forward([][]int32{{int32(m.VocabSize())}}, nil))
	refused("the routing of one layer", tape.Forward([][]int32{{1}}, [][]int32{{0, 1}}))
	refused("a choice too few", tape.Forward([][]int32{{1}}, [][]int32{{0}, {0, 1}}))
	refused("expert 4", tape.Forward([][]int32{{1}}, [][]int32{{0, 4}, {0, 1}}))
	refused("Backward after a failed Forward", tape.Backward(none, &Gradients{}))
	if err := tape.Forward([][]int32{{1, 2}}, [][]int32{{0, 1, 2, 3}, {3, 0, 1, 0}}); err != nil {
		t.Fatal(err)
	}
	if got := tape.Routing(); !slices.Equal(got[0], []int32{0, 1, 2, 3}) || !slices.Equal(got[1], []int32{3, 0, 1, 0}) {
		t.Errorf("routing %v", got)
	}
	x := make([]float32, 2*m.config.HiddenSize)
	in := &LayerInput{Lengths: []int{2}, X: x}
	refused("layer 2", tape.LayerForward(2, in, x))
	refused("no room", tape.LayerForward(0, in, x[1:]))
	refused("hidden states of one token", tape.LayerForward(0, &LayerInput{Lengths: []int{1}, X: x}, x))
	refused("Backward after a layer alone", tape.Backward(none, &Gradients{}))
	stop := errors.New("stop")
	if err := tape.LayerBackward(0, in, func([]float32) error { return stop }, &Gradients{}, x); !errors.Is(err, stop) {
		t.Errorf("error %v, want the callback's", err)
	}
	undo, err := m.SetLinear("model.layers.0.self_attn.o_proj.weight", opaque{m.Linear("model.layers.0.self_attn.o_proj.weight")}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer undo()
	err = tape.LayerBackward(0, in, func([]float32) error { return nil }, &Gradients{}, nil)
	if err == nil || !strings.Contains(err.Error(), "o_proj") {
		t.Errorf("an operator without rows: error %v", err)
	}
}
