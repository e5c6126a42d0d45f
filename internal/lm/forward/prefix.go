package forward

import (
	"maps"
	"slices"
)

// A class is the sequences with the same frequencies; longrope has two sets of frequencies. Classes
// cannot share keys.
type class struct {
	rotations []*rotation
	roots     map[string]*node // by scope; a root holds no tokens
}

// node is a page of tokens behind the tokens of its parents. Sequences that begin alike have their
// first nodes in common.
type node struct {
	parent   *node
	children []*node
	tokens   []int32      // at most pageTokens; fewer only without children
	blocks   []*pageBlock // by group; nil: given up
	open     int          // number of sequences that have the node in their path
}

func (b *Batch) classOf(maxTokens int) *class {
	c := &b.s.m.config
	var rotations []*rotation
	for i := range c.Ropes {
		rotations = append(rotations, newRotation(&c.Ropes[i], maxTokens))
	}
	same := func(a, b *rotation) bool { return slices.Equal(a.freqs, b.freqs) }
	for _, k := range b.classes {
		if slices.EqualFunc(k.rotations, rotations, same) {
			return k
		}
	}
	k := &class{rotations, map[string]*node{}}
	b.classes = append(b.classes, k)
	return k
}

// root returns the node before the first tokens of a scope's sequences. Making a root drops
// unneeded roots, so there are at most as many as pages and sequences.
func (k *class) root(scope string) *node {
	n := k.roots[scope]
	if n == nil {
		maps.DeleteFunc(k.roots, func(_ string, n *node) bool { return n.open == 0 && len(n.children) == 0 })
		n = &node{}
		k.roots[scope] = n
	}
	return n
}

// find returns the nodes of the longest known prefix of the prompt behind a root, and its length.
func find(at *node, prompt []int32) (path []*node, n int) {
	for {
		var next *node
		common := 0
		for _, child := range at.children {
			if c := CommonPrefix(child.tokens, prompt[n:]); c > common {
				next, common = child, c
			}
		}
		if next == nil {
			return path, n
		}
		path, n = append(path, next), n+common
		if common < pageTokens {
			return path, n
		}
		at = next
	}
}

// CommonPrefix returns the number of tokens with which both prompts begin.
func CommonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// known returns the tokens of a prompt with which a sequence of at most limit tokens can begin.
func (b *Batch) known(root *node, prompt []int32, limit int) (path []*node, n int) {
	path, n = find(root, prompt)
	n = b.Shared(max(0, min(n, len(prompt)-1, limit)))
	for n > 0 && !b.pool.holds(path, n) {
		n = (n - 1) / pageTokens * pageTokens
	}
	return path, n
}

// Shared returns how many of the first n tokens that two prompts have in common their sequences can
// share.
func (b *Batch) Shared(n int) int {
	if b.WholePages || b.s.m.config.HasStates() {
		n -= n % pageTokens
	}
	return n
}

// share lets an empty sequence begin with the known tokens of its prompt.
func (b *Batch) share(q *sequence, prompt []int32) {
	path, n := b.known(q.root, prompt, q.max)
	if n == 0 {
		return
	}
	for g, group := range b.pool.groups {
		q.from[g] = group.firstPage(n)
		for _, node := range path[q.from[g]:][:(n+pageTokens-1)/pageTokens-q.from[g]] {
			node.blocks[g].refs++
		}
	}
	whole, rest := n/pageTokens, n%pageTokens
	for _, node := range path[:whole] {
		b.extend(q, node)
	}
	q.n = n
	if rest == 0 {
		return
	}
	last := path[whole]
	if last.open == 0 && len(last.tokens) == rest { // no other sequence appends here
		b.extend(q, last)
		return
	}
	own, err := b.pool.copyOf(last, rest)
	for g := range b.pool.groups {
		b.pool.drop(last, g)
	}
	if err != nil { // not reached: see pagePool.init
		b.end(q)
		return
	}
	b.extend(q, own)
}
