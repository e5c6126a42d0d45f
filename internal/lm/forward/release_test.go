package forward

import (
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/internal/mmap"
	"github.com/lowbit-go/gq/internal/test/testmapped"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// TestStreamReleases advances a Stream layer by layer: the map of one layer is in memory at a time.
func TestStreamReleases(t *testing.T) {
	dir := filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16")
	m, err := OpenCheckpoint(dir, Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := m.NewStream([][]int32{make([]int32, releaseRows), {6, 7}})
	if err != nil {
		t.Fatal(err)
	}
	const layer = 393_728 // bytes of the tensors of a layer
	for i := range m.Config().Layers {
		for block := range s.Blocks(i) {
			for seq := range s.Len() {
				if err := s.Advance(seq, i, block); err != nil {
					t.Fatal(err)
				}
			}
		}
		// The system maps up to a granule around a page that is read.
		if n := testmapped.Resident(t, filepath.Join(dir, "model.safetensors")); n < layer-mmap.Granule || n > layer+2*mmap.Granule {
			t.Errorf("behind layer %d: %d bytes are in memory, want about %d", i, n, layer)
		}
	}
	const head = 262_144
	for _, c := range []struct {
		rows        int
		least, most int64
	}{{1, head, head + 2*mmap.Granule}, {releaseRows, 0, 0}} {
		if err := s.Logits(0, 0, c.rows, make([]float32, c.rows*m.VocabSize())); err != nil {
			t.Fatal(err)
		}
		if n := testmapped.Resident(t, filepath.Join(dir, "model.safetensors")); n < c.least || n > c.most {
			t.Errorf("behind the lm_head of %d tokens: %d bytes are in memory, want %d to %d", c.rows, n, c.least, c.most)
		}
	}
}

// TestPackedReleases: a model that has copied its weights holds none of the map in memory.
func TestPackedReleases(t *testing.T) {
	dir := filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16")
	for _, packed := range []bool{false, true} {
		m, err := OpenCheckpoint(dir, Options{Threads: 1, Packed: packed})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.NewSession(4).Forward([]int32{1, 2}, make([]float32, m.VocabSize()), false); err != nil {
			t.Fatal(err)
		}
		if n := testmapped.Resident(t, filepath.Join(dir, "model.safetensors")); (n < 1<<20) != packed {
			t.Errorf("packed %t: %d bytes of the map are in memory", packed, n)
		}
		m.Close()
	}
}
