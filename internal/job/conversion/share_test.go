package conversion

import (
	"fmt"
	"testing"

	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// mixedCheckpoint is a checkpoint whose tensors are cut in every way: tensors of several units,
// stored transposed, tied, unquantized, empty.
func mixedCheckpoint(t testing.TB) string {
	return writeCheckpoint(t, `{"model_type":"gpt2","tie_word_embeddings":true}`,
		testTensor{name: "wte.weight", dtype: packing.BF16, shape: []int64{2000, 768}},
		testTensor{name: "h.0.attn.c_attn.weight", dtype: packing.F32, shape: []int64{768, 700}},
		testTensor{name: "h.0.attn.c_attn.bias", dtype: packing.F32, shape: []int64{700}},
		testTensor{name: "h.0.ln_1.weight", dtype: packing.F32, shape: []int64{768}},
		testTensor{name: "h.0.mlp.c_fc.weight", dtype: packing.F16, shape: []int64{768, 99}},
		testTensor{name: "h.0.empty", dtype: packing.F16, shape: []int64{0}},
	)
}

// TestShares: the shares of every number of parts follow one another from the first unit to the
// last, and none reads more than its part of the bytes and a unit.
func TestShares(t *testing.T) {
	p, err := newPlan(t, mixedCheckpoint(t), Options{Recipe: quantizer.Recipe{Bits: 4, Group: new(32)}})
	if err != nil {
		t.Fatal(err)
	}
	all := p.Units()
	var total, progress, largest int64
	for i := range all.N {
		u := all.At(i)
		total, progress, largest = total+u.ReadBytes(), progress+u.ProgressBytes(), max(largest, u.ReadBytes())
	}
	if progress != p.SourceBytes {
		t.Errorf("all units together make %d bytes, the checkpoint has %d", progress, p.SourceBytes)
	}
	for _, n := range []int{1, 2, 3, 8, all.N, all.N + 5, write.MaxParts} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			next := 0
			for i := range n {
				s := all.Share(write.Part{Index: i, Of: n})
				if s.First != next || s.End < s.First {
					t.Fatalf("part %d has units %d to %d, and the part before it ends at %d", i, s.First, s.End, next)
				}
				next = s.End
				var bytes int64
				for k := s.First; k < s.End; k++ {
					bytes += all.At(k).ReadBytes()
				}
				if most := total/int64(n) + 1 + largest; bytes > most {
					t.Errorf("part %d reads %d bytes, want at most %d", i, bytes, most)
				}
			}
			if next != all.N {
				t.Errorf("the last part ends at unit %d of %d", next, all.N)
			}
		})
	}
	for _, bad := range []write.Part{{}, {Index: -1, Of: 1}, {Index: 1, Of: 1}, {Of: write.MaxParts + 1}} {
		if bad.Check() == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
