package chat

import (
	"errors"
	"regexp"
	"strings"
)

var errComment = errors.New("a comment has no end")

// tokenKind is the kind of a token in {{ }} and {% %}.
type tokenKind int

const (
	tokenOperator tokenKind = iota
	tokenName
	tokenNumber
	tokenString
	tokenEnd // }} or %}, perhaps after - or +
	tokenBad // the text says why
)

type token struct {
	kind tokenKind
	text string
}

func (t token) is(kind tokenKind, text string) bool { return t.kind == kind && t.text == text }

// A scanner splits a template as Jinja does.
type scanner struct {
	text  string
	at    int
	line  int // of the token that was taken last
	seen  int // bytes in which lines were counted
	depth int // of open brackets in an expression
}

func (s *scanner) tokenLine() int {
	s.line += strings.Count(s.text[s.seen:s.at], "\n")
	s.seen = s.at
	return s.line
}

// data takes text up to the next {{, {% or {#, and returns that as kind, or "" at the end of the
// template. Text between {% raw %} and {% endraw %} is text, with both statements.
func (s *scanner) data() (text, kind string) {
	start := s.at
	for {
		i := strings.IndexByte(s.text[s.at:], '{')
		if i < 0 || s.at+i+1 >= len(s.text) {
			s.at = len(s.text)
			return s.text[start:], ""
		}
		s.at += i
		switch s.text[s.at+1] {
		case '{', '#':
			return s.text[start:s.at], s.text[s.at : s.at+2]
		case '%':
			if end := s.raw(); end > 0 {
				s.at = end
				continue
			}
			return s.text[start:s.at], "{%"
		}
		s.at++
	}
}

// raw returns the position behind {% endraw %} if the statement here is {% raw %}, else 0.
func (s *scanner) raw() int {
	end := s.tag(s.at, "raw")
	if end == 0 {
		return 0
	}
	for {
		i := strings.Index(s.text[end:], "{%")
		if i < 0 {
			return len(s.text)
		}
		if behind := s.tag(end+i, "endraw"); behind > 0 {
			return behind
		}
		end += i + 2
	}
}

// tag returns the position behind a statement of only this name, else 0.
func (s *scanner) tag(at int, name string) int {
	rest := s.text[at+2:]
	rest = strings.TrimLeft(rest[min(len(rest), len(marks(rest))):], " \t\r\n")
	if !strings.HasPrefix(rest, name) {
		return 0
	}
	rest = strings.TrimLeft(rest[len(name):], " \t\r\n")
	rest = rest[len(marks(rest)):]
	if !strings.HasPrefix(rest, "%}") {
		return 0
	}
	return len(s.text) - len(rest) + 2
}

// marks returns the - or + at the beginning of the text.
func marks(text string) string {
	if text != "" && (text[0] == '-' || text[0] == '+') {
		return text[:1]
	}
	return ""
}

func (s *scanner) comment() (string, error) {
	i := strings.Index(s.text[s.at+2:], "#}")
	if i < 0 {
		return "", errComment
	}
	text := s.text[s.at : s.at+i+4]
	s.at += len(text)
	return text, nil
}

// open takes {{ or {% with a following mark.
func (s *scanner) open() string {
	n := 2 + len(marks(s.text[s.at+2:]))
	text := s.text[s.at : s.at+n]
	s.at += n
	s.depth = 0
	return text
}

// token takes spaces and the token of an expression behind them.
func (s *scanner) token() (space string, t token) {
	rest := s.text[s.at:]
	trimmed := strings.TrimLeft(rest, " \t\r\n")
	space = rest[:len(rest)-len(trimmed)]
	s.at += len(space)
	t = s.read(trimmed)
	if t.kind != tokenBad {
		s.at += len(t.text)
	}
	return space, t
}

var lexeme = regexp.MustCompile(`(?s)^(?:` +
	`('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|` +
	`([0-9](?:\w|[^\x00-\x7f]|\.[0-9])*)|` +
	`((?:\w|[^\x00-\x7f])+)|` + // letters beyond ASCII, as in minijinja
	`(\*\*|//|[=!<>]=))`)

func (s *scanner) read(text string) token {
	if text == "" {
		return token{tokenEnd, ""}
	}
	if s.depth == 0 {
		n := len(marks(text))
		if end := text[n:min(n+2, len(text))]; end == "}}" || end == "%}" {
			return token{tokenEnd, text[:n+2]}
		}
	}
	for i, found := range lexeme.FindStringSubmatch(text) {
		if i > 0 && found != "" {
			return token{[]tokenKind{tokenString, tokenNumber, tokenName, tokenOperator}[i-1], found}
		}
	}
	switch c := text[0]; c {
	case '\'', '"':
		return token{tokenBad, "a string has no end"}
	case '(', '[', '{':
		s.depth++
	case ')', ']', '}':
		s.depth--
	case '+', '-', '*', '/', '%', '~', '<', '>', '=', '|', '.', ',', ':':
	default:
		return token{tokenBad, "unexpected character " + strings.ToValidUTF8(text[:1], "\uFFFD")}
	}
	return token{tokenOperator, text[:1]}
}
