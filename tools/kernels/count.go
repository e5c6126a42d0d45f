package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// printCounts counts the whole products that an expression selects.
func printCounts(expression string) error {
	selected, err := regexp.Compile(expression)
	if err != nil {
		return err
	}
	c, err := newCounter()
	if err != nil {
		return err
	}
	defer c.close()
	names, err := c.list()
	if err != nil {
		return err
	}
	fmt.Printf("| CPU | layout | tile | bits | scales | zero points | group | m | instructions per multiply-accumulate |\n|%s\n", strings.Repeat("---|", 9))
	for _, name := range names {
		if !selected.MatchString(name) {
			continue
		}
		m, err := strconv.Atoi(name[strings.LastIndex(name, "/")+1:])
		if err != nil {
			return err
		}
		figure, err := c.measure(prefix + name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		const weights = 2048 * 2048
		fmt.Printf("| %s | %s |\n", strings.NewReplacer("/", " | ", ",", " | ").Replace(name), strings.TrimPrefix(fmt.Sprintf("%.4f", figure/weights/float64(m)), "0"))
	}
	return nil
}

// counter counts instructions of the benchmarks of package kernels for arm64.
type counter struct {
	dir, binary string
	counting    string // the plugin with the addresses of gq's functions
}

func newCounter() (*counter, error) {
	dir, err := os.MkdirTemp("", "kernels")
	if err != nil {
		return nil, err
	}
	c := &counter{dir: dir, binary: filepath.Join(dir, "kernels.test")}
	if err := build(c.binary, "GOARCH=arm64"); err != nil {
		c.close()
		return nil, err
	}
	lo, hi, err := addresses(c.binary)
	if err != nil {
		c.close()
		return nil, err
	}
	c.counting = fmt.Sprintf("%s,lo=%#x,hi=%#x", *plugin, lo, hi)
	return c, nil
}

func (c *counter) close() { os.RemoveAll(c.dir) }

// build compiles the tests of package kernels.
func build(binary string, env ...string) error {
	b := exec.Command("go", "test", "-c", "-o", binary, "./kernels")
	b.Env, b.Stderr = append(os.Environ(), env...), os.Stderr
	if err := b.Run(); err != nil {
		return fmt.Errorf("build the benchmarks: %w", err)
	}
	return nil
}

// prefix begins the names of the benchmarks.
const prefix = "BenchmarkForward/"

// list returns the names of the whole products.
func (c *counter) list() ([]string, error) {
	names := exec.Command("qemu-aarch64", "-cpu", *cpu, c.binary, "-test.run", "^$", "-test.bench", "BenchmarkForwardNames", "-test.benchtime", "1x")
	out, err := names.Output()
	if err != nil {
		return nil, fmt.Errorf("list the benchmarks: %w", err)
	}
	var list []string
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list, nil
}

// addresses is the range of the functions of gq's packages, and of packages that the linker puts
// between them.
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

// measure counts the instructions of one iteration of a benchmark.
func (c *counter) measure(name string) (float64, error) {
	var counts [2]int
	for i, n := range []int{*few, *many} {
		var err error
		if counts[i], err = c.count(name, n); err != nil {
			return 0, err
		}
	}
	return float64(counts[1]-counts[0]) / float64(*many-*few), nil
}

// count counts the instructions of the program that runs n iterations of a benchmark.
func (c *counter) count(name string, n int) (int, error) {
	run := exec.Command("qemu-aarch64", "-cpu", *cpu, "-plugin", c.counting, "-d", "plugin", c.binary,
		"-test.run", "^$", "-test.bench", exactly(name), "-test.benchtime", fmt.Sprintf("%dx", n), "-test.cpu", "1")
	run.Env = append(os.Environ(), "GOGC=off")
	out, err := run.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	_, figure, ok := bytes.Cut(out, []byte("insns "))
	if !ok || !bytes.Contains(out, []byte(name[:strings.Index(name, "/")+1])) {
		return 0, fmt.Errorf("no count in %q", out)
	}
	digits, _, _ := bytes.Cut(figure, []byte("\n"))
	return strconv.Atoi(string(digits))
}

// exactly is the expression that selects one benchmark.
func exactly(name string) string {
	var elements []string
	for _, e := range strings.Split(name, "/") {
		elements = append(elements, "^"+regexp.QuoteMeta(e)+"$")
	}
	return strings.Join(elements, "/")
}
