package forward

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// torchCase is the output of another implementation for a tiny random model: one in PyTorch, with
// all logits and the weights, or Transformers, with some logits.
type torchCase struct {
	dir       string
	tokens    [][]int32
	positions [][]int   // of the tokens of each sequence whose logits are known; nil: all
	logits    []float32 // of all sequences
	limit     float64   // of the difference of a logit, as a part of the largest
}

func torchCases(t testing.TB) []torchCase {
	t.Helper()
	files, err := filepath.Glob("testdata/torch/*/vectors.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	var cases []torchCase
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v struct {
			Tokens     [][]int32 `json:"tokens"`
			LogitsFile string    `json:"logits_file"`
		}
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		dir := filepath.Dir(file)
		cases = append(cases, torchCase{dir, v.Tokens, nil, floatsOf(testshared.VectorsZst(t, filepath.Join(dir, v.LogitsFile))), 1e-4})
	}
	for _, g := range testmodels.AllGenerated(t) {
		cases = append(cases, generatedCase(t, g))
	}
	return cases
}

func generatedCase(t testing.TB, g *testmodels.Generated) torchCase {
	c := torchCase{dir: filepath.Join(t.TempDir(), g.Name), logits: g.Logits, limit: 1e-5}
	g.Write(t, c.dir)
	for _, s := range g.Sequences {
		c.tokens, c.positions = append(c.tokens, s.Tokens), append(c.positions, s.Positions)
	}
	return c
}

// floatsOf reads little-endian float32.
func floatsOf(b []byte) []float32 {
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(uint32(b[4*i]) | uint32(b[4*i+1])<<8 | uint32(b[4*i+2])<<16 | uint32(b[4*i+3])<<24)
	}
	return x
}

func openCase(t testing.TB, dir string, o Options) *Model {
	t.Helper()
	m, err := OpenCheckpoint(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// logitsOf returns the logits of a sequence that arrives in pieces of these sizes; the last size
// repeats.
func logitsOf(t testing.TB, m *Model, tokens []int32, pieces ...int) []float32 {
	t.Helper()
	s := m.NewSession(len(tokens))
	logits := make([]float32, len(tokens)*m.VocabSize())
	for rest := logits; len(tokens) > 0; {
		n := min(pieces[0], len(tokens))
		if err := s.Forward(tokens[:n], rest[:n*m.VocabSize()], true); err != nil {
			t.Fatal(err)
		}
		tokens, rest = tokens[n:], rest[n*m.VocabSize():]
		if len(pieces) > 1 {
			pieces = pieces[1:]
		}
	}
	return logits
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Errorf("%s: logit %d is %v, want the bits of %v", what, i, got[i], want[i])
			return
		}
	}
}

// TestTorch compares every architecture with its vectors.
func TestTorch(t *testing.T) {
	seen := map[string]bool{}
	for i, c := range torchCases(t) {
		t.Run(filepath.Base(c.dir), func(t *testing.T) {
			m := openCase(t, c.dir, Options{Threads: 2})
			seen[m.Config().Architecture] = true
			if i%8 != 0 {
				testshared.SlowEmulated(t, "TestGradientBits has the bits")
			}
			want := c.logits
			for i, tokens := range c.tokens {
				all := logitsOf(t, m, tokens, len(tokens))
				got := all
				if c.positions != nil {
					got = nil
					for _, p := range c.positions[i] {
						got = append(got, all[p*m.VocabSize():][:m.VocabSize()]...)
					}
				}
				if len(want) < len(got) {
					t.Fatalf("%d logits for sequence %d, want %d", len(want), i, len(got))
				}
				largest, worst, at := 0.0, 0.0, 0
				for j := range got {
					largest = max(largest, math.Abs(float64(want[j])))
					if d := math.Abs(float64(got[j]) - float64(want[j])); !(d <= worst) {
						worst, at = d, j
					}
				}
				t.Logf("sequence %d of %d tokens: off by at most %.2g of %.3g", i, len(tokens), worst, largest)
				if !(worst <= c.limit*largest) {
					t.Errorf("sequence %d: logit %d of row %d is %v, want %v", i, at%m.VocabSize(), at/m.VocabSize(), got[at], want[at])
				}
				sameBits(t, "in pieces", logitsOf(t, m, tokens, 3, 1, 7, 1, 16), all)
				want = want[len(got):]
			}
			if len(want) != 0 {
				t.Errorf("%d logits more than tokens ask for", len(want))
			}
		})
	}
	testmodels.All(t, seen)
}

func TestSameBitsOnAnyThreads(t *testing.T) {
	testshared.SlowEmulated(t, "work is divided by the same code natively")
	for _, c := range torchCases(t) {
		var want []float32
		for threads := 1; threads <= 3; threads++ {
			m := openCase(t, c.dir, Options{Threads: threads})
			got := logitsOf(t, m, c.tokens[0], len(c.tokens[0]))
			if want == nil {
				want = got
			}
			sameBits(t, filepath.Base(c.dir), got, want)
		}
	}
}
