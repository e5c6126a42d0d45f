package tokenizer

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// randomBPE returns a model over the letters a to d with random merges.
func randomBPE(r *rand.Rand, merges int) *bpe {
	m := &bpe{unk: -1}
	m.vocab.init(merges + 4)
	add := func(s string) int32 {
		if id, ok := m.id(s); ok {
			return id
		}
		id := int32(len(m.tokens))
		m.tokens = append(m.tokens, "")
		m.addToken(m.vocab.key(s), s, id)
		return id
	}
	for _, s := range []string{"a", "b", "c", "d"} {
		add(s)
	}
	m.merges.init(merges)
	for rank := range merges {
		a, b := int32(r.IntN(len(m.tokens))), int32(r.IntN(len(m.tokens)))
		if len(m.tokens[a])+len(m.tokens[b]) > 12 {
			continue
		}
		m.merges.set(pairKey(a, b), merge{uint32(rank), add(m.tokens[a] + m.tokens[b])})
	}
	m.indexCharacters()
	for i, a := range m.tokens {
		for j := range m.tokens {
			if _, ok := m.merges.get(int32(i), int32(j)); ok && a != "" {
				m.joints.add(m.joint(int32(i), int32(j), a, m.tokens[j]))
			}
		}
	}
	return m
}

// naiveMerge follows the definition: it merges the best pair, the leftmost on ties, until none is
// left.
func naiveMerge(m *bpe, ids []int32) []int32 {
	ids = slices.Clone(ids)
	for {
		best, rank := -1, uint32(noRank)
		for i := range len(ids) - 1 {
			if c := m.merges.rank(ids[i], ids[i+1]); c.rank < rank {
				best, rank = i, c.rank
			}
		}
		if best < 0 {
			return ids
		}
		ids[best] = m.merges.rank(ids[best], ids[best+1]).id
		ids = slices.Delete(ids, best+1, best+2)
	}
}

func TestMergeIsTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	w := &work{}
	for round := range 400 {
		m := randomBPE(r, 1+round%60)
		word := make([]byte, 2+r.IntN(80))
		var ids []int32
		for i := range word {
			word[i] = 'a' + byte(r.IntN(4))
			ids = append(ids, m.runeID[word[i]])
		}
		want := naiveMerge(m, ids)
		if got := m.mergeScan(slices.Clone(ids), w); !slices.Equal(got, want) {
			t.Fatalf("%s: scan gives %d, want %d", word, got, want)
		}
		if got := m.mergeHeap(nil, slices.Clone(ids), w); !slices.Equal(got, want) {
			t.Fatalf("%s: heap gives %d, want %d", word, got, want)
		}
		// encode divides the word where no merge joins its characters.
		if got, err := m.encode(nil, string(word), w); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%s: encode gives %d, %v, want %d", word, got, err, want)
		}
	}
}

func TestPairTable(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var table pairTable
	const n = 5000
	table.init(n)
	want := map[uint64]merge{}
	for i := range n {
		a, b := int32(r.IntN(100)), int32(r.IntN(1<<31-1))
		m := merge{uint32(i), b}
		want[pairKey(a, b)] = m
		table.set(pairKey(a, b), m)
	}
	for key, m := range want {
		if got, ok := table.get(int32(key>>32), int32(uint32(key))); !ok || got != m {
			t.Fatalf("%#x: %v %v, want %v", key, got, ok, m)
		}
	}
	if m, ok := table.get(101, 5); ok {
		t.Errorf("a pair that was not put in: %v", m)
	}
}
