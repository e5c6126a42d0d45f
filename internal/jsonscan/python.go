package jsonscan

import "slices"

// Finite makes JSON from Python's output: it replaces NaN, Infinity and -Infinity outside of
// strings by spaces and 0. The 0 is the last byte, so that offsets in errors and the ends of values
// stay right. It does not change raw.
func Finite(raw []byte) []byte {
	out := slices.Clone(raw)
	inString := false
	for i := 0; i < len(out); i++ {
		switch {
		case inString && out[i] == '\\':
			i++
		case out[i] == '"':
			inString = !inString
		case !inString:
			for _, word := range []string{"-Infinity", "Infinity", "NaN"} {
				if len(out)-i >= len(word) && string(out[i:i+len(word)]) == word {
					for j := range word {
						out[i+j] = ' '
					}
					i += len(word) - 1
					out[i] = '0'
					break
				}
			}
		}
	}
	return out
}
