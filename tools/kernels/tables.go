package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/lowbit-go/gq/internal/kernels/bench"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/tools/internal/repository"
)

// rowsOfTables are the numbers of rows of activations that all threads multiply.
var rowsOfTables = []int{1, 4, 8, 16, 128}

// tablesFile has a section of tools/internal/repository for each instruction set, and the section
// "reading".
const tablesFile = "tools/kernels/TABLES.md"

// makeTables measures the kernels of each instruction set of this CPU. It prints a table for each,
// or writes the table to tablesFile.
func makeTables(ctx context.Context, write bool) error {
	headers, err := tableHeaders()
	if err != nil {
		return err
	}
	put := func(section, text string) error {
		if write {
			return repository.Replace(tablesFile, section, text)
		}
		_, err := fmt.Println(text)
		return err
	}
	var reading []float64
	for _, feature := range slices.Backward(kernels.Features()) {
		if feature == "generic" {
			continue
		}
		start := time.Now()
		one, err := measureTable(ctx, headers, feature, 1, []int{1})
		if err != nil {
			return err
		}
		all, err := measureTable(ctx, headers, feature, runtime.GOMAXPROCS(0), rowsOfTables)
		if err != nil {
			return err
		}
		title := fmt.Sprintf("%s, one thread and %d at m = 1, %d threads at the others:\n\n", feature, runtime.GOMAXPROCS(0), runtime.GOMAXPROCS(0))
		if err := put(feature, title+renderTable(one.Figures, all.Figures)); err != nil {
			return err
		}
		for _, f := range append(one.Figures, all.Figures...) {
			reading = append(reading, f.ReadGBps)
		}
		fmt.Fprintf(os.Stderr, "%s: %.0f s\n", feature, time.Since(start).Seconds())
	}
	slices.Sort(reading)
	return put("reading", fmt.Sprintf("Reading alone: %.1f to %.1f GB/s, median %.1f.\n", reading[0], reading[len(reading)-1], reading[len(reading)/2]))
}

// tableHeaders are the weights of the tables, 4096 x 14336.
func tableHeaders() ([]packing.Header, error) {
	q := kernels.Query{Layouts: []kernels.LayoutTile{{Layout: packing.LayoutLowbit}, {Layout: packing.LayoutQSI4CXP}, {Layout: packing.LayoutQSI8CXP}}}
	usual := kernels.Query{Bits: []int{1, 2, 3, 4, 5, 6, 7, 8}, Groups: []uint64{32, 128}}
	return q.Headers(usual, func(uint64) (rows, cols uint64) { return 4096, 14336 })
}

func measureTable(ctx context.Context, headers []packing.Header, feature string, threads int, m []int) (*bench.Report, error) {
	return bench.Run(ctx, bench.Options{
		Headers: headers, CPU: []string{feature}, M: m, Threads: []int{threads}, Time: 400 * time.Millisecond,
		Log: func(kernels.Choice) {},
	})
}

// renderTable has a line for each kind of weights: the figure of one thread, and the figures of all
// threads in order of rowsOfTables.
func renderTable(one, all []bench.Figure) string {
	var b strings.Builder
	b.WriteString("| weights | 1 thread: GB/s | share | x F32 | x BF16 | all: GB/s | share | x F32 | x BF16 |")
	for i, m := range rowsOfTables[1:] {
		if i == 0 {
			fmt.Fprintf(&b, " m = %d: GMAC/s |", m)
		} else {
			fmt.Fprintf(&b, " %d |", m)
		}
	}
	b.WriteString(" 8 x m = 1 | 128 x m = 1 | x F32 |\n|" + strings.Repeat("---|", 12+len(rowsOfTables)-1) + "\n")
	n := len(rowsOfTables)
	for i, f := range one {
		rows := all[i*n:][:n]
		fmt.Fprintf(&b, "| %s |%s%s", weightsName(f), rateCells(f), rateCells(rows[0]))
		for _, r := range rows[1:] {
			fmt.Fprintf(&b, " %s |", threeDigits(r.GMACps))
		}
		eight, most := rows[slices.Index(rowsOfTables, 8)], rows[n-1]
		fmt.Fprintf(&b, " %.1f | %.1f | %s |\n", eight.OverOneRow, most.OverOneRow, ratio(most.OverFloat32, 1))
	}
	return b.String()
}

// weightsName describes the weights of a figure.
func weightsName(f bench.Figure) string {
	switch {
	case f.Layout == "plain" && f.Bits == 32:
		return "float32"
	case f.Layout == "plain":
		return "BF16"
	case f.Layout != "lowbit":
		return f.Layout
	case f.Bits == 1:
		return fmt.Sprintf("1 bit, group %d", f.Group)
	}
	return fmt.Sprintf("%d bits, group %d", f.Bits, f.Group)
}

// rateCells are the cells of one row of activations.
func rateCells(f bench.Figure) string {
	return fmt.Sprintf(" %.1f | %.0f %% | %s | %s |", f.GBps, 100*f.Share, ratio(f.OverFloat32, 1), ratio(f.OverBF16, 1))
}

// ratio is empty for 0: a figure that has none.
func ratio(x float64, digits int) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf("%.*f", digits, x)
}

func threeDigits(x float64) string {
	switch {
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}
