// Package note identifies files in gq's cache of web servers and object stores. Unlike the packages
// of stores it links no HTTP client.
package note

import (
	"fmt"
	"os"
	"path/filepath"
)

// Ending ends the names of notes.
const Ending = ".gq-object"

// Of is the name of the note of the file at path.
func Of(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+Ending)
}

// Note is the content of a note. modified is left out if it is empty.
func Note(size int64, etag, sha256, modified string) string {
	s := fmt.Sprintf("%d %q %q", size, etag, sha256)
	if modified != "" {
		s += fmt.Sprintf(" %q", modified)
	}
	return s + "\n"
}

// Unverified reports whether the file at path has a note, and the note has no SHA-256: the file was
// downloaded from a place that states no hash of it.
func Unverified(path string) bool {
	text, err := os.ReadFile(Of(path))
	if err != nil {
		return false
	}
	var size, etag, sha256 string
	_, err = fmt.Sscanf(string(text), "%s %q %q", &size, &etag, &sha256)
	return err == nil && sha256 == ""
}
