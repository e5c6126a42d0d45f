package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// emit receives the pieces of a text in order. first reports that the piece starts the whole text.
type emit func(piece string, first bool) error

// span is a part of a piece: a match of a pattern, or a gap between matches.
type span struct {
	start, end int
	match      bool
}

// finder returns a function that returns the next match in a piece; start is -1 after the last.
type finder func(piece string, m *matcher) (next func() (start, end int, err error))

// spans yields the matches of a piece and the gaps between matches.
func (f finder) spans(piece string, m *matcher, yield func(span) error) error {
	next, done := f(piece, m), 0
	for {
		start, end, err := next()
		if err != nil {
			return err
		}
		if start < 0 {
			break
		}
		if done < start {
			if err := yield(span{done, start, false}); err != nil {
				return err
			}
		}
		if err := yield(span{start, end, true}); err != nil {
			return err
		}
		done = end
	}
	if done < len(piece) {
		return yield(span{done, len(piece), false})
	}
	return nil
}

// behavior is the treatment of matches.
type behavior uint8

const (
	isolated           behavior = iota // each match is a piece
	removed                            // matches are dropped
	contiguous                         // adjacent matches are joined to a piece
	mergedWithPrevious                 // a match ends the preceding gap
	mergedWithNext                     // a match starts the following gap
)

var behaviors = map[string]behavior{
	"Isolated": isolated, "Removed": removed, "Contiguous": contiguous,
	"MergedWithPrevious": mergedWithPrevious, "MergedWithNext": mergedWithNext,
}

// splitter is a pre-tokenizer that divides pieces at the matches of a pattern.
type splitter struct {
	find     finder
	behavior behavior
	invert   bool // exchange matches and gaps
}

func (s *splitter) split(piece string, first bool, m *matcher, out emit) error {
	cut := func(a, b int) error {
		if a >= b {
			return nil
		}
		return out(piece[a:b], first && a == 0)
	}
	// held is a piece that may still grow: [start, end), with match from its last span.
	held := span{0, 0, false}
	any := false
	err := s.find.spans(piece, m, func(sp span) error {
		sp.match = sp.match != s.invert
		joins := false
		switch s.behavior {
		case isolated:
			return cut(sp.start, sp.end)
		case removed:
			if sp.match {
				return nil
			}
			return cut(sp.start, sp.end)
		case contiguous:
			joins = sp.match == held.match
		case mergedWithPrevious:
			joins = sp.match && !held.match
		case mergedWithNext:
			joins = !sp.match && held.match
		}
		if any && joins {
			held.end, held.match = sp.end, sp.match
			return nil
		}
		done := held
		held, any = sp, true
		return cut(done.start, done.end)
	})
	if err != nil {
		return err
	}
	return cut(held.start, held.end)
}

func matches(p *pattern) finder {
	return func(piece string, m *matcher) func() (int, int, error) {
		m.reset(p, piece)
		return m.find
	}
}

// finds makes a finder of a function that returns the place and length of the first match in a
// text; at is -1 if there is none.
func finds(first func(text string) (at, n int)) finder {
	return func(piece string, _ *matcher) func() (int, int, error) {
		done := 0
		return func() (int, int, error) {
			at, n := first(piece[done:])
			if at < 0 {
				return -1, -1, nil
			}
			start := done + at
			done = start + n
			return start, done, nil
		}
	}
}

func literals(s string) finder {
	return finds(func(text string) (at, n int) { return strings.Index(text, s), len(s) })
}

// characters finds the characters for which is returns true, each a separate match.
func characters(is func(r rune) bool) finder {
	return finds(func(text string) (at, n int) {
		at = strings.IndexFunc(text, is)
		_, n = utf8.DecodeRuneInString(text[max(at, 0):])
		return at, n
	})
}
