package hfquant

import (
	"cmp"
	"fmt"
	"strings"
)

// FormatError reports a checkpoint whose quantized weights contradict themselves or its config.json.
type FormatError struct {
	Dir    string // of the checkpoint
	Tensor string // "" for the file
	File   string // which says how weights are quantized; "" for config.json
	Msg    string
}

func (e *FormatError) Error() string { return place(e.Dir, e.Tensor, e.File) + e.Msg }

// UnsupportedError reports quantized weights that are well formed but that this package cannot read
// exactly.
type UnsupportedError struct {
	Dir    string // of the checkpoint
	Tensor string // "" for the file
	File   string // which says how weights are quantized; "" for config.json
	Msg    string
}

func (e *UnsupportedError) Error() string { return place(e.Dir, e.Tensor, e.File) + e.Msg }

// place starts a message with the file or the tensor that it is about.
func place(dir, tensor, file string) string {
	if tensor == "" {
		return dir + ": " + cmp.Or(file, "config.json") + ": "
	}
	return fmt.Sprintf("%s: tensor %s: ", dir, quote(tensor))
}

// quote makes a string from a file fit for a message: escaped, and shortened if it is very long.
func quote(s string) string {
	const longest = 200
	if len(s) > longest {
		return fmt.Sprintf("%q... (%d bytes)", s[:longest], len(s))
	}
	return fmt.Sprintf("%q", s)
}

// list is "a, b or c".
func list[T any](items []T) string {
	words := make([]string, len(items))
	for i, item := range items {
		words[i] = fmt.Sprint(item)
	}
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return strings.Join(words, "")
}
