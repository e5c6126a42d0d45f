package calib_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/calib"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/togguf"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

var (
	full       = flag.Bool("full", false, "measure all of the table of quality; takes minutes")
	fullModels = flag.String("models", "stories260K,books1.3M,books3.7M", "with -full: the models")
	fullBits   = flag.String("bits", "4,3,2", "with -full: bits")
	fullBy     = flag.String("methods", "rtn,search,gptq,gptq-ft,gptq+refine,gptq-ft+refine", "with -full: the methods; with /self, on text of the model's own")
	fullMap    = flag.String("mapping", "full-range", "with -full: the mapping")
	fullGroup  = flag.Int("group", 32, "with -full: the group")
	fullTable  = flag.Int("table", 8, "with -full: bits of the table")
	fullCalib  = flag.Int("calibration-tokens", calib.DefaultTokens, "with -full: tokens of calibration")
	fullSkip   = flag.Int("skip", 0, "with -full: tokens to leave out between calibration and evaluation: other text than that on which recipes were chosen")
	fullEval   = flag.Int("evaluated", evaluated, "with -full: tokens to score")
	fullSeed   = flag.Uint64("seed", 1, "with -full: the seed of text of the model's own")
)

// qualityModel is a model and its text: calibration takes the beginning, evaluation the rest.
type qualityModel struct {
	name, dir, text string // dir is absolute, or in the directory of shared models
	convention      text.Convention
}

var qualityModels = []qualityModel{
	{"stories260K", "models/stories260K-f32", "text/tinystories-val-300stories.txt", text.Documents},
	{"books1.3M", "models/books1.3M-bf16", "text/books-heldout.txt", text.Windows},
	{"books3.7M", "models/books3.7M-bf16", "text/books-heldout.txt", text.Windows},
}

// evaluated is how many tokens are scored.
const evaluated = 16000

// opened is a model that is ready to be measured.
type opened struct {
	qualityModel
	tok      *tokenizer.Tokenizer
	float    *forward.Model
	ck       *safetensors.Checkpoint
	config   []byte
	windows  []text.Window
	head     []byte // the part that calibration may read
	texts    map[string]*text.Text
	baseline map[int]float64 // KL of TorchAO's symmetric RTN
}

func openQuality(t testing.TB, q qualityModel, calibration, evaluated int) *opened {
	t.Helper()
	shared := testshared.Dir(t)
	o := &opened{qualityModel: q, texts: map[string]*text.Text{}, baseline: map[int]float64{}}
	dir := q.dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(shared, dir)
	}
	var err error
	must := func() {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	o.tok, err = tokenizer.Open(dir)
	must()
	o.float, err = forward.OpenCheckpoint(dir, forward.Options{Packed: true})
	must()
	t.Cleanup(func() { o.float.Close() })
	o.ck, o.config = testplan.Open(t, dir)
	data, err := os.ReadFile(filepath.Join(shared, q.text))
	must()
	ids, err := o.tok.Encode(string(data), tokenizer.Options{})
	must()
	// The text is cut after the calibration tokens, at the end of a line or document: evaluation
	// never sees them.
	cut := func(from, tokens int) int {
		at := from + len(data)*tokens/len(ids)
		at += strings.IndexByte(string(data[at:]), '\n') + 1
		if q.convention == text.Documents {
			at += strings.Index(string(data[at:]), "<|endoftext|>")
		}
		return at
	}
	at := cut(0, calibration+calibration/16)
	o.head = data[:at]
	if *fullSkip > 0 {
		at = cut(at, *fullSkip)
	}
	window := text.WindowOf(o.float.Config())
	c, err := text.Cut(t.Context(), o.tok, o.tok.VocabSize(), text.Input{Data: data[at:]}, text.Options{Convention: q.convention, Window: window, MaxTokens: evaluated})
	if err != nil {
		t.Fatal(err)
	}
	o.windows = c.Windows
	return o
}

// text returns calibration tokens, of real text or written by the model.
func (o *opened) text(t testing.TB, self bool, tokens int) *text.Text {
	t.Helper()
	key := fmt.Sprint(self, tokens)
	if own := o.texts[key]; own != nil {
		return own
	}
	var own *text.Text
	var err error
	window := text.WindowOf(o.float.Config())
	if self {
		start, ends := text.Start(o.tok)
		own, err = text.Write(context.Background(), o.float, text.WriteOptions{Start: start, Ends: ends, Tokens: tokens, Window: window, Seed: *fullSeed})
	} else {
		own, err = text.Read(t.Context(), o.tok, o.head, tokens, window)
	}
	if err != nil {
		t.Fatal(err)
	}
	o.texts[key] = own
	return own
}

