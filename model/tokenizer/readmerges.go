package tokenizer

import (
	"bytes"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lowbit-go/gq/internal/jsonscan"
)

// mergesAtATime is how many merges a goroutine reads at a time.
const mergesAtATime = 1 << 13

// mergeReaders bounds the goroutines that read merges. One more enters them into the table.
const mergeReaders = 4

// mergeList is a part of the list of merges.
type mergeList struct {
	first, start int           // index of the first merge, and its position in the document
	ready        chan struct{} // closed when the fields below are set
	merges       []tokenMerge
	err          error
}

type tokenMerge struct{ a, b, merged int32 }

// readMerges reads ["a b", ...] or [["a", "b"], ...]. If a pair occurs twice, the last one counts.
// The texts of 280,000 merges are looked up in several goroutines, which is most of the time that a
// tokenizer of 128,000 tokens takes to read.
func (m *bpe) readMerges(n node) error {
	if err := n.array(); err != nil {
		return err
	}
	count := 0
	var lists []*mergeList
	for _, at := range n.raw() {
		if count%mergesAtATime == 0 {
			lists = append(lists, &mergeList{first: count, start: at, ready: make(chan struct{})})
		}
		count++
	}
	m.merges.init(count)
	var next atomic.Int64
	var wg sync.WaitGroup
	defer wg.Wait()
	defer next.Store(int64(len(lists))) // after an error
	for range min(len(lists), mergeReaders, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(lists) {
					return
				}
				lists[i].err = m.readSome(n, lists[i])
				close(lists[i].ready)
			}
		})
	}
	rank := uint32(0)
	for _, l := range lists {
		<-l.ready
		if l.err != nil {
			return l.err
		}
		for _, r := range l.merges {
			m.merges.set(pairKey(r.a, r.b), merge{rank, r.merged})
			m.noteJoint(r.a, r.b)
			rank++
		}
		l.merges = nil
	}
	return nil
}

// readSome reads the merges of a list.
func (m *bpe) readSome(n node, l *mergeList) error {
	var pair [2][]byte
	var joined []byte
	i, c := l.first-1, int32(-1) // c is the token that the pair before makes
	l.merges = make([]tokenMerge, 0, mergesAtATime)
	// The byte before an element is never the brace of an object.
	for _, at := range jsonscan.Elements(n.doc.data, l.start-1, n.end) {
		if i++; i == l.first+mergesAtATime {
			break
		}
		var ok bool
		if pair, ok = n.doc.readMerge(at, pair); !ok {
			return n.at(i, at).malformed("is not a pair of tokens")
		}
		if len(pair[1]) == 0 && string(pair[0]) == versionLine {
			continue
		}
		a, okA := m.id(string(pair[0]))
		b, okB := m.id(string(pair[1]))
		if !okA || !okB {
			return n.at(i, at).malformed("%.40q or %.40q is not in the vocabulary", pair[0], pair[1])
		}
		if len(pair[1]) < len(m.prefix) {
			return n.at(i, at).malformed("%.40q does not begin with the prefix %q", pair[1], m.prefix)
		}
		joined = append(append(joined[:0], pair[0]...), pair[1][len(m.prefix):]...)
		// Merges are usually in the order of the tokens that they make.
		switch {
		case m.isToken(c+1, joined):
			c++
		case !m.isToken(c, joined):
			c, ok = m.id(string(joined))
		}
		if !ok {
			return n.at(i, at).malformed("%.40q is not in the vocabulary", joined)
		}
		l.merges = append(l.merges, tokenMerge{a, b, c})
	}
	return nil
}

// isToken reports whether a token has this text, which is not empty. There may be no such token.
func (m *bpe) isToken(id int32, text []byte) bool {
	return id >= 0 && int(id) < len(m.tokens) && len(text) > 0 && m.tokens[id] == string(text)
}

// versionLine is the first line of a merges.txt, which some files still contain.
const versionLine = "#version"

// readMerge reads one merge into pair.
func (d *document) readMerge(at int, pair [2][]byte) ([2][]byte, bool) {
	switch d.data[at] {
	case '"':
		s := d.appendString(pair[0][:0], at)
		if strings.HasPrefix(string(s), versionLine) {
			return [2][]byte{[]byte(versionLine), nil}, true
		}
		for i, b := range s {
			if b == ' ' {
				pair[0] = s[:i]
				pair[1] = append(pair[1][:0], s[i+1:]...)
				return pair, bytes.IndexByte(pair[1], ' ') < 0
			}
		}
		pair[0] = s
	case '[':
		count := 0
		for _, v := range (node{d, "", at, d.end(at)}).raw() {
			if count > 1 || d.data[v] != '"' {
				return pair, false
			}
			pair[count] = d.appendString(pair[count][:0], v)
			count++
		}
		return pair, count == 2
	}
	return pair, false
}
