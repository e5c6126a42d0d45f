package gq

import "testing"

func TestBuildInfoString(t *testing.T) {
	for _, tt := range []struct {
		b    BuildInfo
		want string
	}{
		{BuildInfo{Version: "v0.1.0", Go: "go1.26", Platform: "linux/arm64"}, "v0.1.0 (go1.26 linux/arm64)"},
		{BuildInfo{Version: "devel", Commit: "0123456789abcdef", Go: "go1.26", Platform: "linux/arm64"}, "devel (commit 0123456789ab, go1.26 linux/arm64)"},
		{BuildInfo{Version: "devel", Commit: "0123456789abcdef", Modified: true, Go: "go1.26", Platform: "linux/arm64"}, "devel (commit 0123456789ab with changes, go1.26 linux/arm64)"},
	} {
		if got := tt.b.String(); got != tt.want {
			t.Errorf("%+v is %q, want %q", tt.b, got, tt.want)
		}
	}
	if b := Version(); b.Version == "" || b.Go == "" || b.Platform == "" {
		t.Errorf("%+v", b)
	}
}
