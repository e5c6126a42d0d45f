package llamacpp

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestTokenIndex compares the index with a map, for all divisions of texts in two.
func TestTokenIndex(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 1))
	text := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "\x00ab\xff"[r.IntN(4)]
		}
		return string(b)
	}
	ids, tokens := map[string]int{}, []string{strings.Repeat("a", 3*maxToken), strings.Repeat("b", maxToken)}
	for range 3000 {
		tokens = append(tokens, text(1+r.IntN(9)))
	}
	x := newTokenIndex(tokens)
	for id, token := range tokens {
		hash := x.hash(token)
		s := x.find(hash, token, "")
		if other, ok := ids[token]; ok != (s.id != 0) || ok && other != int(s.id)-1 {
			t.Fatalf("%q: slot of id %d, want %d, %v", token, s.id-1, other, ok)
		}
		if s.id == 0 {
			*s, ids[token] = tokenSlot{hash, int32(id) + 1}, id
		}
	}
	found := 0
	for _, whole := range append([]string{tokens[0], tokens[1]}, text(300), text(300), text(300)) {
		hash, first := x.hash(whole), uint64(0)
		for i := range len(whole) {
			a, b := whole[:i], whole[i:]
			for _, c := range []struct {
				hash uint64
				a, b string
			}{{reduced(first), a, ""}, {x.hash(b), b, ""}, {x.joined(x.hash(a), x.hash(b), len(b)), a, b}} {
				want, ok := ids[c.a+c.b]
				if got, has := x.id(c.hash, c.a, c.b); has != ok || ok && got != want {
					t.Fatalf("%.20q + %.20q: id %d, %v, want %d, %v", c.a, c.b, got, has, want, ok)
				} else if has {
					found++
				}
			}
			if len(b) <= maxToken && x.behind(hash, first, len(b)) != x.hash(b) {
				t.Fatalf("%.20q: another hash of the last %d bytes", whole, len(b))
			}
			first = x.more(first, whole[i])
		}
	}
	if found < 100 {
		t.Errorf("%d texts were found", found)
	}
}

// TestFalling sorts scores.
func TestFalling(t *testing.T) {
	inf := float32(math.Inf(1))
	list := []float32{inf, math.MaxFloat32, 2, 1, math.SmallestNonzeroFloat32, 0, float32(math.Copysign(0, -1)), -math.SmallestNonzeroFloat32, -1, -1.5, -inf}
	for _, a := range list {
		for _, b := range list {
			if got, want := cmp.Compare(falling(a), falling(b)), cmp.Compare(b, a); got != want {
				t.Errorf("%v and %v: %d, want %d", a, b, got, want)
			}
		}
	}
	if !slices.IsSortedFunc(list, func(a, b float32) int { return cmp.Compare(falling(a), falling(b)) }) {
		t.Error("not sorted")
	}
}
