package generate

import "strings"

// stopper looks for stop strings in a text that comes in pieces.
type stopper struct {
	stops []string
	held  string // end of the text that a stop string may begin with
}

// add takes a piece and returns the text that is certain to come before any stop string,
// and the stop string that was found, if one was.
func (s *stopper) add(piece string) (text, stop string) {
	all := s.held + piece
	at := -1
	for _, p := range s.stops {
		if i := strings.Index(all, p); i >= 0 && (at < 0 || i < at) {
			at, stop = i, p
		}
	}
	if at >= 0 {
		s.held = ""
		return all[:at], stop
	}
	keep := 0
	for _, p := range s.stops {
		for n := min(len(p)-1, len(all)); n > keep; n-- {
			if strings.HasSuffix(all, p[:n]) {
				keep = n
			}
		}
	}
	s.held = all[len(all)-keep:]
	return all[:len(all)-keep], ""
}

// rest is what is held at the end of the text.
func (s *stopper) rest() string {
	text := s.held
	s.held = ""
	return text
}
