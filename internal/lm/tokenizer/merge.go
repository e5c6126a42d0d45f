package tokenizer

import (
	"container/heap"
	"context"
	"slices"
	"unicode/utf8"
)

// merge is the result of merging a pair of tokens. Pairs of lower rank merge first.
type merge struct {
	rank uint32
	id   int32
}

// pairTable maps pairs of tokens to merges: a hash table with open addressing. With 500,000 merges
// filling takes 10 ms and a look-up 28 ns, compared with 28 ms and 58 ns for a Go map (EPYC).
type pairTable struct {
	slots []pairSlot
	shift uint8
}

type pairSlot struct {
	key uint64 // pairKey plus 1; 0 is an empty slot
	merge
}

// pairKey joins two ids. Ids are not negative.
func pairKey(a, b int32) uint64 { return uint64(a)<<32 | uint64(b) }

func (t *pairTable) init(n int) {
	size := 8
	t.shift = 64 - 3
	for 3*size < 4*n { // at most three quarters are used
		size *= 2
		t.shift--
	}
	t.slots = make([]pairSlot, size)
}

func (t *pairTable) slot(key uint64) *pairSlot {
	i := key * 0x9E3779B97F4A7C15 >> t.shift
	for {
		s := &t.slots[i]
		if s.key == key+1 || s.key == 0 {
			return s
		}
		i = (i + 1) & uint64(len(t.slots)-1)
	}
}

func (t *pairTable) set(key uint64, m merge) {
	*t.slot(key) = pairSlot{key + 1, m}
}

func (t *pairTable) get(a, b int32) (merge, bool) {
	s := t.slot(pairKey(a, b))
	return s.merge, s.key != 0
}

const noRank = 1<<32 - 1

func (t *pairTable) rank(a, b int32) merge {
	if m, ok := t.get(a, b); ok {
		return m
	}
	return merge{noRank, -1}
}

// joints are the pairs of characters that meet where some merge joins its two tokens. The set has a
// bit per hash, so pairs that were not added may be contained.
type joints struct {
	bits []uint64
	all  bool // contains every pair, because tokens do not show their characters
}

const (
	noJoint   = rune(-1)
	jointBits = 20
)

func (j *joints) index(a, b rune) uint64 {
	return (uint64(a)<<32 | uint64(b)) * 0x9E3779B97F4A7C15 >> (64 - jointBits)
}

func (j *joints) has(a, b rune) bool {
	i := j.index(a, b)
	return j.bits != nil && j.bits[i>>6]>>(i&63)&1 != 0
}

func (j *joints) add(joint int32) {
	if joint < 0 {
		j.all = true
		return
	}
	if j.bits == nil {
		j.bits = make([]uint64, 1<<jointBits/64)
	}
	j.bits[joint>>6] |= 1 << (joint & 63)
}

// joint returns the index of the joint of the merge of tokens a and b with the texts left and
// right; -1 for every pair.
func (m *bpe) joint(a, b int32, left, right string) int32 {
	_, x := m.ends(a, left)
	y, _ := m.ends(b, right)
	return m.joints.of(x, y)
}

// of returns the index of the joint of two characters, -1 for every pair if one is noJoint.
func (j *joints) of(a, b rune) int32 {
	if a == noJoint || b == noJoint {
		return -1
	}
	return int32(j.index(a, b))
}

// ends returns the first and the last character of a token, or noJoint. If a token can stand for
// other text than its own, its characters say nothing.
func (m *bpe) ends(id int32, text string) (first, last rune) {
	if m.prefix != "" || text == "" || id == m.unk || m.isByte(id, text) {
		return noJoint, noJoint
	}
	first, _ = utf8.DecodeRuneInString(text)
	last, _ = utf8.DecodeLastRuneInString(text)
	return first, last
}

// isByte reports whether the token with this text stands for a byte.
func (m *bpe) isByte(id int32, text string) bool {
	return m.byteFallback && len(text) == 6 && text[:3] == "<0x" && slices.Contains(m.byteID[:], id)
}

