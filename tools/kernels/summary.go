package main

import (
	"fmt"
	"strings"

	"github.com/lowbit-go/gq/tools/internal/repository"
)

// summaryFile has the summary in its section "kernels".
const summaryFile = "docs/SPEED.md"

// summarySets are the instruction sets of the summary, and their names there.
var summarySets = []struct{ feature, name string }{{"avx512vnni", "AVX-512 VNNI"}, {"avxvnni", "AVX-VNNI"}, {"avx2", "AVX2"}}

// summaryWeights are the rows that the summary takes of each table.
var summaryWeights = []string{
	"1 bit, group 32", "2 bits, group 32", "3 bits, group 32", "4 bits, group 32", "4 bits, group 128", "8 bits, group 32", "qsi4cxp", "qsi8cxp",
}

// summaryCells are the cells that the summary takes of a row of renderTable, all of them for all
// threads: the last cell of a row is cell 15.
var summaryCells = []struct {
	cell    int
	heading string
}{
	{5, "m = 1: GB/s"}, {6, "share of the read rate"}, {7, "x F32"},
	{12, "m = 128: GMAC/s"}, {14, "x m = 1"}, {15, "x F32"},
}

// summarize puts the summary of the tables into a document.
func summarize(tables, doc string) error {
	var s strings.Builder
	s.WriteString("| instruction set, weights |")
	for _, c := range summaryCells {
		fmt.Fprintf(&s, " %s |", c.heading)
	}
	s.WriteString("\n|" + strings.Repeat("---|", 1+len(summaryCells)) + "\n")
	for _, set := range summarySets {
		table, err := repository.Section(tables, set.feature)
		if err != nil {
			return err
		}
		for _, weights := range summaryWeights {
			_, line, ok := strings.Cut(table, "\n| "+weights+" |")
			line, _, _ = strings.Cut(line, "\n")
			cells := strings.Split(weights+" |"+strings.TrimSuffix(line, "|"), "|")
			if !ok || len(cells) != 16 {
				return fmt.Errorf("%s: the table of %s has no row of 16 cells for %s", tables, set.feature, weights)
			}
			fmt.Fprintf(&s, "| %s, %s |", set.name, weights)
			for _, c := range summaryCells {
				s.WriteString(cells[c.cell] + "|")
			}
			s.WriteString("\n")
		}
	}
	return repository.Replace(doc, "kernels", s.String())
}
