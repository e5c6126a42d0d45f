package tokenizer

import "fmt"

// FormatError reports a file that is malformed or contradicts itself.
type FormatError struct {
	File string // "tokenizer.json"
	Path string // the component: "model.merges[17]"; "" for the whole file
	Msg  string
}

func (e *FormatError) Error() string { return place(e.File, e.Path) + e.Msg }

// UnsupportedError reports a component that this package does not implement.
type UnsupportedError struct {
	File string // "tokenizer.json"
	Path string // the component: "pre_tokenizer.pretokenizers[1]"
	Msg  string // "type \"UnicodeScripts\" is not supported"
}

func (e *UnsupportedError) Error() string { return place(e.File, e.Path) + e.Msg }

func place(file, path string) string {
	if path == "" {
		return file + ": "
	}
	return fmt.Sprintf("%s: %s: ", file, path)
}
