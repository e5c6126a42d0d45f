package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// costPrefix begins the names of the benchmarks of costs: CPU/layout/bits/group/what.
const costPrefix = "BenchmarkCosts/"

// costTable holds the cost per weight of each benchmark, by CPU and the rest of its name.
type costTable map[string]map[string]float64

func (t costTable) set(name string, cost float64) {
	feature, rest, _ := strings.Cut(strings.TrimPrefix(name, costPrefix), "/")
	if t[feature] == nil {
		t[feature] = map[string]float64{}
	}
	if old, ok := t[feature][rest]; !ok || cost < old {
		t[feature][rest] = cost
	}
}

// printCosts prints kernels/cost.go's table, by "time" or by "instructions".
func printCosts(by string) error {
	table := costTable{}
	var err error
	switch by {
	case "time":
		err = table.time()
	case "instructions":
		err = table.count()
	default:
		return fmt.Errorf("-costs %s: want time or instructions", by)
	}
	if err != nil {
		return err
	}
	for _, feature := range []string{"generic", "avx2", "avxvnni", "avx512vnni", "neon", "dotprod", "i8mm"} {
		if c := table[feature]; c != nil {
			fmt.Print(source(feature, c))
		}
	}
	return nil
}

// costLine is a benchmark's line of output.
var costLine = regexp.MustCompile(`(?m)^(BenchmarkCosts/\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ps/weight\s+([\d.e+]+) weights$`)

// time measures: picoseconds per weight, the least of some short runs.
func (t costTable) time() error {
	dir, err := os.MkdirTemp("", "kernels")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "kernels.test")
	if err := build(binary); err != nil {
		return err
	}
	for range *rounds {
		out, err := exec.Command(binary, "-test.run", "^$", "-test.bench", "^BenchmarkCosts$", "-test.benchtime", "2ms", "-test.cpu", "1").Output()
		if err != nil {
			return fmt.Errorf("run the benchmarks: %w", err)
		}
		for _, m := range costLine.FindAllStringSubmatch(string(out), -1) {
			ps, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				return err
			}
			t.set(m[1], ps)
		}
	}
	return nil
}

// count counts: instructions of arm64 per thousand weights.
func (t costTable) count() error {
	c, err := newCounter()
	if err != nil {
		return err
	}
	defer c.close()
	out, err := exec.Command("qemu-aarch64", "-cpu", *cpu, c.binary, "-test.run", "^$", "-test.bench", "^BenchmarkCosts$", "-test.benchtime", "1x", "-test.cpu", "1").Output()
	if err != nil {
		return fmt.Errorf("list the benchmarks: %w", err)
	}
	for _, m := range costLine.FindAllStringSubmatch(string(out), -1) {
		weights, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return err
		}
		n, err := c.measure(m[1])
		if err != nil {
			return fmt.Errorf("%s: %w", m[1], err)
		}
		t.set(m[1], 1000*n/weights)
	}
	return nil
}

// The shape of the groups in the benchmarks.
const (
	costCols  = 1024
	costGroup = 32
	panelRows = 8
)

// source is a CPU's entry of allCosts.
func source(feature string, c map[string]float64) string {
	lowbit := func(bits int, what string) float64 { return c[fmt.Sprintf("lowbit/%d/%d/%s", bits, costGroup, what)] }
	record := (lowbit(4, "unpack") - c["lowbit/4/0/unpack"]) / (1./(panelRows*costGroup) - 1./(panelRows*costCols))
	most := 1
	for name := range c {
		if mr, err := strconv.Atoi(name[strings.LastIndex(name, "/")+1:]); err == nil {
			most = max(most, mr)
		}
	}
	// The cost of a step is a line through its fewest and its most rows.
	largest := func(bits int) int {
		mr := most
		for lowbit(bits, strconv.Itoa(mr)) == 0 && mr > 1 {
			mr /= 2
		}
		return mr
	}
	row := func(bits int, step float64) float64 {
		mr := largest(bits)
		return (lowbit(bits, strconv.Itoa(mr)) - step) / float64(mr)
	}
	var steps []float64
	for bits := 4; bits <= 8; bits++ {
		if mr := float64(largest(bits)); mr > 1 {
			one, all := lowbit(bits, "1"), lowbit(bits, strconv.Itoa(int(mr)))
			steps = append(steps, max(0, (mr*one-all)/(mr-1)))
		}
	}
	step := 0.
	if len(steps) > 0 {
		slices.Sort(steps)
		step = steps[len(steps)/2]
	}
	var unpack, gemv, torchao, layouts []string
	any := false
	for bits := 1; bits <= 8; bits++ {
		unpack = append(unpack, short(max(0, lowbit(bits, "unpack")-record/(panelRows*costGroup))))
		gemv = append(gemv, short(lowbit(bits, "gemv")))
		torchao = append(torchao, short(c[fmt.Sprintf("torchao-linear/%d/%d/gemv", bits, costGroup)]))
		any = any || lowbit(bits, "gemv") > 0
	}
	for _, l := range [][2]string{{"QSI4CXP", "qsi4cxp/4/0"}, {"QSI8CXP", "qsi8cxp/8/0"}, {"QSU2CXP", "qsu2cxp/2/0"}, {"QSI4C32PF16", "qsi4c32p-f16/4/32"}, {"QAI4C32P", "qai4c32p/4/32"}} {
		if x := c[l[1]+"/gemv"]; x > 0 {
			layouts = append(layouts, fmt.Sprintf("packing.Layout%s: %s", l[0], short(x)))
		}
	}
	var b strings.Builder
	name := map[string]string{"generic": "Generic", "avx2": "AVX2", "avxvnni": "AVXVNNI", "avx512vnni": "AVX512", "neon": "NEON", "dotprod": "DotProd", "i8mm": "I8MM"}[feature]
	fmt.Fprintf(&b, "\tcpu.%s: {\n\t\tstep: %s, row4: %s, row: %s, row7: %s, row8: %s, unpack: [8]float64{%s}, record: %s,\n", name,
		short(step), short(row(4, step)), short((row(5, step)+row(6, step))/2), short(row(7, step)), short(row(8, step)), strings.Join(unpack, ", "), short(record))
	if any {
		fmt.Fprintf(&b, "\t\tgemv: [8]float64{%s},", strings.Join(gemv, ", "))
		if torchao[3] != "0" {
			fmt.Fprintf(&b, " torchao: [8]float64{%s},", strings.Join(torchao, ", "))
		}
		fmt.Fprintf(&b, "\n\t\tlayouts: map[packing.Layout]float64{\n\t\t\t%s,\n\t\t},\n", strings.Join(layouts, ", "))
	}
	return b.String() + "\t},\n"
}

// short is x with two digits, or all digits before the point.
func short(x float64) string {
	if x >= 10 {
		return fmt.Sprintf("%.0f", x)
	}
	return strconv.FormatFloat(x, 'g', 2, 64)
}
