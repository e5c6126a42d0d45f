package forward_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

var update = flag.Bool("update", false, "write the golden files anew")

// quantized makes a .gqf from a checkpoint and opens it.
func quantized(t testing.TB, dir string, r quantizer.Recipe) *gqf.File {
	t.Helper()
	f, err := gqf.Open(quantizedFile(t, dir, r), gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// edited makes a .gqf from a checkpoint and applies edit.
func edited(t testing.TB, dir string, r quantizer.Recipe, edit func(f *gqf.File, b []byte)) *gqf.File {
	t.Helper()
	b, err := os.ReadFile(quantizedFile(t, dir, r))
	if err != nil {
		t.Fatal(err)
	}
	f, err := gqf.OpenBytes(b, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	edit(f, b)
	testshared.Seal(b)
	if f, err = gqf.OpenBytes(b, gqf.Options{}); err != nil {
		t.Fatal(err)
	}
	return f
}

// quantizedFile makes a .gqf from a checkpoint.
func quantizedFile(t testing.TB, dir string, r quantizer.Recipe) string {
	t.Helper()
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	config, err := assets.ReadConfig(ck)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := conversion.NewPlan(ck, config, conversion.Options{Recipe: r})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.gqf")
	if _, err := plan.Write(context.Background(), path); err != nil {
		t.Fatal(err)
	}
	return path
}

func openGQF(t testing.TB, f *gqf.File, o forward.Options) *forward.Model {
	t.Helper()
	m, err := forward.OpenGQF(f, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func books(t testing.TB) string {
	return filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16")
}

// sampleTokens returns the tokens of a sentence, repeated up to n.
func sampleTokens(t testing.TB, n int) []int32 {
	t.Helper()
	tok, err := tokenizer.Open(books(t))
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode(strings.Repeat("It was the best of times, it was the worst of times; and the old man said to his daughter that he would go. ", 12), tokenizer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return append([]int32{1}, ids...)[:n]
}

func allLogits(t testing.TB, m *forward.Model, tokens []int32) []float32 {
	t.Helper()
	logits := make([]float32, len(tokens)*m.VocabSize())
	if err := m.NewSession(len(tokens)).Forward(tokens, logits, true); err != nil {
		t.Fatal(err)
	}
	return logits
}

func checksum(x []float32) string {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	var b [4]byte
	for _, v := range x {
		u := math.Float32bits(v)
		b = [4]byte{byte(u), byte(u >> 8), byte(u >> 16), byte(u >> 24)}
		h.Write(b[:])
	}
	return fmt.Sprintf("%08x", h.Sum32())
}

// TestGoldenLogits pins the bits of logits: other machines, thread counts and kernels must give the
// same. Emulated, it runs all of that for one scheme; tests of package kernels hold the kernels of
// other schemes to the portable ones there.
func TestGoldenLogits(t *testing.T) {
	tokens := sampleTokens(t, 40)
	emulated := testing.Short() && runtime.GOARCH == "arm64"
	golden := filepath.Join("testdata", "logits.txt")
	raw, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	want := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if i := strings.LastIndexByte(line, ' '); !*update {
			want[line[:i]] = strings.TrimSpace(line[i+1:])
		}
	}
	check := func(name string, m *forward.Model) {
		t.Helper()
		got := checksum(allLogits(t, m, tokens))
		if *update && want[name] == "" {
			names = append(names, name)
			want[name] = got
		}
		if got != want[name] {
			t.Errorf("%s: the checksum of the logits is %s, want %s", name, got, want[name])
		}
	}
	for i, o := range []forward.Options{{Threads: 2, Packed: true}, {Threads: 2, CPU: "generic"}, {Threads: 1}, {Threads: 3}} {
		if emulated && i >= 2 {
			break
		}
		m, err := forward.OpenCheckpoint(books(t), o)
		if err != nil {
			t.Fatal(err)
		}
		check("bf16", m)
		m.Close()
	}
	for i, c := range []struct {
		name   string
		recipe quantizer.Recipe
	}{
		{"4 bits", quantizer.Recipe{}},
		{"8 bits", quantizer.Recipe{Bits: 8}},
		{"3 bits, asymmetric, group 48", quantizer.Recipe{Bits: 3, Group: new(48), Mapping: gqf.MappingAsymmetric}},
		{"1 bit", quantizer.Recipe{Bits: 1, Mapping: gqf.MappingFullRange}},
		{"kleidiai", quantizer.Recipe{Layouts: formats(t, "kleidiai")}},
		{"torchao", quantizer.Recipe{Layouts: formats(t, "torchao"), PositiveScales: new(true), ScaleDtype: packing.ScaleF32, Mapping: gqf.MappingSymmetric}},
	} {
		f := quantized(t, books(t), c.recipe)
		check(c.name, openGQF(t, f, forward.Options{Threads: 2}))
		if emulated && i > 0 {
			continue
		}
		check(c.name, openGQF(t, f, forward.Options{Threads: 1, CPU: "generic"}))
		check(c.name+", float32 activations", openGQF(t, f, forward.Options{Threads: 2, Activations: forward.Float32}))
		check(c.name+", float32 activations", openGQF(t, f, forward.Options{Threads: 2, Activations: forward.Float32, Packed: true}))
	}
	if *update {
		var b strings.Builder
		for _, name := range names {
			fmt.Fprintf(&b, "%s %s\n", name, want[name])
		}
		if err := os.WriteFile(golden, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func formats(t testing.TB, s string) []quantizer.LayoutRequest {
	t.Helper()
	f, err := quantizer.ParseLayouts(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestQuantizationCosts compares a .gqf with its checkpoint: fewer bits cost more, and float32
// activations cost less.
func TestQuantizationCosts(t *testing.T) {
	testshared.SlowEmulated(t, "TestGoldenLogits has the bits")
	tokens := sampleTokens(t, 64)
	m, err := forward.OpenCheckpoint(books(t), forward.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	want := allLogits(t, m, tokens)
	last := 0.0
	for _, bits := range []int{8, 5, 4, 3, 2} {
		f := quantized(t, books(t), quantizer.Recipe{Bits: bits})
		int8s := distance(allLogits(t, openGQF(t, f, forward.Options{}), tokens), want)
		floats := distance(allLogits(t, openGQF(t, f, forward.Options{Activations: forward.Float32}), tokens), want)
		t.Logf("%d bits: logits off by %.4f rms, %.4f with float32 activations", bits, int8s, floats)
		if !(int8s > last) || bits == 8 && !(floats < int8s) || math.Abs(int8s-floats) > 0.1 {
			t.Errorf("%d bits: %v and %v after %v", bits, int8s, floats, last)
		}
		last = int8s
	}
}

func distance(x, y []float32) float64 {
	sum := 0.0
	for i := range x {
		d := float64(x[i]) - float64(y[i])
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(x)))
}

// TestArchitecturesFromGQF runs every architecture from a .gqf with 8-bit weights: fused and
// separate matrices, biases, experts and tied embeddings find their places, so logits stay near the
// checkpoint's.
func TestArchitecturesFromGQF(t *testing.T) {
	testshared.SlowEmulated(t, "TestGoldenLogits has the bits")
	dirs, _ := filepath.Glob("testdata/torch/*/config.json")
	for _, config := range dirs {
		dir := filepath.Dir(config)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m, err := forward.OpenCheckpoint(dir, forward.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			tokens := make([]int32, 24)
			for i := range tokens {
				tokens[i] = int32((i*37 + 5) % m.VocabSize())
			}
			want := allLogits(t, m, tokens)
			f := quantized(t, dir, quantizer.Recipe{Bits: 8, Group: new(16)})
			for _, a := range []forward.Activations{forward.Int8, forward.Float32} {
				q := openGQF(t, f, forward.Options{Activations: a})
				got := allLogits(t, q, tokens)
				off, size := distance(got, want), distance(want, make([]float32, len(want)))
				t.Logf("%v: off by %.4f of %.3f", a, off, size)
				limit := 0.08
				// a token near the border between two experts may change its expert
				if m.Config().Experts != nil {
					limit = 0.3
				}
				if !(off < limit*size) {
					t.Errorf("%v activations: off by %v of %v", a, off, size)
				}
			}
		})
	}
}

// TestBatchOfGQF holds a Batch to sessions for kinds of kernels and activations.
func TestBatchOfGQF(t *testing.T) {
	testshared.SlowEmulated(t, "TestBatch runs there")
	model := testmodels.Books(t, 2)
	for i, recipe := range []quantizer.Recipe{
		{Bits: 4, Group: new(32)}, {Bits: 3, Group: new(48), Mapping: gqf.MappingAsymmetric}, {Bits: 8, Group: new(16)},
		{Bits: 4, Group: new(32), Layouts: formats(t, "kleidiai")},
		{Bits: 4, Group: new(32), Layouts: formats(t, "torchao"), PositiveScales: new(true), ScaleDtype: packing.ScaleF32, Mapping: gqf.MappingSymmetric},
	} {
		f := quantized(t, model, recipe)
		for j, o := range []forward.Options{{Threads: 1}, {Threads: 3}, {Threads: 3, CPU: "generic"}, {Threads: 2, Activations: forward.Float32}} {
			// Each kind of weights meets two of the options, each of the options two kinds or three.
			if (i+j)%2 != 0 || testing.Short() && (i != j || o.CPU != "") {
				continue
			}
			m := openGQF(t, f, o)
			forward.CheckBatch(t, m, uint64(10*i+j))
		}
	}
}

// TestTapeOfGQF differentiates a quantized model: on packed bytes with int8 activations, whose
// rounding gradients pass unchanged, and on dequantized weights. The rows of both are the same.
func TestTapeOfGQF(t *testing.T) {
	testshared.SlowEmulated(t, "TestGradientBits has the bits")
	for _, recipe := range []quantizer.Recipe{
		{Bits: 8, Group: new(16)}, {Bits: 3, Group: new(16), Mapping: gqf.MappingAsymmetric},
		{Bits: 4, Group: new(32), Layouts: formats(t, "kleidiai")},
		{Bits: 4, Group: new(32), Layouts: formats(t, "torchao"), PositiveScales: new(true), ScaleDtype: packing.ScaleF32, Mapping: gqf.MappingSymmetric},
	} {
		f := quantized(t, "testdata/torch/llama3", recipe)
		tokens := []int32{3, 1, 4, 1, 5, 9, 2, 6}
		var first map[string][]float32
		var rows map[string][]float32
		for _, o := range []forward.Options{{Activations: forward.Float32}, {Activations: forward.Float32, Packed: true}, {}} {
			m := openGQF(t, f, o)
			weights, got := map[string][]float32{}, map[string][]float32{}
			for _, name := range m.Linears() {
				r := m.Linear(name).(kernels.RowReader)
				for i := range r.Rows() {
					row := make([]float32, r.Cols())
					r.ReadRow(row, i)
					weights[name] = append(weights[name], row...)
				}
			}
			tape, err := m.NewTape(forward.TapeOptions{MaxTokens: len(tokens)})
			if err != nil {
				t.Fatal(err)
			}
			if err := tape.Forward([][]int32{tokens}, nil); err != nil {
				t.Fatal(err)
			}
			logits := make([]float32, len(tokens)*m.VocabSize())
			if err := tape.Logits(0, 0, len(tokens), logits); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(logits, allLogits(t, m, tokens)) {
				t.Errorf("%+v, %+v: other logits than a session's", recipe, o)
			}
			err = tape.Backward(func(int, int, int, []float32) error { return nil }, &forward.Gradients{
				Linear: func(g *forward.LinearGradient) error {
					got[g.Name] = make([]float32, g.N*g.K)
					return g.Weights(got[g.Name], 0, g.N)
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first, rows = got, weights
			}
			for name, want := range first {
				if !slices.Equal(weights[name], rows[name]) {
					t.Errorf("%+v, %+v: other rows of %s", recipe, o, name)
				}
				off, size := distance(got[name], want), distance(want, make([]float32, len(want)))
				if limit := 0.2 * size; !(off <= limit) || o.Activations == forward.Float32 && off != 0 {
					t.Errorf("%+v, %+v: the gradient of %s is off by %v of %v", recipe, o, name, off, size)
				}
			}
		}
	}
}

func BenchmarkForward(b *testing.B) {
	tokens := sampleTokens(b, 256)
	models := map[string]*forward.Model{}
	for _, packed := range []bool{false, true} {
		m, err := forward.OpenCheckpoint(books(b), forward.Options{Packed: packed})
		if err != nil {
			b.Fatal(err)
		}
		defer m.Close()
		models[fmt.Sprintf("bf16 packed=%v", packed)] = m
	}
	f := quantized(b, books(b), quantizer.Recipe{})
	models["4bit int8"] = openGQF(b, f, forward.Options{})
	models["4bit float32"] = openGQF(b, f, forward.Options{Activations: forward.Float32})
	for name, m := range models {
		logits := make([]float32, len(tokens)*m.VocabSize())
		b.Run(name+"/prefill", func(b *testing.B) {
			s := m.NewSession(256)
			for b.Loop() {
				s.Reset()
				if err := s.Forward(tokens, logits, true); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*len(tokens))/b.Elapsed().Seconds(), "tokens/s")
		})
		b.Run(name+"/decode", func(b *testing.B) {
			s := m.NewSession(256)
			n := 0
			for b.Loop() {
				if s.Len() == 256 {
					s.Reset()
				}
				if err := s.Forward(tokens[s.Len():][:1], logits[:m.VocabSize()], false); err != nil {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// TestVariantForCPU demands the variant for this CPU's features if Options.ForCPU is set, otherwise
// the first variant.
func TestVariantForCPU(t *testing.T) {
	have := gqf.NewCPUFeatures(kernels.Features())
	if have == 0 {
		t.Skip("this CPU or build has none of the features that a variant may name")
	}
	recipe := quantizer.Recipe{Layouts: formats(t, "lowbit:8x16x2,lowbit:4x8x2")}
	f := edited(t, books(t), recipe, func(f *gqf.File, b []byte) {
		for i := range f.NumPayloads() {
			if p := f.Payload(i); p.Stored == 1 {
				binary.LittleEndian.PutUint32(testshared.Record(b, testshared.SecPayloads, i)[28:], uint32(have))
			}
		}
	})
	for _, test := range []struct {
		o    forward.Options
		tile string
	}{
		{forward.Options{}, "8x16x2"},
		{forward.Options{ForCPU: true}, "4x8x2"},
		{forward.Options{ForCPU: true, CPU: "generic"}, "8x16x2"},
	} {
		var tiles []string
		test.o.Threads = 1
		test.o.Log = func(c kernels.Choice) { tiles = append(tiles, c.Header.Tile.String()) }
		m := openGQF(t, f, test.o)
		allLogits(t, m, sampleTokens(t, 3))
		tiles = slices.DeleteFunc(tiles, func(s string) bool { return s == "" })
		slices.Sort(tiles)
		if tiles = slices.Compact(tiles); !slices.Equal(tiles, []string{test.tile}) && !slices.Equal(tiles, []string{test.tile, "8x16x2"}) {
			t.Errorf("%+v: tiles %v, want %s", test.o, tiles, test.tile)
		}
	}
}

// TestLinkedBias demands the bias that the file links, whatever its name.
func TestLinkedBias(t *testing.T) {
	const dir = "testdata/torch/qwen2" // q, k and v have biases
	recipe := quantizer.Recipe{Bits: 8, Group: new(16), Layouts: formats(t, "codes")}
	want := allLogits(t, openGQF(t, quantized(t, dir, recipe), forward.Options{Activations: forward.Float32}), []int32{1, 2, 3})
	f := edited(t, dir, recipe, func(_ *gqf.File, b []byte) {
		names := testshared.Section(b, testshared.SecStrings)
		copy(names, bytes.ReplaceAll(names, []byte("q_proj.bias"), []byte("q_proj.biat")))
	})
	if _, ok := f.Lookup("model.layers.0.self_attn.q_proj.biat"); !ok {
		t.Fatal("no bias was renamed")
	}
	if got := allLogits(t, openGQF(t, f, forward.Options{Activations: forward.Float32}), []int32{1, 2, 3}); !slices.Equal(got, want) {
		t.Error("other logits")
	}
}
