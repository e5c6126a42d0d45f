package asmtest

import (
	"regexp"
	"strings"
	"testing"
)

var fused = regexp.MustCompile(`(?mi)^\s*V?F?N?(MADD|MSUB|FMLA|FMLS|MLA|MLS|NMADD|NMSUB)[A-Z0-9_]*\b`)

// NotFused fails if the package's assembly has fused multiply-adds: the package's portable code
// rounds twice where a fused instruction rounds once.
func NotFused(t *testing.T, files ...string) {
	t.Helper()
	for _, name := range files {
		if m := fused.FindString(readFile(t, name)); m != "" {
			t.Errorf("%s has %s", name, strings.TrimSpace(m))
		}
	}
}
