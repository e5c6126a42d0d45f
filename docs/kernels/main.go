// Command kernels counts the instructions that whole products execute on arm64, for docs/KERNELS.md, without an Arm
// machine: it runs BenchmarkForward of package kernels under qemu-aarch64 with a plugin that counts them.
//
//	go run ./docs/kernels -plugin insncount.so '^dotprod/lowbit,.*,32/1$'
//
// The argument selects benchmarks by CPU/layout,tile,bits,scales,zero points,group/m. A figure is of executed instructions per
// multiply-accumulate: the difference between two runs of many and of few iterations, so that it holds everything in
// Forward and nothing that happens once. Only gq's own code is counted, because the work of Go's runtime differs from run
// to run.
package main

import (
	"bytes"
	"debug/elf"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	plugin = flag.String("plugin", "insncount.so", "the `file` of the plugin: it prints \"insns N\" when the program ends")
	cpu    = flag.String("cpu", "max", "the CPU that qemu-aarch64 emulates")
	few    = flag.Int("few", 1, "iterations of the shorter run")
	many   = flag.Int("many", 3, "iterations of the longer run")
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("kernels: ")
	flag.Parse()
	if err := run(flag.Arg(0)); err != nil {
		log.Fatal(err)
	}
}

func run(expression string) error {
	selected, err := regexp.Compile(expression)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "kernels")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "kernels.test")
	build := exec.Command("go", "test", "-c", "-o", binary, "./kernels")
	build.Env, build.Stderr = append(os.Environ(), "GOARCH=arm64"), os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the benchmarks: %w", err)
	}
	names, err := list(binary)
	if err != nil {
		return err
	}
	lo, hi, err := addresses(binary)
	if err != nil {
		return err
	}
	counting := fmt.Sprintf("%s,lo=%#x,hi=%#x", *plugin, lo, hi)
	fmt.Printf("| CPU | layout | tile | bits | scales | zero points | group | m | instructions per multiply-accumulate |\n|%s\n", strings.Repeat("---|", 9))
	for _, name := range names {
		if !selected.MatchString(name) {
			continue
		}
		figure, err := measure(binary, name, counting)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("| %s | %s |\n", strings.NewReplacer("/", " | ", ",", " | ").Replace(name), strings.TrimPrefix(fmt.Sprintf("%.4f", figure), "0"))
	}
	return nil
}

// prefix begins the names of the benchmarks.
const prefix = "BenchmarkForward/"

// list returns the names of the benchmarks.
func list(binary string) ([]string, error) {
	c := exec.Command("qemu-aarch64", "-cpu", *cpu, binary, "-test.run", "^$", "-test.bench", "BenchmarkForwardNames", "-test.benchtime", "1x")
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("list the benchmarks: %w", err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// addresses is the range of the functions of gq's packages, and of packages that the linker puts between them.
func addresses(binary string) (lo, hi uint64, err error) {
	f, err := elf.Open(binary)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		return 0, 0, err
	}
	lo = math.MaxUint64
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && strings.HasPrefix(s.Name, "github.com/lowbit-go/gq/") {
			lo, hi = min(lo, s.Value), max(hi, s.Value+s.Size)
		}
	}
	return lo, hi, nil
}

// measure counts the instructions of a benchmark.
func measure(binary, name, plugin string) (float64, error) {
	m, err := strconv.Atoi(name[strings.LastIndex(name, "/")+1:])
	if err != nil {
		return 0, err
	}
	var counts [2]int
	for i, n := range []int{*few, *many} {
		if counts[i], err = count(binary, name, plugin, n); err != nil {
			return 0, err
		}
	}
	const weights = 2048 * 2048
	return float64(counts[1]-counts[0]) / float64(*many-*few) / weights / float64(m), nil
}

// count counts the instructions of the program that runs n iterations of a benchmark.
func count(binary, name, plugin string, n int) (int, error) {
	var elements []string
	for _, e := range strings.Split(prefix+name, "/") {
		elements = append(elements, "^"+regexp.QuoteMeta(e)+"$")
	}
	c := exec.Command("qemu-aarch64", "-cpu", *cpu, "-plugin", plugin, "-d", "plugin", binary,
		"-test.run", "^$", "-test.bench", strings.Join(elements, "/"), "-test.benchtime", fmt.Sprintf("%dx", n), "-test.cpu", "1")
	c.Env = append(os.Environ(), "GOGC=off")
	out, err := c.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	_, figure, ok := bytes.Cut(out, []byte("insns "))
	if !ok || !bytes.Contains(out, []byte(prefix)) {
		return 0, fmt.Errorf("no count in %q", out)
	}
	digits, _, _ := bytes.Cut(figure, []byte("\n"))
	return strconv.Atoi(string(digits))
}
