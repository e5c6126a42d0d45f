package calib_test

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/calib"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/quantizer"
)

var (
	threadsModel  = flag.String("threads-model", "", "the checkpoint of BenchmarkThreads")
	threadsTokens = flag.Int("threads-tokens", calib.DefaultTokens, "tokens of calibration in BenchmarkThreads")
)

// BenchmarkThreads calibrates with 16 threads and reports the share of the CPU time that passes
// while one thread works and the others wait: all samples of a profile that are not of package
// kernels' Pool. The number of CPUs of the machine does not matter.
//
//	gq synth --preset llama-3.2-1b --layers 1 --vocab 1024 DIR
//	go test ./internal/job/calib -run - -bench Threads -benchtime 1x -timeout 1h -threads-model DIR
func BenchmarkThreads(b *testing.B) {
	if *threadsModel == "" {
		b.Skip("-threads-model names no checkpoint")
	}
	name := filepath.Join(b.TempDir(), "cpu")
	for b.Loop() {
		p := testplan.New(b, *threadsModel, quantizer.Recipe{Bits: 4, Algorithm: gqf.AlgorithmGPTQFT})
		file, err := os.Create(name)
		if err != nil {
			b.Fatal(err)
		}
		var lengths []int
		for left := *threadsTokens; left > 0; left -= 512 {
			lengths = append(lengths, min(512, left))
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			b.Fatal(err)
		}
		r, err := calib.Run(context.Background(), p, testplan.Text(512, lengths...), calib.Options{Threads: 16})
		pprof.StopCPUProfile()
		if err != nil {
			b.Fatal(err)
		}
		r.Close()
		file.Close()
	}
	// Idle goroutines and the collector have no frames of this module.
	report := func(args ...string) (seconds float64) {
		args = append([]string{"tool", "pprof", "-top", "-unit=s", "-focus=lowbit-go/gq"}, append(args, name)...)
		out, err := exec.Command("go", args...).Output()
		if err != nil {
			b.Fatal(err)
		}
		m := regexp.MustCompile(`Showing nodes accounting for ([0-9.]+)s`).FindSubmatch(out)
		if m == nil {
			b.Fatalf("no total in %q", out)
		}
		seconds, err = strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			b.Fatal(err)
		}
		if len(args) > 6 {
			b.Log(strings.Join(strings.SplitN(string(out), "\n", 30), "\n"))
		}
		return seconds
	}
	all, serial := report(), report("-ignore=kernels...Pool..work")
	b.ReportMetric(all, "CPU-s")
	b.ReportMetric(100*serial/all, "%serial")
}
