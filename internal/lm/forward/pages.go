package forward

import (
	"errors"
	"slices"

	"github.com/lowbit-go/gq/internal/lm/arch"
)

// pagePool owns the pages of a Batch. Layers with the same span form a group, as do layers with
// states, and a block is the pages of a group's layers for the same tokens. A block is taken and
// given up as a whole.
type pagePool struct {
	config *arch.ForwardConfig
	groups []*pageGroup
	clock  uint64 // advances whenever a block is given up
}

type pageGroup struct {
	span         // of the layers, or stateWindow
	layers []int // their numbers
	most   int   // limit of blocks
	blocks []*block
	free   []*block
}

type block struct {
	pages []page // by layer of the group
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
func (p *pagePool) init(c *arch.ForwardConfig, sequences, context int) {
	p.config = c
	for i := range c.Layers {
		of := spanOf(&c.Layers[i])
		if c.Layers[i].States() {
			of = span{window: stateWindow}
		}
		at := slices.IndexFunc(p.groups, func(g *pageGroup) bool { return g.span == of })
		if at < 0 {
			at = len(p.groups)
			p.groups = append(p.groups, &pageGroup{span: of})
		}
		p.groups[at].layers = append(p.groups[at].layers, i)
	}
	for _, g := range p.groups {
		each := pagesOf(context)
		if most := g.window + g.chunk; most > 0 {
			// Twice the pages of a sequence, for the ends of prefixes that other sequences may share.
			each = min(each, 2*(pagesOf(most+prefillChunk+sequences)+1))
		}
		g.most = sequences*each + 1
		if g.states(c) {
			// A pass of a sequence needs the state before the pass and behind each page; the other states
			// are those of prefixes.
			g.most = min(g.most, 3*sequences+pagesOf(prefillChunk+sequences)+1)
		}
	}
}

func (g *pageGroup) states(c *arch.ForwardConfig) bool { return c.Layers[g.layers[0]].States() }

func pagesOf(n int) int { return (n + pageTokens - 1) / pageTokens }

func (p *pagePool) bytes() (n int64) {
	for _, g := range p.groups {
		for _, layer := range g.layers {
			n += 4 * int64(g.most) * int64(pageSize(p.config, layer))
		}
	}
	return n
}

func (p *pagePool) stats() (s PageStats) {
	for _, g := range p.groups {
		for _, b := range g.blocks {
			switch {
			case b.refs > 0:
				s.Used += len(g.layers)
			case b.node != nil:
				s.Cached += len(g.layers)
			}
		}
		s.Total += g.most * len(g.layers)
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
	n := &node{parent: parent, tokens: make([]int32, 0, pageTokens), blocks: make([]*block, len(p.groups)), open: 1}
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
func (p *pagePool) take(g int) (*block, error) {
	group := p.groups[g]
	if len(group.free) == 0 {
		if len(group.blocks) < group.most {
			return p.allocate(group), nil
		}
		oldest := (*block)(nil)
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

func (p *pagePool) allocate(g *pageGroup) *block {
	b := &block{pages: make([]page, len(g.layers))}
	for i, layer := range g.layers {
		if n := stateSize(p.config, layer); n > 0 {
			b.pages[i] = page{state: make([]float32, n)}
			continue
		}
		b.pages[i] = newPage(p.config.KVHeads, p.config.HeadDim)
	}
	g.blocks = append(g.blocks, b)
	return b
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
	for n.parent != nil && n.open == 0 && len(n.children) == 0 && !slices.ContainsFunc(n.blocks, func(b *block) bool { return b != nil }) {
		at := slices.Index(n.parent.children, n)
		if at < 0 {
			return // removed before
		}
		n.parent.children = slices.Delete(n.parent.children, at, at+1)
		n = n.parent
	}
}
