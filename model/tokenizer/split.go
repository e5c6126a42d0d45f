package tokenizer

import "strings"

// emit receives the pieces of a text in order. first reports that the piece starts the whole text.
type emit func(piece string, first bool) error

// span is a part of a piece: a match of a pattern, or a gap between matches.
type span struct {
	start, end int
	match      bool
}

// finder yields the matches of a piece and the gaps between them.
type finder func(piece string, m *matcher, yield func(span) error) error

// behavior is the treatment of matches.
type behavior uint8

const (
	isolated           behavior = iota // each match is a piece
	removed                            // matches are dropped
	contiguous                         // adjacent matches are one piece
	mergedWithPrevious                 // a match ends the gap before it
	mergedWithNext                     // a match starts the gap behind it
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
	err := s.find(piece, m, func(sp span) error {
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

// matches finds the matches of an expression.
func matches(p *pattern) finder {
	return func(piece string, m *matcher, yield func(span) error) error {
		m.reset(p, piece)
		prev := 0
		for {
			start, end, err := m.find()
			if err != nil {
				return err
			}
			if start < 0 {
				break
			}
			if prev < start {
				if err := yield(span{prev, start, false}); err != nil {
					return err
				}
			}
			if err := yield(span{start, end, true}); err != nil {
				return err
			}
			prev = end
		}
		if prev < len(piece) {
			return yield(span{prev, len(piece), false})
		}
		return nil
	}
}

// literals finds a string.
func literals(s string) finder {
	return func(piece string, _ *matcher, yield func(span) error) error {
		for at := 0; at < len(piece); {
			i := strings.Index(piece[at:], s)
			end := at + i
			if i < 0 {
				end = len(piece)
			}
			if at < end {
				if err := yield(span{at, end, false}); err != nil {
					return err
				}
			}
			if i < 0 {
				break
			}
			at = end + len(s)
			if err := yield(span{end, at, true}); err != nil {
				return err
			}
		}
		return nil
	}
}

// characters finds the characters for which is returns true, each a separate match.
func characters(is func(r rune) bool) finder {
	return func(piece string, _ *matcher, yield func(span) error) error {
		gap := 0
		for i, r := range piece {
			if !is(r) {
				continue
			}
			if gap < i {
				if err := yield(span{gap, i, false}); err != nil {
					return err
				}
			}
			gap = i + len(string(r))
			if err := yield(span{i, gap, true}); err != nil {
				return err
			}
		}
		if gap < len(piece) {
			return yield(span{gap, len(piece), false})
		}
		return nil
	}
}
