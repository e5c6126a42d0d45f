package text

import (
	"runtime"
	"testing"
	"weak"

	"github.com/lowbit-go/gq/internal/lm/forward"
)

// TestTextKeepsNoMemory checks that a written text, which lives as long as the job, does not keep
// the memory that writing it took: keys and values of all sequences.
func TestTextKeepsNoMemory(t *testing.T) {
	m, err := forward.OpenCheckpoint("../../../testdata/books1.3M-bf16", forward.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p := newPasses(m, []WriteOptions{{Tokens: 64, Window: 16, Seed: 1}})
	for range 4 {
		if err := p.step(p.writers); err != nil {
			t.Fatal(err)
		}
	}
	text, err := p.writers[0].text()
	if err != nil {
		t.Fatal(err)
	}
	batch := weak.Make(p.batch)
	p = nil
	runtime.GC()
	if batch.Value() != nil {
		t.Error("a text keeps the batch that wrote it")
	}
	if *text.Seed != 1 || len(text.Sequences) == 0 {
		t.Errorf("seed %d, %d sequences", *text.Seed, len(text.Sequences))
	}
}
