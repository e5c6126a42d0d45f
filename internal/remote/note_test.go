package remote

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
		{Object{Size: 7, ETag: `"e"`, SHA256: "", Modified: ""}.Note(), true},
		{Object{Size: 7, ETag: "", SHA256: "", Modified: "Tue, 24 Nov 2026 09:00:00 GMT"}.Note(), true},
		{Object{Size: 7, ETag: `"e"`, SHA256: "00ff", Modified: ""}.Note(), false},
		{Object{Size: 7, ETag: `"e"`, SHA256: "00ff", Modified: "Tue, 24 Nov 2026 09:00:00 GMT"}.Note(), false},
		{"7", false},
		{"", false},
	} {
		if err := os.WriteFile(NoteOf(file), []byte(tt.note), 0o666); err != nil {
			t.Fatal(err)
		}
		if got := Unverified(file); got != tt.want {
			t.Errorf("%q: unverified %v", tt.note, got)
		}
	}
}
