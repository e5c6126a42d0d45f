package forward

import (
	"errors"
	"slices"
)

// pagePool owns the pages of a Batch. Caches with the same span form a group, as do caches with
// states. A pageBlock is the pages of a group's caches for the same tokens, taken and
// given up as a whole.
type pagePool struct {
	caches []cache // of which each sequence has its own
	groups []*pageGroup
	clock  uint64 // advances whenever a block is given up
}

type pageGroup struct {
	span         // of the caches, or stateWindow
	caches []int // their indices
	most   int   // limit of blocks
	blocks []*pageBlock
	free   []*pageBlock
}

type pageBlock struct {
	pages []page // by cache of the group
	node  *node  // the node of the block's tokens; nil: free
	refs  int    // sequences that read the block
	since uint64 // the clock when refs last became 0
}

// stateWindow is the window of layers with states: a token sees the state of the page of the token
// before. Layers with a window of two tokens would need the same pages.
const stateWindow = 2

// init decides how many blocks there are. Open sequences never hold all blocks, so take cannot
// fail. A sequence holds at most a block for each page of tokens that it sees, and while it begins,
// the block that it copies.
func (p *pagePool) init(caches []cache, sequences, context int) {
	p.caches = caches
	for i := range caches {
		of := caches[i].span
		if caches[i].state > 0 {
			of = span{window: stateWindow}
		}
		at := slices.IndexFunc(p.groups, func(g *pageGroup) bool { return g.span == of })
		if at < 0 {
			at = len(p.groups)
			p.groups = append(p.groups, &pageGroup{span: of})
		}
		p.groups[at].caches = append(p.groups[at].caches, i)
	}
	for _, g := range p.groups {
		each := pagesOf(context)
		if most := g.window + g.chunk; most > 0 {
			// Twice the pages of a sequence, for the ends of prefixes that other sequences may share.
			each = min(each, 2*(pagesOf(most+prefillChunk+sequences)+1))
		}
		g.most = sequences*each + 1
		if caches[g.caches[0]].state > 0 {
			// A pass of a sequence needs the state before the pass and behind each page; the other states
			// are those of prefixes.
			g.most = min(g.most, 3*sequences+pagesOf(prefillChunk+sequences)+1)
		}
	}
}

func pagesOf(n int) int { return (n + pageTokens - 1) / pageTokens }

func (p *pagePool) stats() (s PageStats) {
	for _, g := range p.groups {
		for _, b := range g.blocks {
			switch {
			case b.refs > 0:
				s.Used += len(g.caches)
			case b.node != nil:
				s.Cached += len(g.caches)
			}
		}
		s.Total += g.most * len(g.caches)
	}
	return s
}

// holds reports whether the pages that the token behind the first n tokens of a path sees are
// there.
func (p *pagePool) holds(path []*node, n int) bool {
	for g, group := range p.groups {
		for _, node := range path[group.firstPage(n):pagesOf(n)] {
			if node.blocks[g] == nil {
				return false
			}
		}
	}
	return true
}

// add adds a node without tokens. The caller holds its blocks.
func (p *pagePool) add(parent *node) (*node, error) {
	n := &node{parent: parent, tokens: make([]int32, 0, pageTokens), blocks: make([]*pageBlock, len(p.groups)), open: 1}
	parent.children = append(parent.children, n)
	var err error
	for g := range p.groups {
		if n.blocks[g], err = p.take(g); err != nil {
			for g := range n.blocks[:g] {
				p.drop(n, g)
			}
			n.open = 0
			p.prune(n)
			return nil, err
		}
		n.blocks[g].node, n.blocks[g].refs = n, 1
	}
	n.open = 0
	return n, nil
}

// copyOf adds a node with the first tokens of another node.
func (p *pagePool) copyOf(from *node, tokens int) (*node, error) {
	n, err := p.add(from.parent)
	if err != nil {
		return nil, err
	}
	n.tokens = append(n.tokens, from.tokens[:tokens]...)
	for g := range p.groups {
		for i := range n.blocks[g].pages {
			to, of := &n.blocks[g].pages[i], &from.blocks[g].pages[i]
			copy(to.keys, of.keys)
			copy(to.values, of.values)
		}
	}
	return n, nil
}

// take takes an unused block, or else the free block that was given up first.
func (p *pagePool) take(g int) (*pageBlock, error) {
	group := p.groups[g]
	if len(group.free) == 0 {
		if len(group.blocks) < group.most {
			b := &pageBlock{pages: make([]page, len(group.caches))}
			for i, at := range group.caches {
				b.pages[i] = p.caches[at].newPage()
			}
			group.blocks = append(group.blocks, b)
			return b, nil
		}
		oldest := (*pageBlock)(nil)
		for _, b := range group.blocks {
			if b.refs == 0 && (oldest == nil || b.since < oldest.since) {
				oldest = b
			}
		}
		if oldest == nil {
			return nil, errors.New("model: all pages of keys and values are in use")
		}
		p.forget(oldest.node, g)
	}
	b := group.free[len(group.free)-1]
	group.free = group.free[:len(group.free)-1]
	return b, nil
}

// drop gives up a sequence's hold on a block of a node.
func (p *pagePool) drop(n *node, g int) {
	b := n.blocks[g]
	if b.refs--; b.refs > 0 {
		return
	}
	p.clock++
	b.since = p.clock
	if len(n.tokens) == 0 {
		p.forget(n, g)
	}
}

// forget frees a node's block that no sequence holds. Without the pages of layers that see all
// tokens, the node's other pages are useless.
func (p *pagePool) forget(n *node, g int) {
	for other, group := range p.groups {
		b := n.blocks[other]
		if b == nil || b.refs > 0 || other != g && p.groups[g].span != (span{}) {
			continue
		}
		b.node, n.blocks[other] = nil, nil
		group.free = append(group.free, b)
	}
	p.prune(n)
}

// prune removes a node, and then its parents, that hold nothing and that nobody needs.
func (p *pagePool) prune(n *node) {
	for n.parent != nil && n.open == 0 && len(n.children) == 0 && !slices.ContainsFunc(n.blocks, func(b *pageBlock) bool { return b != nil }) {
		at := slices.Index(n.parent.children, n)
		if at < 0 {
			return // removed before
		}
		n.parent.children = slices.Delete(n.parent.children, at, at+1)
		n = n.parent
	}
}
