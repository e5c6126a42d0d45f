// Package repository has what the programs of tools share: they work in the repository's root, and
// write parts of its documents.
package repository

import (
	"fmt"
	"os"
	"strings"
)

// Enter makes the repository's root the working directory of a program that go run started in
// tools/.
func Enter() error {
	raw, err := os.ReadFile("go.mod")
	if err == nil && strings.HasPrefix(string(raw), "module github.com/lowbit-go/gq/tools\n") {
		return os.Chdir("..")
	}
	return nil
}

// Replace puts text between the comments "<!-- begin NAME -->" and "<!-- end NAME -->" of a file.
func Replace(file, name, text string) error {
	before, _, after, err := parts(file, name)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(before+text+after), 0o666)
}

// Section returns the text between the comments "<!-- begin NAME -->" and "<!-- end NAME -->" of a
// file.
func Section(file, name string) (string, error) {
	_, text, _, err := parts(file, name)
	return text, err
}

// parts divides a file into its text up to the first comment, between the comments, and from the
// second comment on.
func parts(file, name string) (before, between, after string, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", "", "", err
	}
	begin, end := fmt.Sprintf("<!-- begin %s -->\n", name), fmt.Sprintf("<!-- end %s -->", name)
	before, rest, ok := strings.Cut(string(raw), begin)
	between, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", "", "", fmt.Errorf("%s has no %s and %s", file, strings.TrimSpace(begin), end)
	}
	return before + begin, between, end + after, nil
}
