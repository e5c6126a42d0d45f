package assets

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// CheckTemplate wants a text whose Jinja tags are closed, with at least one that computes
// something. It does not parse what is in the tags.
func CheckTemplate(data []byte) error {
	if err := checkText(data); err != nil {
		return err
	}
	text := string(data)
	tags := 0
	for at := 0; ; {
		open := strings.IndexByte(text[at:], '{')
		if open < 0 {
			break
		}
		if at += open + 1; at == len(text) {
			break
		}
		size, err := 0, error(nil)
		switch text[at] {
		case '{':
			tags++
			size, err = closeTag(text[at+1:], "}}")
		case '%':
			tags++
			size, err = closeTag(text[at+1:], "%}")
			if rawBlock.MatchString(text[at-1:]) && err == nil {
				end := rawEnd.FindStringIndex(text[at+1:])
				if end == nil {
					return fmt.Errorf("byte %d: the raw block is not closed", at-1)
				}
				size = end[1]
			}
		case '#':
			if size = strings.Index(text[at+1:], "#}"); size < 0 {
				err = errors.New("the comment is not closed")
			}
			size += 2
		default:
			continue
		}
		if err != nil {
			return fmt.Errorf("byte %d: %w", at-1, err)
		}
		at += 1 + size
	}
	if tags == 0 {
		return errors.New("no {{ or {%")
	}
	return nil
}

var (
	rawBlock = regexp.MustCompile(`^\{%[-+]?\s*raw\s*[-+]?%\}`)
	rawEnd   = regexp.MustCompile(`\{%[-+]?\s*endraw\s*[-+]?%\}`)
)

// closeTag is the index behind the end of a tag, given what follows its beginning. Strings and
// brackets in it may hold what looks like its end.
func closeTag(s, end string) (int, error) {
	depth := 0
	for i := 0; i < len(s); i++ {
		if depth == 0 && strings.HasPrefix(s[i:], end) {
			return i + len(end), nil
		}
		switch s[i] {
		case '{', '[', '(':
			depth++
		case '}', ']', ')':
			depth--
		case '\'', '"':
			quote := s[i]
			for i++; i < len(s) && s[i] != quote; i++ {
				if s[i] == '\\' {
					i++
				}
			}
		}
		if depth < 0 {
			return 0, errors.New("a bracket in the tag was not opened")
		}
	}
	return 0, fmt.Errorf("the tag is not closed by %s", end)
}

// checkText wants a text for people.
func checkText(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	control := func(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\f\r", r) || r == 0x7F }
	if at := strings.IndexFunc(string(data), control); at >= 0 {
		return fmt.Errorf("byte %d: a control character", at)
	}
	return nil
}
