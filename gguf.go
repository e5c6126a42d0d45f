package gq

import (
	"path"
	"strings"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/remote"
)

// IsGGUF reports whether a path leads to a GGUF file, by its name or else by its first bytes, or
// whether a remote name does, by the name alone. A path that cannot be read is none: its reader
// reports the error.
func IsGGUF(name string) bool {
	if remote.IsRemote(name) {
		return strings.EqualFold(path.Ext(remote.Redact(name)), ".gguf")
	}
	kind, err := kindOf(name)
	return err == nil && kind == files.GGUF
}
