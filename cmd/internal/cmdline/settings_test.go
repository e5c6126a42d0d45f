package cmdline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRecipeInterrupted: a signal ends the reading of a recipe while its rules are parsed.
func TestRecipeInterrupted(t *testing.T) {
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range 30000 {
		fmt.Fprintf(&b, "- {match: \"*l.%d*m*w?\", bits: 4}\n", i)
	}
	path := filepath.Join(t.TempDir(), "r.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond) // parsing takes 300
	defer cancel()
	if r, err := Recipe(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d rules, %v", len(r.Rules), err)
	}
}
