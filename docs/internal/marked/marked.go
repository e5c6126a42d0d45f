// Package marked replaces the parts of a document that programs write: each lies between the comments "<!-- begin NAME -->"
// and "<!-- end NAME -->".
package marked

import (
	"fmt"
	"os"
	"strings"
)

// Replace puts text between the comments of name in a file.
func Replace(file, name, text string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- begin %s -->\n", name), fmt.Sprintf("<!-- end %s -->", name)
	before, rest, ok := strings.Cut(string(raw), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no %s and %s", file, strings.TrimSpace(begin), end)
	}
	return os.WriteFile(file, []byte(before+begin+text+end+after), 0o666)
}
