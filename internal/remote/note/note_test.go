package note

import (
	"os"
	"path/filepath"
	"testing"
)

// TestUnverified reads notes of files with and without a hash, and files without a note.
func TestUnverified(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.safetensors")
	if Unverified(file) {
		t.Error("a file without a note is unverified")
	}
	for _, tt := range []struct {
		note string
		want bool
	}{
		{Note(7, `"e"`, "", ""), true},
		{Note(7, "", "", "Tue, 24 Nov 2026 09:00:00 GMT"), true},
		{Note(7, `"e"`, "00ff", ""), false},
		{Note(7, `"e"`, "00ff", "Tue, 24 Nov 2026 09:00:00 GMT"), false},
		{"7", false},
		{"", false},
	} {
		if err := os.WriteFile(Of(file), []byte(tt.note), 0o666); err != nil {
			t.Fatal(err)
		}
		if got := Unverified(file); got != tt.want {
			t.Errorf("%q: unverified %v", tt.note, got)
		}
	}
}
