package measure

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

var update = flag.Bool("update", false, "write the golden files")

// goldenJobs are quantizations of the bundled model. testdata has their figures.
var goldenJobs = []struct {
	name   string
	recipe quantizer.Recipe
}{
	{"4-bit", quantizer.Recipe{}},
	{"3-bit-asymmetric", quantizer.Recipe{Bits: 3, Mapping: gqf.MappingAsymmetric, EmbeddingBits: 6}},
	{"1-bit", quantizer.Recipe{Bits: 1, Mapping: gqf.MappingFullRange, EmbeddingBits: 2}},
	{"8-bit-channel", quantizer.Recipe{Bits: 8, Group: new(quantizer.PerChannel)}},
}

// TestGolden checks that the figures of a real model have the recorded bits, on any machine and for
// any number of threads, and agree with the quantizer's report.
func TestGolden(t *testing.T) {
	dir := filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16")
	for i, job := range goldenJobs {
		if testing.Short() && i > 1 {
			break
		}
		path, report := quantize(t, dir, conversion.Options{Recipe: job.recipe})
		var first []byte
		for _, o := range []TensorOptions{{}, {Threads: 1}, {Threads: 3, CPU: "generic"}} {
			stats := tensorsOf(t, dir, path, o)
			got, err := json.MarshalIndent(stats, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			if first != nil {
				if string(got) != string(first) {
					t.Fatalf("%s: other figures with %d threads, CPU %q", job.name, o.Threads, o.CPU)
				}
				continue
			}
			first = append(got, '\n')
			compareGolden(t, filepath.Join("testdata", "tensors-"+job.name+".json"), first)
			first = got
			compareReport(t, stats, report)
			if testing.Short() {
				break
			}
		}
	}
}

// compareReport compares with the quantizer's sums, which are float32 sums in lanes.
func compareReport(t *testing.T, stats []accuracy.TensorStats, report *write.Report) {
	t.Helper()
	for i := range stats {
		s := &stats[i]
		j := slices.IndexFunc(report.Tensors, func(r write.TensorSQNR) bool { return r.Name == s.Name })
		if s.Unquantized {
			continue
		}
		if j < 0 || report.Tensors[j].SQNR == nil || math.Abs(*report.Tensors[j].SQNR-float64(s.SQNR)) > 1e-4 {
			t.Errorf("%s: %v, the quantizer says %v", s.Name, s.SQNR, report.Tensors[max(j, 0)].SQNR)
		}
	}
}

func compareGolden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) == string(want) {
		return
	}
	a, b := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("%s, line %d: %s, want %s", path, i+1, a[i], b[i])
		}
	}
	t.Fatalf("%s: %d lines, want %d", path, len(a), len(b))
}