// quantize writes a .gqf or .gguf file by a recipe, with calibration if its algorithm needs it.
func (o *opened) quantize(t testing.TB, r quantizer.Recipe, text *text.Text, co calib.Options) string {
	t.Helper()
	options, name := conversion.Options{Recipe: r}, "model.gqf"
	if r.ForGGUF() {
		options.GGUF, name = &togguf.Options{}, "model.gguf"
	}
	plan, err := conversion.NewPlan(o.ck, o.config, options)
	if err != nil {
		t.Fatal(err)
	}
	var write write.Options
	if r.Algorithm.Calibrated() {
		result, err := calib.Run(context.Background(), plan, text, co)
		if err != nil {
			t.Fatal(err)
		}
		defer result.Close()
		for _, w := range result.Warnings {
			t.Log(w)
		}
		write.Codes = result.Codes()
	}
	path := filepath.Join(t.TempDir(), name)
	if _, err := plan.WriteWith(context.Background(), path, write); err != nil {
		t.Fatal(err)
	}
	return path
}

// openResult opens a .gqf or .gguf file.
func openResult(t testing.TB, path string) *forward.Model {
	t.Helper()
	options := forward.Options{Activations: forward.Float32, Packed: true}
	var m *forward.Model
	if filepath.Ext(path) == ".gguf" {
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if m, err = forward.OpenGGUF(f, options); err != nil {
			t.Fatal(err)
		}
	} else {
		f, err := gqf.Open(path, gqf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if m, err = forward.OpenGQF(f, options); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// measure compares a file with the float model.
func (o *opened) measure(t testing.TB, path string) eval.Comparison {
	t.Helper()
	m := openResult(t, path)
	c, err := eval.Compare(context.Background(), o.float, []*forward.Model{m}, o.windows, eval.CompareOptions{Sessions: runtime.NumCPU(), Worst: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c[0]
}

// base is the KL of TorchAO's symmetric round to nearest, group 32.
func (o *opened) base(t testing.TB, bits int) float64 {
	if o.baseline[bits] == 0 && bits > 1 {
		c := o.measure(t, o.quantize(t, quantizer.Recipe{Bits: bits, Mapping: gqf.MappingSymmetric, Algorithm: gqf.AlgorithmRTN}, nil, calib.Options{}))
		o.baseline[bits] = c.KL.Mean
	}
	return o.baseline[bits]
}

// TestKQuants: with calibration, a K type loses much less than with the search alone, on another
// text; and a refinement loses less still.
func TestKQuants(t *testing.T) {
	if testing.Short() {
		t.Skip("calibrates two layers of a model of 3.7M parameters twice")
	}
	const tokens = 4096
	q := qualityModels[2]
	q.dir = testmodels.FirstLayers(t, filepath.Join(testshared.Dir(t), q.dir), 2)
	o := openQuality(t, q, tokens, tokens)
	kl := func(a gqf.Algorithm, refine bool) float64 {
		r := quantizer.Recipe{Bits: 2, EmbeddingBits: 6, Mapping: gqf.MappingKQuant, Targets: []quantizer.Target{quantizer.TargetGGUF}, Algorithm: a}
		return o.measure(t, o.quantize(t, r, o.text(t, false, tokens), calib.Options{Refine: refine})).KL.Mean
	}
	search, solved, refined := kl(gqf.AlgorithmSearch, false), kl(gqf.AlgorithmGPTQFT, false), kl(gqf.AlgorithmGPTQFT, true)
	if t.Logf("KL %.5f by search, %.5f by gptq-ft, %.5f refined", search, solved, refined); solved > 0.75*search || refined > solved {
		t.Errorf("KL %.5f by search, %.5f by gptq-ft, %.5f refined", search, solved, refined)
	}
}

// TestQuality prints mean KL divergences relative to TorchAO's symmetric RTN:
//
//	go test ./internal/job/calib -run Quality -full -v
func TestQuality(t *testing.T) {
	if !*full {
		t.Skip("use -full")
	}
	mapping, ok := gqf.ParseMapping(*fullMap)
	if !ok {
		t.Fatalf("-mapping %s", *fullMap)
	}
	for _, q := range qualityModels {
		if !slices.Contains(strings.Split(*fullModels, ","), q.name) {
			continue
		}
		o := openQuality(t, q, *fullCalib, *fullEval)
		for _, b := range strings.Split(*fullBits, ",") {
			var bits int
			fmt.Sscan(b, &bits)
			for _, method := range strings.Split(*fullBy, ",") {
				name, self := strings.CutSuffix(method, "/self")
				name, refine := strings.CutSuffix(name, "+refine")
				r := quantizer.Recipe{Bits: bits, Group: new(*fullGroup), Mapping: mapping, EmbeddingBits: *fullTable}
				if r.Algorithm, ok = gqf.ParseAlgorithm(name); !ok {
					t.Fatalf("-methods %s", method)
				}
				var text *text.Text
				if r.Algorithm.Calibrated() {
					text = o.text(t, self, *fullCalib)
				}
				begin := time.Now()
				path := o.quantize(t, r, text, calib.Options{Refine: refine})
				took := time.Since(begin)
				c := o.measure(t, path)
				base := o.base(t, bits)
				fmt.Printf("%-12s %d bit  %-18s ratio %6.3f  KL %.5f (RTN %.5f)  perplexity %8.3f (float %.3f)  %.1f s\n", q.name, bits, method, c.KL.Mean/max(base, 1e-9), c.KL.Mean, base, c.Quantized.Perplexity, c.Float.Perplexity, took.Seconds())
			}
		}
	}
}
