package forward

import (
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/kernels"
)

// stateCases are the models with states.
func stateCases(t *testing.T, fn func(t *testing.T, m *Model)) {
	n := 0
	for _, c := range torchCases(t) {
		m := openCase(t, c.dir, Options{Threads: 2})
		if config := m.Config(); config.HasStates() {
			n++
			t.Run(filepath.Base(c.dir), func(t *testing.T) { fn(t, m) })
		}
	}
	if n == 0 {
		t.Error("no model has states")
	}
}

// TestStateTruncate: a state goes back to the beginning only.
func TestStateTruncate(t *testing.T) {
	testshared.SlowEmulated(t, "what is known of a sequence is the same natively")
	stateCases(t, func(t *testing.T, m *Model) {
		tokens := someTokens(70, m.VocabSize())
		want := logitsOf(t, m, tokens, 70)
		s := m.NewSession(70)
		got := make([]float32, len(want))
		for i := range 2 {
			if err := s.Forward(tokens, got, true); err != nil {
				t.Fatal(err)
			}
			sameBits(t, "again", got, want)
			if s.Truncate(64) || s.Truncate(1) || !s.Truncate(70) {
				t.Fatal("a state was taken back, or not left alone")
			}
			if i == 0 && !s.Truncate(0) {
				t.Fatal("a session cannot be emptied")
			}
		}
	})
}

// TestStrongDecays holds logits to the float64 reference with the decays of published models before
// training: rates from 1 to 16, so that a state forgets within a few tokens. The vectors of
// Transformers have weaker decays, because Transformers loses precision here: its chunks subtract
// sums of the decays' logarithms over 64 tokens. With the rate 16 everywhere, the 300 tokens of the
// vectors and float64 as the truth, logits of kimi_linear differ by 4.6e-5 of the largest logit
// (root mean square 3.7e-6) in Transformers 5.23, by 2.9e-5 (9.8e-7) in its form for single tokens,
// and by 3.0e-5 (9.7e-7) in gq. The worst row is the same in both: a head's output, before its
// norm 1/70 of the median size, has an error of 5e-5 behind the norm, the median is 3e-7.
func TestStrongDecays(t *testing.T) {
	testshared.SlowEmulated(t, "TestGradientBits has the bits")
	stateCases(t, func(t *testing.T, m *Model) {
		for _, l := range m.layers {
			for _, b := range l.blocks {
				var rate []float64
				if r, ok := b.part.(*recurrence); ok {
					switch d := r.mixer.(type) {
					case *deltaNet:
						rate = d.rate
					case *mamba:
						rate = d.rate
					}
				}
				for h := range rate {
					rate[h] = -1 - 15*float64(h)/float64(len(rate)-1)
				}
			}
		}
		const n = 300
		sequences := [][]int32{someTokens(n, m.VocabSize())}
		got := logitsOf(t, m, sequences[0], n)
		tape, err := m.NewTape(TapeOptions{MaxTokens: n, MaxLength: n})
		if err != nil {
			t.Fatal(err)
		}
		if err := tape.Forward(sequences, nil); err != nil {
			t.Fatal(err)
		}
		r := newReference(t, m, sequences, tape.Routing())
		worst, square, largest := 0.0, 0.0, 0.0
		want := r.logits(0, 0, r.embedded(0, n))
		for i, v := range want {
			d := math.Abs(v - float64(got[i]))
			worst, square, largest = max(worst, d), square+d*d, max(largest, math.Abs(v))
		}
		rms := math.Sqrt(square / float64(len(want)))
		t.Logf("off by at most %.2g, root mean square %.2g, of %.3g", worst, rms, largest)
		if !(worst <= 1e-5*largest) || !(rms <= 6e-7*largest) {
			t.Errorf("logits are off by at most %.2g of the largest, root mean square %.2g", worst/largest, rms/largest)
		}
	})
}

