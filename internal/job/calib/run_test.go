package calib_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/calib"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

func fixture(t testing.TB) string {
	return filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16")
}

// file runs a job and returns the file's bytes and the job's warnings.
func file(t testing.TB, p *fromcheckpoint.Plan, text *text.Text, o calib.Options) ([]byte, []string) {
	t.Helper()
	r, err := calib.Run(context.Background(), p, text, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	path := filepath.Join(t.TempDir(), "model.gqf")
	if _, err := p.WriteWith(context.Background(), path, write.Options{Codes: r.Codes()}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b, r.Warnings
}

var jobRecipe = quantizer.Recipe{Bits: 3, Algorithm: gqf.AlgorithmGPTQFT}

// TestSchemes runs every kind of scheme and compares the errors of the outputs with those after a
// search.
func TestSchemes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes its time")
	}
	text, dir := testplan.Text(512, 128, 128), testmodels.Books(t, 2)
	float := logits(t, text, func(o forward.Options) (*forward.Model, error) { return forward.OpenCheckpoint(dir, o) })
	for _, r := range []quantizer.Recipe{
		{Bits: 1, Mapping: gqf.MappingFullRange}, {Bits: 1, Mapping: gqf.MappingHalfStep}, {Bits: 2, Mapping: gqf.MappingHalfStep, Group: new(64)}, {Bits: 1, Mapping: gqf.MappingAsymmetric},
		{Bits: 2, Group: new(16)}, {Bits: 3, Mapping: gqf.MappingAsymmetric}, {Bits: 4, PositiveScales: new(true)}, {Bits: 4, Group: new(quantizer.PerChannel), ScaleDtype: packing.ScaleF32},
		{Bits: 5, Mapping: gqf.MappingSymmetric}, {Bits: 6, Group: new(48)}, {Bits: 7, ScaleDtype: packing.ScaleF16}, {Bits: 8, Mapping: gqf.MappingSymmetricNoClip},
		{Bits: 4, Layouts: []quantizer.LayoutRequest{{Family: quantizer.FamilyKleidiAI}}},
	} {
		r.Algorithm = gqf.AlgorithmGPTQ
		t.Run(fmt.Sprintf("%d-bit %v %v", r.Bits, r.Mapping, r.Group), func(t *testing.T) {
			b, _ := file(t, testplan.New(t, dir, r), text, calib.Options{Refine: true})
			s := r
			s.Algorithm = gqf.AlgorithmSearch
			p := testplan.New(t, dir, s)
			path := filepath.Join(t.TempDir(), "search.gqf")
			if _, err := p.Write(context.Background(), path); err != nil {
				t.Fatal(err)
			}
			search, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			of := func(b []byte) float64 {
				path := filepath.Join(t.TempDir(), "x.gqf")
				if err := os.WriteFile(path, b, 0o666); err != nil {
					t.Fatal(err)
				}
				f, err := gqf.Open(path, gqf.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				got := logits(t, text, func(o forward.Options) (*forward.Model, error) { return forward.OpenGQF(f, o) })
				sum := 0.0
				for i, v := range got {
					d := float64(v - float[i])
					sum += d * d
				}
				return sum
			}
			with, without := of(b), of(search)
			t.Logf("squared error of logits: %.4g, of the search's %.4g", with, without)
			if !(with < 0.95*without) {
				t.Errorf("squared error of logits: %.4g, of the search's %.4g", with, without)
			}
		})
	}
}

// logits runs a model on the text.
func logits(t testing.TB, text *text.Text, open func(forward.Options) (*forward.Model, error)) []float32 {
	t.Helper()
	m, err := open(forward.Options{Activations: forward.Float32})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var all []float32
	for _, ids := range text.Sequences {
		out := make([]float32, len(ids)*m.VocabSize())
		if err := m.NewSession(len(ids)).Forward(ids, out, true); err != nil {
			t.Fatal(err)
		}
		all = append(all, out...)
	}
	return all
}

// TestArchitectures runs fused projections, post norms, and experts in single and fused tensors.
func TestArchitectures(t *testing.T) {
	if testing.Short() {
		t.Skip("takes its time")
	}
	for _, name := range []string{"phi3", "gemma2", "gemma3", "mixtral", "qwen3-moe", "smollm3", "qwen2"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(testshared.Root(t), "internal", "lm", "forward", "testdata", "torch", name)
			m, err := forward.OpenCheckpoint(dir, forward.Options{})
			if err != nil {
				t.Fatal(err)
			}
			vocab := m.VocabSize()
			m.Close()
			text := testplan.Text(vocab, 60, 61, 2, 90)
			r := quantizer.Recipe{Bits: 4, Group: new(16), Algorithm: gqf.AlgorithmGPTQFT, Rules: []quantizer.Rule{{Match: `re:.*(_proj|w[123]|gate_up_proj|down_proj)(\.weight)?`, Bits: 4}}}
			if _, err := os.Stat(dir); err != nil {
				t.Fatal(err)
			}
			b, warnings := file(t, testplan.New(t, dir, r), text, calib.Options{Refine: true, BatchBytes: 1})
			c, _ := file(t, testplan.New(t, dir, r), text, calib.Options{Refine: true, Threads: 3})
			if !bytes.Equal(b, c) {
				t.Error("other bytes with other threads and batches")
			}
			t.Log(warnings)
		})
	}
}

