package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/kernels/bench"
)

// TestSource fits costs that are known.
func TestSource(t *testing.T) {
	c := map[string]float64{}
	for bits := 1; bits <= 8; bits++ {
		name := fmt.Sprintf("lowbit/%d/32/", bits)
		c[name+"unpack"], c[name+"gemv"] = float64(10+bits)+512./(8*32), float64(20+bits)
		for _, mr := range []int{1, 2, 4, 8} {
			if bits < 8 || mr <= 2 { // AVX2 has no more rows at 8 bits
				c[name+fmt.Sprint(mr)] = float64(5 + mr*bits)
			}
		}
	}
	c["lowbit/4/0/unpack"] = 14 + 512./(8*1024)
	c["qsi4cxp/4/0/gemv"] = 9.5
	want := `	cpu.AVX2: {
		step: 5, row4: 4, row: 5.5, row7: 7, row8: 8, unpack: [8]float64{11, 12, 13, 14, 15, 16, 17, 18}, record: 512,
		gemv: [8]float64{21, 22, 23, 24, 25, 26, 27, 28},
		layouts: map[packing.Layout]float64{
			packing.LayoutQSI4CXP: 9.5,
		},
	},
`
	if got := source("avx2", c); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestCostLine parses what BenchmarkCosts prints, and nothing else.
func TestCostLine(t *testing.T) {
	out := "goos: linux\nBenchmarkCosts/avx2/lowbit/4/32/gemv \t  13372\t        16.54 ps/weight\t     16384 weights\n" +
		"BenchmarkCosts/generic/lowbit/4/0/unpack-2 \t 1\t 5715 ps/weight\t 8192 weights\nBenchmarkOther/x 1 2 ns/op\n"
	table := costTable{}
	for _, m := range costLine.FindAllStringSubmatch(out, -1) {
		var ps float64
		fmt.Sscan(m[2], &ps)
		table.set(m[1], ps)
		table.set(m[1], ps+1) // the least counts
	}
	if got := fmt.Sprint(table); got != "map[avx2:map[lowbit/4/32/gemv:16.54] generic:map[lowbit/4/0/unpack:5715]]" {
		t.Error(got)
	}
}

func TestRenderTable(t *testing.T) {
	one := []bench.Figure{{Layout: "plain", Bits: 32, GBps: 20, Share: 1}, {Layout: "lowbit", Bits: 1, Group: 32, GBps: 15.04, Share: .756, OverFloat32: 4, OverBF16: 2}}
	var all []bench.Figure
	for range one {
		for _, m := range rowsOfTables {
			all = append(all, bench.Figure{M: m, GBps: 30, Share: .9, GMACps: 12.34 * float64(m), OverOneRow: float64(m) / 2, OverFloat32: 3})
		}
	}
	lines := strings.Split(renderTable(one, all), "\n")
	want := "| 1 bit, group 32 | 15.0 | 76 % | 4.0 | 2.0 | 30.0 | 90 % | 3.0 |  | 49.4 | 98.7 | 197 | 1580 | 4.0 | 64.0 | 3.0 |"
	if lines[3] != want || strings.Count(lines[0], "|") != strings.Count(lines[1], "|") || strings.Count(lines[1], "|") != strings.Count(want, "|") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), want)
	}
}

// TestSummary holds docs/SPEED.md to the tables that the summary is taken from.
func TestSummary(t *testing.T) {
	want, err := os.ReadFile("../../" + summaryFile)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	doc := filepath.Join(dir, "SPEED.md")
	if err := os.WriteFile(doc, want, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := summarize("../../"+tablesFile, doc); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(doc); err != nil || string(got) != string(want) {
		t.Errorf("%s does not have the summary of %s (%v); go run -C tools ./kernels -w", summaryFile, tablesFile, err)
	}
	const row = "\n| 4 bits, group 32 | 1 |\n"
	damaged := filepath.Join(dir, "TABLES.md")
	if err := os.WriteFile(damaged, []byte("<!-- begin avx512vnni -->\n"+row+"<!-- end avx512vnni -->"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := summarize(damaged, doc); err == nil {
		t.Error("no error for a table without the rows")
	}
}

// TestSummaryCells holds the numbers of the cells to the heading that renderTable writes.
func TestSummaryCells(t *testing.T) {
	headings := strings.Split(strings.Trim(strings.SplitN(renderTable(nil, nil), "\n", 2)[0], "|"), "|")
	var got []string
	for _, c := range summaryCells {
		got = append(got, strings.TrimSpace(headings[c.cell]))
	}
	if got := strings.Join(got, ", "); len(headings) != 16 || got != "all: GB/s, share, x F32, 128, 128 x m = 1, x F32" {
		t.Errorf("%d cells, the summary takes %s", len(headings), got)
	}
}