// TestStatePrefix: a sequence begins with whole pages of an earlier one, as long as the state
// behind the pages is there.
func TestStatePrefix(t *testing.T) {
	testshared.SlowEmulated(t, "what is known of a sequence is the same natively")
	stateCases(t, func(t *testing.T, m *Model) {
		b := m.NewBatch(2, 900)
		long := someTokens(800, m.VocabSize())
		run := func(slot int, tokens []int32, want int) {
			t.Helper()
			if n := b.Begin(slot, 900, tokens, ""); n != want {
				t.Errorf("a sequence begins with %d tokens, want %d", n, want)
			}
			at := b.Len(slot)
			logits, all := make([]float32, m.VocabSize()), logitsOf(t, m, tokens, len(tokens))
			for at < len(tokens) {
				n := min(200, len(tokens)-at)
				if err := b.Forward([]Chunk{{slot, tokens[at : at+n], 1}}, logits); err != nil {
					t.Fatal(err)
				}
				at += n
			}
			sameBits(t, "last logits", logits, all[(at-1)*m.VocabSize():])
			checkPages(t, b)
		}
		run(0, long[:150], 0)
		run(1, long[:140], 128) // of 139 tokens in common, two pages
		run(1, long[:128], 64)  // the last token needs logits
		run(1, slices.Concat(long[:100], long[700:760]), 64)
		b.End(0)
		b.End(1)
		run(0, long, 128)
		b.End(0)
		run(0, slices.Concat(long[:780], long[:20]), 768)
		b.End(0)
		// The states of the first pages gave way to those of the last.
		if n := b.Known(900, slices.Concat(long[:70], long[:20]), ""); n != 0 {
			t.Errorf("%d tokens known, want 0", n)
		}
	})
}

// failingOperator fails once.
type failingOperator struct {
	kernels.Operator
	fail bool
}

func (f *failingOperator) Forward(w *kernels.Workspace, dst, x []float32, m int) error {
	if f.fail {
		return errStop
	}
	return f.Operator.Forward(w, dst, x, m)
}

// TestStateLost: after passes that failed, their sequences go on, as others do.
func TestStateLost(t *testing.T) {
	testshared.SlowEmulated(t, "errors are the same natively")
	stateCases(t, func(t *testing.T, m *Model) {
		name := m.Head() // it runs when all states have moved
		op := &failingOperator{Operator: m.Linear(name)}
		undo, err := m.SetLinear(name, op, false)
		if err != nil {
			t.Fatal(err)
		}
		defer undo()
		b := m.NewBatch(2, 100)
		tokens := someTokens(20, m.VocabSize())
		want := logitsOf(t, m, tokens, 20)[19*m.VocabSize():]
		got := make([]float32, m.VocabSize())
		for slot := range 2 {
			if err := b.Forward([]Chunk{{slot, tokens[:10], 0}}, nil); err != nil {
				t.Fatal(err)
			}
		}
		op.fail = true
		for range 2 { // the second fails while the states are computed again
			if err := b.Forward([]Chunk{{0, tokens[:10], 1}}, got); err == nil || b.Len(0) != 10 {
				t.Fatalf("%d tokens after a failure, %v", b.Len(0), err)
			}
		}
		op.fail = false
		for slot := range 2 {
			if err := b.Forward([]Chunk{{slot, tokens[10:], 1}}, got); err != nil {
				t.Fatal(err)
			}
			sameBits(t, "after the failures", got, want)
		}
	})
}

// TestStateBytes holds Batch.Bytes and StreamBytes to the memory of full sequences.
func TestStateBytes(t *testing.T) {
	testshared.SlowEmulated(t, "the memory is the same natively")
	live := func() int64 {
		var m runtime.MemStats
		collect()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	stateCases(t, func(t *testing.T, m *Model) {
		tokens := someTokens(800, m.VocabSize())
		before := live()
		b := m.NewBatch(3, 800)
		for slot := range 3 {
			for at := 0; at < 800; at += 200 {
				if err := b.Forward([]Chunk{{slot, tokens[at : at+200], 0}}, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		// At most all of it, and most of it: activations are for larger passes.
		got, want := live()-before, b.Bytes()
		t.Logf("batch: %d bytes held, %d stated", got, want)
		if got > want+want/10 || got < want/2 {
			t.Errorf("a batch holds %d bytes, %d are stated", got, want)
		}
		runtime.KeepAlive(b)

		before = live()
		s, err := m.NewStream([][]int32{tokens[:500], tokens[500:700]})
		if err != nil {
			t.Fatal(err)
		}
		for layer := range m.layers {
			for part := range m.Blocks(layer) {
				for i := range s.Len() {
					if err := s.Advance(i, layer, part); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		hidden, keys, shared := m.StreamBytes(700, 500)
		got, want = live()-before, hidden+keys+shared
		t.Logf("stream: %d bytes held, %d stated", got, want)
		if math.Abs(float64(got)/float64(want)-1) > .25 {
			t.Errorf("a stream holds %d bytes, %d are stated", got, want)
		}
		runtime.KeepAlive(s)
	})
}
