package workdir

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"runtime/debug"
	"sync"
)

// Key is the hash of everything that an entry's content depends on: parts, as JSON has them, and the
// build of gq, since another version may make another content from the same parts.
func Key(parts ...any) (string, error) {
	raw, err := json.Marshal(append([]any{build()}, parts...))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

const module = "github.com/lowbit-go/gq"

// build names this module's version in the running program, and the commit if the module is the
// program's own.
var build = sync.OnceValue(func() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	if info.Main.Path != module {
		for _, m := range info.Deps {
			if m.Path == module {
				return []string{m.Version, m.Sum}
			}
		}
		return nil
	}
	id := []string{info.Main.Version}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
			id = append(id, s.Value)
		}
	}
	return id
})
