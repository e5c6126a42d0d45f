package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"math"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// prose counts words in the comments of Go files that people wrote.
type prose struct {
	lines int            // comment lines of the product that hold text
	words map[string]int // occurrences of each of habits in those lines
	wide  int            // comment lines, of tests and tools too, that exceed maxColumns
}

// maxColumns limits a comment's line with its indentation; a tab counts as one column.
const maxColumns = 100

// habits are the words and phrases that make sentences hard to take apart. Names are those of the
// figures.
var habits = []struct {
	name    string
	pattern *regexp.Regexp
}{
	{"whose", regexp.MustCompile(`(?i)\bwhose\b`)},
	{"which", regexp.MustCompile(`(?i), which\b`)},
	{"one", regexp.MustCompile(`(?i)\bones?\b`)},
	{"it", regexp.MustCompile(`(?i)\b(it|they|them)\b`)},
	{"anew", regexp.MustCompile(`(?i)\b(any more|once more|anew|beside)\b`)},
}

// mayBeWide matches comments that cannot wrap: directives and addresses.
var mayBeWide = regexp.MustCompile(`^//(go:|\s*(\[[^\]]*\]:\s*)?https?://\S+$)`)

// add counts the comments of a file. A phrase may wrap from one line to the next.
func (p *prose) add(name string, raw []byte) {
	if generated(string(raw)) || strings.Contains("/"+name, "/testdata/") {
		return
	}
	lines := strings.Split(string(raw), "\n")
	product := !notProduct.MatchString(name)
	if p.words == nil {
		p.words = map[string]int{}
	}
	var block strings.Builder // the text of comments on successive lines
	flush := func() {
		for _, h := range habits {
			p.words[h.name] += len(h.pattern.FindAllStringIndex(block.String(), -1))
		}
		block.Reset()
	}
	file := token.NewFileSet().AddFile(name, -1, len(raw))
	var s scanner.Scanner
	s.Init(file, raw, nil, scanner.ScanComments)
	last := 0 // the line on which the previous comment ended
	for {
		at, tok, text := s.Scan()
		if tok == token.EOF {
			flush()
			return
		}
		if tok != token.COMMENT {
			continue
		}
		first := file.Line(at)
		if first > last+1 {
			flush()
		}
		for i, line := range strings.Split(text, "\n") {
			last = first + i
			wide := utf8.RuneCountInString(strings.TrimRight(lines[last-1], "\r")) > maxColumns
			if wide && !mayBeWide.MatchString(line) {
				p.wide++
			}
			line = strings.Trim(line, "/* \t\r")
			if !product || line == "" || strings.HasPrefix(line, "go:") {
				continue
			}
			p.lines++
			block.WriteString(line + " ")
		}
	}
}

// figures returns occurrences per 1,000 comment lines, rounded up, and the number of wide lines.
func (p *prose) figures() map[string]int {
	t := map[string]int{"wide": p.wide}
	for _, h := range habits {
		t[h.name] = int(math.Ceil(1000 * float64(p.words[h.name]) / float64(max(p.lines, 1))))
	}
	return t
}

// printFolders prints the figures of comments for each folder: the first element of a path, or two
// in folders that hold many packages.
func printFolders(files []string) error {
	folders := map[string]*prose{}
	for _, name := range files {
		if path.Ext(name) != ".go" {
			continue
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		folder := "."
		parts := strings.Split(name, "/")
		switch {
		case len(parts) > 2 && slices.Contains([]string{"internal", "formats", "tools"}, parts[0]):
			folder = parts[0] + "/" + parts[1]
		case len(parts) > 1:
			folder = parts[0]
		}
		if folders[folder] == nil {
			folders[folder] = &prose{}
		}
		folders[folder].add(name, raw)
	}
	names := make([]string, 0, len(folders))
	fmt.Printf("%-24s %6s", "folder", "lines")
	for _, h := range habits {
		fmt.Printf(" %6s", h.name)
	}
	fmt.Printf(" %6s\n", "wide")
	for folder := range folders {
		names = append(names, folder)
	}
	slices.Sort(names)
	for _, folder := range names {
		p := folders[folder]
		fmt.Printf("%-24s %6d", folder, p.lines)
		for _, h := range habits {
			fmt.Printf(" %6d", p.figures()[h.name])
		}
		fmt.Printf(" %6d\n", p.wide)
	}
	return nil
}
