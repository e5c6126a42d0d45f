package generate

import "strings"

// stopper finds stop strings in a text that arrives in pieces.
type stopper struct {
	stops []string
	held  string // end of the text that may begin a stop string
}

// add takes a piece. It returns the text that certainly precedes any stop string, and the stop
// string if it found one.
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

// rest returns the held text at the end.
func (s *stopper) rest() string {
	text := s.held
	s.held = ""
	return text
}
