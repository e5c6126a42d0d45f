package model

import (
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/buffer"
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
			return nil
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

// TestGradientBits: gradients have the same bits for any number of threads and on every CPU.
func TestGradientBits(t *testing.T) {
	for _, c := range torchCases(t) {
		want := ""
		for _, o := range append([]Options{{Threads: 1}, {Threads: 3}}, everyCPU()...) {
			m := openCase(t, c.dir, o)
			sequences := tapeSequences(m.VocabSize())
			got := gradientsOf(t, m, TapeOptions{MaxTokens: 64, MaxLength: 21, LogitRows: 5}, sequences, nil).hash()
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%s: hash %s with %d threads and CPU %q, want %s", filepath.Base(c.dir), got, o.Threads, o.CPU, want)
			}
		}
	}
}

func everyCPU() (list []Options) {
	for _, cpu := range kernels.Features() {
		list = append(list, Options{Threads: 2, CPU: cpu})
	}
	return list
}

// TestTapeBytes compares the stated memory with the memory that a tape holds.
func TestTapeBytes(t *testing.T) {
	for _, name := range []string{"llama3", "gemma2", "phi4-mini", "qwen3-moe"} {
		for _, threads := range []int{1, 3} {
			m := openCase(t, "testdata/torch/"+name, Options{Threads: threads})
			tokens := someTokens(600, m.VocabSize())
			sequences := [][]int32{tokens[:300], tokens[300:310], tokens[310:600]}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			tape, err := m.NewTape(TapeOptions{MaxTokens: 600, MaxLength: 300, LogitRows: 100})
			if err != nil {
				t.Fatal(err)
			}
			want := tape.Bytes()
			var dst []float32
			for range 3 {
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
			runtime.GC()
			runtime.ReadMemStats(&after)
			got := int64(after.HeapAlloc) - int64(before.HeapAlloc) - int64(4*cap(dst))
			runtime.KeepAlive(dst)
			runtime.KeepAlive(tape)
			t.Logf("%s, %d threads: %d bytes held, %d stated", name, threads, got, want)
			if got > want+want/20 || got < want*2/3 {
				t.Errorf("%s, %d threads: %d bytes held, %d stated", name, threads, got, want)
			}
		}
	}
}
