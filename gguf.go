package gq

import "github.com/lowbit-go/gq/internal/files"

// IsGGUF reports whether path is a GGUF file, by its name or else by its first bytes. A path that
// cannot be read is none: its reader reports the error.
func IsGGUF(path string) bool {
	kind, err := kindOf(path)
	return err == nil && kind == files.GGUF
}
