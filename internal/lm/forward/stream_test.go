package forward

import (
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// TestStream runs sequences layer by layer, and compares their logits with the logits of sessions.
func TestStream(t *testing.T) {
	for _, name := range []string{"llama3", "gemma2", "gemma3", "phi3", "mixtral", "qwen3-moe", "qwen2-window", "smollm3"} {
		t.Run(name, func(t *testing.T) {
			if name != "llama3" && name != "qwen3-moe" {
				testshared.SlowEmulated(t, "TestGoldenLogits and TestTorch have the bits")
			}
			testStream(t, filepath.Join("testdata", "torch", name))
		})
	}
	t.Run("books", func(t *testing.T) { testStream(t, filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16")) })
}

func testStream(t *testing.T, dir string) {
	m, err := OpenCheckpoint(dir, Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	vocab := m.VocabSize()
	var sequences [][]int32
	for i, n := range []int{37, 1, 70} {
		var ids []int32
		for p := range n {
			ids = append(ids, int32((p*31+i*7+p*p*3)%vocab))
		}
		sequences = append(sequences, ids)
	}
	stream, err := m.NewStream(sequences)
	if err != nil {
		t.Fatal(err)
	}
	if stream.Len() != 3 || stream.Tokens() != 108 {
		t.Fatalf("%d sequences of %d tokens", stream.Len(), stream.Tokens())
	}
	finished, err := m.NewStream(sequences) // moves on by Finish
	if err != nil {
		t.Fatal(err)
	}
	for layer := range m.Config().Layers {
		var want, got []string
		for _, stage := range m.Stages(layer) {
			for _, g := range stage {
				want = append(want, g.Linears...)
			}
		}
		for part := range m.Blocks(layer) {
			var last []float32 // inputs of the block's last linear layer
			experts := m.layers[layer].blocks[part].last() == nil
			for q := range sequences {
				var inputs []float32
				before := slices.Clone(stream.Hidden(q))
				err := stream.Visit(q, layer, part, func(in *Input) bool {
					if len(in.X) != in.Rows*in.K || in.Tokens != nil && len(in.Tokens) != in.Rows {
						t.Errorf("%s: %d values, %d x %d, %d tokens", in.Name, len(in.X), in.Rows, in.K, len(in.Tokens))
					}
					if slices.Contains(want, in.Name) && !slices.Contains(got, in.Name) {
						got = append(got, in.Name)
					}
					return true
				})
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(before, stream.Hidden(q)) {
					t.Fatal("Visit changed the hidden states")
				}
				visits := 0
				if err := stream.Visit(q, layer, part, func(*Input) bool { visits++; return false }); err != nil || visits != 1 {
					t.Fatalf("%d visits, %v", visits, err)
				}
				see := func(in *Input) { inputs = append(inputs[:0], in.X...) }
				if err := stream.AdvanceVisit(q, layer, part, see); err != nil {
					t.Fatal(err)
				}
				if last = append(last, inputs...); experts {
					if err := finished.Advance(q, layer, part); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !experts {
				if err := finished.Finish(layer, part, last); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(stream.x, finished.x) {
				t.Fatalf("layer %d, half %d: Finish has other hidden states than Advance", layer, part)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if m.Config().Experts == nil && !slices.Equal(want, got) {
			t.Errorf("layer %d: linears %v, visited %v", layer, want, got)
		}
	}
	for q, ids := range sequences {
		s := m.NewSession(70)
		want := make([]float32, len(ids)*vocab)
		if err := s.Forward(ids, want, true); err != nil {
			t.Fatal(err)
		}
		got := make([]float32, len(ids)*vocab)
		stream.s.logits(got, stream.Hidden(q), len(ids))
		if !slices.Equal(want, got) {
			t.Errorf("sequence %d: the stream's logits are others", q)
		}
	}
}

// TestStreamBytes compares StreamBytes with the memory that a Stream keeps.
func TestStreamBytes(t *testing.T) {
	testshared.SlowEmulated(t, "the memory is the same natively")
	m, err := OpenCheckpoint(testmodels.Books(t, 2), Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	live := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	inputs := make([]float32, 1100*m.config.Intermediate)
	run := func(o *Stream) (s *Stream, bytes int64) {
		t.Helper()
		before := live()
		s, err := m.NewStream([][]int32{make([]int32, 500), make([]int32, 200), make([]int32, 400)})
		if err != nil {
			t.Fatal(err)
		}
		if o != nil {
			s.ShareMemory(o)
		}
		for part := range m.Blocks(0) {
			for i := range s.Len() {
				if err := s.Advance(i, 0, part); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.Finish(0, 1, inputs); err != nil {
			t.Fatal(err)
		}
		return s, live() - before
	}
	hidden, keys, shared := m.StreamBytes(1100, 500)
	first, bytes := run(nil)
	if want := hidden + keys + shared; math.Abs(float64(bytes)/float64(want)-1) > .1 {
		t.Errorf("a Stream of 1100 tokens has %d bytes, %d are stated", bytes, want)
	}
	// with tables for positions
	if _, bytes := run(first); bytes < hidden+keys || bytes > 2*(hidden+keys) {
		t.Errorf("a Stream in the memory of another one has %d bytes, %d are stated", bytes, hidden+keys)
	}
	runtime.KeepAlive(first)
	runtime.KeepAlive(inputs)
}
