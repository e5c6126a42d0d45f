package jsonscan

import "slices"

// Finite makes JSON from Python's output: it replaces NaN, Infinity and -Infinity outside of
// strings by 0 and spaces, so that offsets in errors stay right. It does not change raw.
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
					out[i] = '0'
				}
			}
		}
	}
	return out
}
