package conversion

import (
	"fmt"
	"testing"

	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// mixedCheckpoint is a checkpoint whose tensors are cut in every way: tensors of several units, stored
// transposed, tied, unquantized, empty.
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

// TestShares: the shares of every number of parts follow one another from the first unit to the last,
// and none reads more than its part of the bytes and a unit.
func TestShares(t *testing.T) {
	p, err := newPlan(t, mixedCheckpoint(t), Options{Recipe: quantizer.Recipe{Bits: 4, Group: 32}})
	if err != nil {
		t.Fatal(err)
	}
	all := p.units()
	var total, progress, largest int64
	for i := range all.n {
		u := all.at(i)
		total, progress, largest = total+u.readBytes(), progress+u.progressBytes(), max(largest, u.readBytes())
	}
	if progress != p.WorkBytes() {
		t.Errorf("all units together make %d bytes, the checkpoint has %d", progress, p.WorkBytes())
	}
	for _, n := range []int{1, 2, 3, 8, all.n, all.n + 5, MaxParts} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			next := 0
			for i := range n {
				s := all.share(Part{i, n})
				if s.first != next || s.end < s.first {
					t.Fatalf("part %d has units %d to %d, and the part before it ends at %d", i, s.first, s.end, next)
				}
				next = s.end
				var bytes int64
				for k := s.first; k < s.end; k++ {
					bytes += all.at(k).readBytes()
				}
				if most := total/int64(n) + 1 + largest; bytes > most {
					t.Errorf("part %d reads %d bytes, want at most %d", i, bytes, most)
				}
			}
			if next != all.n {
				t.Errorf("the last part ends at unit %d of %d", next, all.n)
			}
		})
	}
	for _, bad := range []Part{{0, 0}, {-1, 1}, {1, 1}, {0, MaxParts + 1}} {
		if bad.Check() == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