// TestUnreached calibrates with one token, which reaches few experts.
func TestUnreached(t *testing.T) {
	for _, name := range []string{"mixtral", "qwen3-moe"} {
		dir := filepath.Join(testshared.Root(t), "internal", "lm", "forward", "testdata", "torch", name)
		r := quantizer.Recipe{Bits: 4, Group: new(16), Algorithm: gqf.AlgorithmGPTQFT, Rules: []quantizer.Rule{{Match: `re:.*(_proj|w[123])(\.weight)?`, Bits: 4}}}
		_, warnings := file(t, testplan.New(t, dir, r), testplan.Text(32, 1), calib.Options{})
		if !slices.ContainsFunc(warnings, func(s string) bool { return strings.Contains(s, "no calibration token reached it") }) {
			t.Errorf("%s: warnings %q", name, warnings)
		}
	}
}

// TestSameBits compares the codes with the recorded ones: amd64 and arm64 must agree, with vector
// code and without.
func TestSameBits(t *testing.T) {
	const want = "36ff65bfa4b75247"
	recipe := jobRecipe
	// Takes long in an emulator.
	recipe.Rules = []quantizer.Rule{{Match: `re:model\.layers\.[2-5]\..*`, Skip: true}}
	p := testplan.New(t, fixture(t), recipe)
	r, err := calib.Run(context.Background(), p, testplan.Text(1024, 20, 41), calib.Options{Refine: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rows := r.Codes().Rows
	h := sha256.New()
	for _, m := range p.Matrices() {
		reader := rows(m)
		if reader == nil {
			continue
		}
		codes, scales := make([]int8, m.Cols), make([]float32, m.Scheme.Groups(m.Cols))
		for i := range m.Rows {
			if err := reader.ReadRow(i, rounding.Row{Codes: codes, Scales: scales}); err != nil {
				t.Fatal(err)
			}
			binary.Write(h, binary.LittleEndian, codes)
			binary.Write(h, binary.LittleEndian, scales)
		}
	}
	if got := hex.EncodeToString(h.Sum(nil)[:8]); got != want {
		t.Errorf("codes and scales have the hash %s, not %s", got, want)
	}
}

// TestHead has a rule that calibrates an untied lm_head. With gptq its outputs must be nearer to
// the float weights' outputs on the same inputs than with the search.
func TestHead(t *testing.T) {
	testshared.SlowEmulated(t, "TestSameBits has the bits")
	dir := filepath.Join(testshared.Root(t), "internal", "lm", "forward", "testdata", "torch", "llama3")
	text := testplan.Text(67, 200, 200, 200)
	logits := func(rule quantizer.Rule) []float32 {
		rule.Match = "lm_head"
		b, warnings := file(t, testplan.New(t, dir, quantizer.Recipe{Bits: 3, Algorithm: gqf.AlgorithmGPTQ, Rules: []quantizer.Rule{rule}}), text, calib.Options{})
		if len(warnings) > 0 {
			t.Error(warnings)
		}
		f, err := gqf.OpenBytes(b, gqf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		head, ok := f.Lookup("lm_head.weight")
		if want := rule.Algorithm; !ok || !rule.Skip && head.Algorithm != want {
			t.Fatalf("lm_head.weight is %v, want %s", head.Algorithm, want)
		}
		return logitsOf(t, f, text)
	}
	exact := logits(quantizer.Rule{Skip: true})
	distance := func(a gqf.Algorithm) (d float64) {
		for i, v := range logits(quantizer.Rule{Algorithm: a}) {
			d += float64(v-exact[i]) * float64(v-exact[i])
		}
		return d
	}
	search, gptq := distance(gqf.AlgorithmSearch), distance(gqf.AlgorithmGPTQ)
	if !(gptq < 0.8*search) {
		t.Errorf("squared error of the logits: %g with gptq, %g with search", gptq, search)
	}
}

// logitsOf runs a file, with float32 activations, on a text.
func logitsOf(t testing.TB, f *gqf.File, text *text.Text) (all []float32) {
	t.Helper()
	m, err := forward.OpenGQF(f, forward.Options{Activations: forward.Float32})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, s := range text.Sequences {
		out := make([]float32, len(s)*m.VocabSize())
		if err := m.NewSession(len(s)).Forward(s, out, true); err != nil {
			t.Fatal(err)
		}
		all = append(all, out...)
	}
	return all
}

// TestTied has a rule that calibrates an embedding that is the lm_head too. With gptq the logits
// must be nearer to the float model's than with the search. A job that has a working directory, and
// then one that resumes there, must give the same file.
func TestTied(t *testing.T) {
	testshared.SlowEmulated(t, "TestSameBits has the bits")
	dir, text := fixture(t), testplan.Text(1024, 200, 200, 200)
	plan := func(a gqf.Algorithm) *fromcheckpoint.Plan {
		rule := quantizer.Rule{Match: "model.embed_tokens", Bits: 3, Algorithm: a}
		return testplan.New(t, dir, quantizer.Recipe{Bits: 8, Algorithm: gqf.AlgorithmGPTQFT, Rules: []quantizer.Rule{rule}})
	}
	var files [][]byte
	var logits [][]float32
	exact := testplan.New(t, dir, quantizer.Recipe{Rules: []quantizer.Rule{{Match: "*", Skip: true}}})
	for _, p := range []*fromcheckpoint.Plan{exact, plan(gqf.AlgorithmSearch), plan(gqf.AlgorithmGPTQ)} {
		b, warnings := file(t, p, text, calib.Options{})
		if len(warnings) > 0 {
			t.Error(warnings)
		}
		f, err := gqf.OpenBytes(b, gqf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		files, logits = append(files, b), append(logits, logitsOf(t, f, text))
	}
	distance := func(a []float32) (d float64) {
		for i, v := range a {
			d += float64(v-logits[0][i]) * float64(v-logits[0][i])
		}
		return d
	}
	if search, gptq := distance(logits[1]), distance(logits[2]); !(gptq < 0.9*search) {
		t.Errorf("squared error of the logits: %g with gptq, %g with search", gptq, search)
	}
	work := openWork(t, filepath.Join(t.TempDir(), "work"))
	for _, resumed := range []bool{false, true} {
		p, found := plan(gqf.AlgorithmGPTQ), false
		b, _ := file(t, p, text, calib.Options{Work: work, Resumed: func(int, int) { found = true }})
		if found != resumed || !bytes.Equal(b, files[2]) {
			t.Errorf("with a working directory: resumed %t, want %t; same file: %t", found, resumed, bytes.Equal(b, files[2]))
		}
	}
}