// work is the memory of a call of Encode.
type work struct {
	ctx      context.Context // ends a long call
	steps    uint            // characters so far
	matchers []matcher       // by pre-tokenizer; normalizers use the first too
	ids      []int32         // tokens of the characters to be merged
	spare    []int32         // tokens of an unknown character
	pairs    []merge         // by symbol: the merge with the next symbol
	links    []link
	heap     candidates
}

// scanLimit is the number of symbols up to which scanning all pairs for the best pair is faster
// than a heap.
const scanLimit = 24

// merge appends the tokens into which w.ids merge, and empties w.ids. Each step merges the pair of
// the lowest rank, the leftmost on ties.
func (m *bpe) merge(dst []int32, w *work) []int32 {
	ids := w.ids
	w.ids = ids[:0]
	switch {
	case len(ids) < 2:
		return append(dst, ids...)
	case len(ids) <= scanLimit:
		return append(dst, m.mergeScan(ids, w)...)
	}
	return m.mergeHeap(dst, ids, w)
}

func (m *bpe) mergeScan(ids []int32, w *work) []int32 {
	pairs := w.pairs[:0]
	for i := range len(ids) - 1 {
		pairs = append(pairs, m.merges.rank(ids[i], ids[i+1]))
	}
	w.pairs = pairs
	for {
		best := -1
		rank := uint32(noRank)
		for i := range pairs {
			if pairs[i].rank < rank {
				best, rank = i, pairs[i].rank
			}
		}
		if best < 0 {
			return ids
		}
		ids[best] = pairs[best].id
		ids = append(ids[:best+1], ids[best+2:]...)
		pairs = append(pairs[:best], pairs[best+1:]...)
		if best > 0 {
			pairs[best-1] = m.merges.rank(ids[best-1], ids[best])
		}
		if best < len(pairs) {
			pairs[best] = m.merges.rank(ids[best], ids[best+1])
		}
	}
}

// link is a symbol of a long word: its token and its neighbours, or -1.
type link struct {
	id         int32 // -1 after merging into the previous symbol
	prev, next int32
}

// candidate is a pair that may merge: the symbol at pos with the next symbol.
type candidate struct {
	rank uint32
	pos  int32
	id   int32
}

func (m *bpe) mergeHeap(dst, ids []int32, w *work) []int32 {
	links, h := w.links[:0], &w.heap
	*h = (*h)[:0]
	for i, id := range ids {
		links = append(links, link{id, int32(i) - 1, int32(i) + 1})
	}
	links[len(links)-1].next = -1
	offer := func(pos int32) {
		if c, ok := m.merges.get(links[pos].id, links[links[pos].next].id); ok {
			*h = append(*h, candidate{c.rank, pos, c.id})
			heap.Fix(h, len(*h)-1)
		}
	}
	for i := range len(ids) - 1 {
		offer(int32(i))
	}
	for len(*h) > 0 {
		last := len(*h) - 1
		top := (*h)[0]
		h.Swap(0, last)
		*h = (*h)[:last]
		if last > 0 {
			heap.Fix(h, 0)
		}
		// Symbols may have changed since the candidate was added.
		left := &links[top.pos]
		if left.id < 0 || left.next < 0 {
			continue
		}
		right := &links[left.next]
		if now, ok := m.merges.get(left.id, right.id); !ok || now.id != top.id {
			continue
		}
		left.id, right.id = top.id, -1
		if left.next = right.next; left.next >= 0 {
			links[left.next].prev = top.pos
			offer(top.pos)
		}
		if left.prev >= 0 {
			offer(left.prev)
		}
	}
	for at := int32(0); at >= 0; at = links[at].next {
		dst = append(dst, links[at].id)
	}
	w.links = links
	return dst
}

// candidates are a heap, whose Push and Pop are not used: these would allocate.
type candidates []candidate

func (h candidates) Len() int      { return len(h) }
func (h candidates) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h candidates) Push(any)      {}
func (h candidates) Pop() any      { return nil }
func (h candidates) Less(i, j int) bool {
	return h[i].rank < h[j].rank || h[i].rank == h[j].rank && h[i].pos < h[j].pos
}
