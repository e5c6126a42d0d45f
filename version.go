package gq

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// BuildInfo describes the running build, as recorded by the Go linker.
type BuildInfo struct {
	// Version is the module's version: "v0.1.0" for a release, a pseudo-version for another commit,
	// "devel" if the linker recorded none.
	Version string `json:"version"`
	// Commit is the full hash of the git commit; "" if the build was not made in a clone.
	Commit string `json:"commit,omitempty"`
	// Time is the time of the commit, in RFC 3339.
	Time string `json:"time,omitempty"`
	// Modified reports whether the work tree had uncommitted changes.
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"` // "linux/arm64"
}

// Version describes the running build.
func Version() BuildInfo {
	b := BuildInfo{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String describes the build in a line: "v0.1.0 (commit 0123456789ab, go1.26 linux/arm64)".
func (b BuildInfo) String() string {
	commit := ""
	if b.Commit != "" {
		commit = "commit " + b.Commit[:min(12, len(b.Commit))]
		if b.Modified {
			commit += " with changes"
		}
		commit += ", "
	}
	return fmt.Sprintf("%s (%s%s %s)", b.Version, commit, b.Go, b.Platform)
}
