package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
)

// TestReference compares docs/CLI.md with the commands and flags that it is generated from.
func TestReference(t *testing.T) {
	const path = "../../docs/CLI.md"
	var out bytes.Buffer
	app := newApp()
	app.Writer = &out
	if code := cmdline.Run(t.Context(), app, []string{"gq", "man", "--markdown"}); code != 0 {
		t.Fatalf("gq man --markdown: status %d", code)
	}
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(doc), out.String()); d != "" {
		t.Errorf("docs/CLI.md is not what `go run ./cmd/gq man --markdown >docs/CLI.md` makes (-document +commands):\n%s", d)
	}
}
