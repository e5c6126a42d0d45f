// Command quality measures the tables of docs/QUALITY.md with gq itself, on the models and texts of ../shared:
//
//	go run ./docs/quality -w                                    # all of them, into docs/QUALITY.md
//	go run ./docs/quality -v -tables ratios -models stories260K # one, to standard output, with the recipes
//
// Two tables compare .gguf files with llama.cpp's own and are measured with its programs, see gguf.go:
//
//	go run ./docs/quality -w -tables gguf -llama.cpp llama.cpp/build/bin
//	go run ./docs/quality -tables ggufspeed -llama.cpp llama.cpp/build/bin
//
// Each figure is of one gq.Quantize and one gq.Measure. Calibration reads the beginning of a text, evaluation what
// follows, so neither sees what the other does; table bits, which needs no calibration, takes all of it.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/model/tokenizer"
	"github.com/lowbit-go/gq/quantizer"
)

// calibration and evaluated are numbers of tokens.
const (
	calibration = 8192
	evaluated   = 16000
)

var (
	shared  = flag.String("shared", "../shared", "the `directory` of models and texts")
	doc     = flag.String("doc", "docs/QUALITY.md", "the `file` that -w writes to")
	write   = flag.Bool("w", false, "put the tables into the document")
	verbose = flag.Bool("v", false, "print the recipes to standard error, with the seconds that each took")
	only    = flag.String("models", "stories260K,books1.3M,books3.7M", "models")
	tables  = flag.String("tables", "bits,ratios,executed,groups,outliers,mixed,onebit,tuned,gguf", "tables")
	named   = flag.String("rows", "", "the rows of tables of ratios whose names match this regular `expression`")
	widths  = flag.String("bits", "8,6,5,4,3,2,1", "bits of a code in table bits; the others take those of 4,3,2 that are in it")
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("quality: ")
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	if _, err := os.Stat(filepath.Join(*shared, "models")); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s/models is not there: the models and texts that the tables are measured on lie beside the repository; -shared says where", *shared)
	}
	tmp, err := os.MkdirTemp("", "quality")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := &bench{ctx: ctx, tmp: tmp, base: map[string]float64{}}
	for _, m := range []subject{
		{name: "stories260K", dir: "stories260K-f32", file: "tinystories-val-300stories.txt", cut: text.Options{Convention: text.Documents, Window: 512}},
		{name: "books1.3M", dir: "books1.3M-bf16", file: "books-heldout.txt", cut: text.Options{Window: 256}},
		{name: "books3.7M", dir: "books3.7M-bf16", file: "books-heldout.txt", cut: text.Options{Window: 256}},
	} {
		if !listed(*only, m.name) {
			continue
		}
		if err := m.split(tmp); err != nil {
			return err
		}
		b.models = append(b.models, m)
	}
	for _, t := range []struct {
		name string
		make func() (string, error)
	}{{"bits", b.bits}, {"ratios", b.ratios}, {"executed", b.executed}, {"groups", b.groups}, {"outliers", b.outliers}, {"mixed", b.mixed}, {"onebit", b.oneBit}, {"tuned", b.tuned},
		{"gguf", b.gguf}, {"ggufspeed", b.ggufSpeed}} {
		if !listed(*tables, t.name) {
			continue
		}
		text, err := t.make()
		if err != nil {
			return err
		}
		if !*write {
			fmt.Printf("%s\n\n%s\n", t.name, text)
		} else if err := replace(*doc, t.name, text); err != nil {
			return err
		}
	}
	return nil
}

func listed(list, name string) bool { return slices.Contains(strings.Split(list, ","), name) }

// replace puts a table between its two comments.
func replace(file, name, text string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- begin %s -->\n", name), fmt.Sprintf("<!-- end %s -->", name)
	before, rest, ok := strings.Cut(string(raw), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no %s and %s", file, strings.TrimSpace(begin), end)
	}
	return os.WriteFile(file, []byte(before+begin+text+end+after), 0o666)
}

// subject is a model and its text.
type subject struct {
	name, dir, file string
	cut             text.Options
	head, tail      string // files: what calibration may read, and the rest
}

func (s *subject) split(tmp string) error {
	s.dir, s.file = filepath.Join(*shared, "models", s.dir), filepath.Join(*shared, "text", s.file)
	tok, err := tokenizer.Open(s.dir)
	if err != nil {
		return err
	}
	all, err := os.ReadFile(s.file)
	if err != nil {
		return err
	}
	ids, err := tok.Encode(string(all), tokenizer.Options{})
	if err != nil {
		return err
	}
	// A sixteenth more, as tokens are not equally long everywhere; then to the end of the line, or of the story.
	at := len(all) * (calibration + calibration/16) / len(ids)
	end := []byte("\n")
	if s.cut.Convention == text.Documents {
		end = []byte("<|endoftext|>")
	}
	at += bytes.Index(all[at:], end) + len(end)
	s.head, s.tail = filepath.Join(tmp, s.name+".head.txt"), filepath.Join(tmp, s.name+".tail.txt")
	return errors.Join(os.WriteFile(s.head, all[:at], 0o666), os.WriteFile(s.tail, all[at:], 0o666))
}

type bench struct {
	ctx    context.Context
	tmp    string
	models []subject
	base   map[string]float64 // KL of TorchAO's symmetric rounding, by model, bits and group

	figures []figure // of .gguf files
}

func (b *bench) file() string { return filepath.Join(b.tmp, "model.gqf") }

// quantize writes a file by settings of a recipe, within a budget if it has one, and returns the report and the seconds.
func (b *bench) quantize(m subject, file string, budget gq.Budget, settings ...string) (*gq.QuantizeReport, float64, error) {
	text := "{" + strings.Join(settings, ", ") + "}"
	recipe, err := quantizer.ParseRecipe(text, []byte(text))
	if err != nil {
		return nil, 0, err
	}
	o := gq.QuantizeOptions{Recipe: recipe}
	if budget.BitsPerWeight > 0 || budget.FileBytes > 0 {
		o.Budget = &budget
	}
	start := time.Now()
	r, err := gq.Quantize(b.ctx, m.dir, file, o)
	seconds := time.Since(start).Seconds()
	if *verbose {
		log.Printf("%s, %s: %.1f s", m.name, strings.ReplaceAll(text, b.tmp+"/", ""), seconds)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s, %s: %w", m.name, text, err)
	}
	return r, seconds, nil
}

// view is how a file is compared with its checkpoint.
type view uint8

const (
	whole    view = iota // as executed, on all of the text
	weights              // the weights alone, on what calibration has not seen
	executed             // as executed, on what calibration has not seen
)

// measure quantizes and compares.
func (b *bench) measure(m subject, v view, settings ...string) (*accuracy.Report, error) {
	return b.measureAt(m, v, 0, settings...)
}

// measureAt is measure with bits chosen for at most so many of them per weight.
func (b *bench) measureAt(m subject, v view, bpw float64, settings ...string) (*accuracy.Report, error) {
	if _, _, err := b.quantize(m, b.file(), gq.Budget{BitsPerWeight: bpw}, settings...); err != nil {
		return nil, err
	}
	o := gq.MeasureOptions{Texts: []gq.TextFile{{Path: m.file}}, Windows: m.cut, NoOutputs: true}
	if v != whole {
		o.Texts[0].Path, o.Windows.MaxTokens = m.tail, evaluated
	}
	if v == weights {
		o.Activations = model.Float32
	}
	return gq.Measure(b.ctx, m.dir, b.file(), o)
}

// bits is the table of all widths, as executed, with no data.
func (b *bench) bits() (string, error) {
	var t strings.Builder
	t.WriteString("| model | bits | mapping, algorithm | bpw | perplexity | mean KL | same top 1 |\n|---|---|---|---|---|---|---|\n")
	for _, m := range b.models {
		for bits := range strings.SplitSeq(*widths, ",") {
			for _, how := range []string{"full-range rtn", "symmetric rtn", "symmetric-no-clip rtn", "asymmetric rtn", "full-range search", "asymmetric search", "half-step search"} {
				switch {
				case bits == "1" && strings.HasPrefix(how, "symmetric"):
					continue // these have no grid of two codes
				case bits > "2" && strings.HasPrefix(how, "half-step"):
					continue // it has no grid of more than four
				}
				mapping, algorithm, _ := strings.Cut(how, " ")
				r, err := b.measure(m, whole, "bits: "+bits, "mapping: "+mapping, "algorithm: "+algorithm)
				if err != nil {
					return "", err
				}
				fmt.Fprintf(&t, "| %s | %s | %s, %s | %.2f | %.4f (float %.4f) | %.6f | %.2f %% |\n", m.name, bits, mapping, algorithm,
					r.Totals.BPW, r.Model.Quantized.Perplexity, r.Model.Float.Perplexity, r.Model.KL.Mean, 100*r.Model.SameTop1)
			}
		}
	}
	return t.String(), nil
}

// best is the row of that preset.
const best = "`--quality best`"

// method is a row of a table of ratios.
type method struct {
	name     string
	settings []string // of a recipe
	bits     string   // the only width; "": all
}

// methods that calibrate get text from the subject, but for self.
func methods(m subject) []method {
	text := fmt.Sprintf("calibrate: %q", m.head)
	real := []string{"mapping: asymmetric", "scale-dtype: f32", "layout: kleidiai"} // qai4c32p
	return []method{
		{name: "full-range RTN", settings: []string{"algorithm: rtn"}},
		{name: "search", settings: []string{"algorithm: search"}},
		{name: "equalize, search", settings: []string{"equalize: true", "algorithm: search"}},
		{name: "rotate, search", settings: []string{"rotate: true", "algorithm: search"}},
		{name: "search, asymmetric", settings: []string{"algorithm: search", "mapping: asymmetric"}},
		{name: "hqq, asymmetric", settings: []string{"algorithm: hqq", "mapping: asymmetric"}},
		{name: "search, floating-point zero points", settings: append([]string{"algorithm: search"}, real...), bits: "4"},
		{name: "hqq, floating-point zero points", settings: append([]string{"algorithm: hqq"}, real...), bits: "4"},
		{name: "imatrix", settings: []string{"algorithm: imatrix", text}},
		{name: "awq", settings: []string{"algorithm: awq", text}},
		{name: "gptq", settings: []string{"algorithm: gptq", text}},
		{name: "rotate, gptq", settings: []string{"rotate: true", "algorithm: gptq", text}},
		{name: "gptq + refine", settings: []string{"algorithm: gptq", "refine: true", text}},
		{name: "gptq-ft", settings: []string{"algorithm: gptq-ft", text}},
		{name: "equalize, gptq-ft", settings: []string{"equalize: true", "algorithm: gptq-ft", text}},
		{name: "rotate, gptq-ft", settings: []string{"rotate: true", "algorithm: gptq-ft", text}},
		{name: "gptq-ft, self", settings: []string{"algorithm: gptq-ft", "calibrate: self"}},
		{name: "gptq-ft + refine", settings: []string{"algorithm: gptq-ft", "refine: true", text}},
		{name: "gptq-ft, asymmetric", settings: []string{"algorithm: gptq-ft", "mapping: asymmetric", text}},
		{name: "gptq-ft, asymmetric, group 48", settings: []string{"algorithm: gptq-ft", "mapping: asymmetric", "group: 48", text}},
		{name: "gptq-ft + refine, asymmetric", settings: []string{"algorithm: gptq-ft", "refine: true", "mapping: asymmetric", text}},
		{name: best, settings: []string{"quality: best"}},
	}
}

func (b *bench) baseline(m subject, v view, bits string, more ...string) (float64, error) {
	key := fmt.Sprint(m.name, v, bits, more)
	if _, ok := b.base[key]; !ok {
		r, err := b.measure(m, v, append([]string{"bits: " + bits, "mapping: symmetric", "algorithm: rtn"}, more...)...)
		if err != nil {
			return 0, err
		}
		b.base[key] = r.Model.KL.Mean
	}
	return b.base[key], nil
}

// grid is a table whose cells hold a figure of each model; 0 is none.
func (b *bench) grid(rows []string, cell func(m subject, row int, bits string) (float64, error)) (string, error) {
	var columns []string
	for _, bits := range []string{"4", "3", "2"} {
		if listed(*widths, bits) {
			columns = append(columns, bits)
		}
	}
	t := strings.Builder{}
	fmt.Fprintf(&t, "| | %s bit |\n|%s\n", strings.Join(columns, " bit | "), strings.Repeat("---|", len(columns)+1))
	in, err := regexp.Compile(*named)
	if err != nil {
		return "", err
	}
	for i, name := range rows {
		if !in.MatchString(name) {
			continue
		}
		fmt.Fprintf(&t, "| %s |", name)
		for _, bits := range columns {
			var figures []string
			for _, m := range b.models {
				v, err := cell(m, i, bits)
				if err != nil {
					return "", err
				}
				if v == 0 {
					continue
				}
				figures = append(figures, strings.TrimPrefix(fmt.Sprintf("%.3f", v), "0"))
			}
			fmt.Fprintf(&t, " %s |", cmp.Or(strings.Join(figures, " / "), "-"))
		}
		t.WriteByte('\n')
	}
	return t.String(), nil
}

// ratios are of the weights alone, as parts of the KL of TorchAO's symmetric rounding.
func (b *bench) ratios() (string, error) {
	return b.table(weights, func(method) bool { return true })
}

// executed are ratios with the activations of a device.
func (b *bench) executed() (string, error) {
	return b.table(executed, func(how method) bool {
		return slices.Contains([]string{"full-range RTN", "search", "imatrix", "gptq", "gptq-ft", "gptq-ft + refine", best}, how.name)
	})
}

func (b *bench) table(v view, in func(method) bool) (string, error) {
	list := func(m subject) (l []method) {
		for _, how := range methods(m) {
			if in(how) {
				l = append(l, how)
			}
		}
		return l
	}
	var rows []string
	for _, how := range list(subject{}) {
		rows = append(rows, how.name)
	}
	return b.grid(rows, func(m subject, row int, bits string) (float64, error) {
		how := list(m)[row]
		if how.bits != "" && how.bits != bits {
			return 0, nil
		}
		base, err := b.baseline(m, v, bits)
		if err != nil {
			return 0, err
		}
		r, err := b.measure(m, v, append([]string{"bits: " + bits}, how.settings...)...)
		if err != nil {
			return 0, err
		}
		return float64(r.Model.KL.Mean) / base, nil
	})
}

// groups are the same for folded checkpoints in longer groups, which outliers cost more in.
func (b *bench) groups() (string, error) {
	type line struct {
		group string
		method
	}
	list := func(m subject) (lines []line) {
		for _, group := range []string{"128", "channel"} {
			for _, f := range methods(m) {
				if slices.Contains([]string{"search", "equalize, search", "rotate, search", "imatrix", "awq", "gptq", "rotate, gptq"}, f.name) {
					lines = append(lines, line{group, f})
				}
			}
		}
		return lines
	}
	var rows []string
	for _, l := range list(subject{}) {
		rows = append(rows, fmt.Sprintf("%s, %s", l.group, l.name))
	}
	return b.grid(rows, func(m subject, row int, bits string) (float64, error) {
		l := list(m)[row]
		group := []string{"group: " + l.group, "embedding-group: 32"}
		base, err := b.baseline(m, weights, bits, group...)
		if err != nil {
			return 0, err
		}
		r, err := b.measure(m, weights, slices.Concat([]string{"bits: " + bits}, group, l.settings)...)
		if err != nil {
			return 0, err
		}
		return float64(r.Model.KL.Mean) / base, nil
	})
}

// mixed has bits and groups chosen for the bytes of the same bits everywhere in groups of 32: of all tensors, or of all but
// the table, which then keeps its 8 bits.
func (b *bench) mixed() (string, error) {
	rows := []string{"search, mixed", "gptq-ft, mixed", "gptq-ft + refine, mixed", "gptq-ft, mixed, embedding at 8 bits", "gptq-ft + refine, mixed, embedding at 8 bits"}
	ft, refine := []string{"algorithm: gptq-ft"}, []string{"algorithm: gptq-ft", "refine: true"}
	fixed := []string{"rules: [{match: model.embed_tokens, bits: 8}]"}
	all := [][]string{{"algorithm: search"}, ft, refine, slices.Concat(ft, fixed), slices.Concat(refine, fixed)}
	return b.grid(rows, func(m subject, row int, bits string) (float64, error) {
		base, err := b.baseline(m, weights, bits)
		if err != nil {
			return 0, err
		}
		same, _, err := b.quantize(m, b.file(), gq.Budget{}, "bits: "+bits)
		if err != nil {
			return 0, err
		}
		r, err := b.measureAt(m, weights, same.BitsPerWeight, append([]string{fmt.Sprintf("calibrate: %q", m.head)}, all[row]...)...)
		if err != nil {
			return 0, err
		}
		return float64(r.Model.KL.Mean) / base, nil
	})
}

// tuned are ratios of files that were tuned, on text that the model wrote, and of the same files before.
func (b *bench) tuned() (string, error) {
	best, ft := "quality: best", "algorithm: gptq-ft"
	list := []struct {
		name  string
		mixed bool
		how   []string
	}{
		{"gptq-ft, self", false, []string{ft, "calibrate: self"}},
		{"gptq-ft, self, tune norms", false, []string{ft, "calibrate: self", "tune: norms"}},
		{"gptq-ft, self, tune floats", false, []string{ft, "calibrate: self", "tune: floats"}},
		{"gptq-ft, self, tune codes", false, []string{ft, "calibrate: self", "tune: codes"}},
		{"gptq-ft, self, tune blocks", false, []string{ft, "calibrate: self", "tune: blocks"}},
		{"search, tune blocks", false, []string{"algorithm: search", "tune: blocks"}},
		{"search, tune floats", false, []string{"algorithm: search", "tune: floats"}},
		{"search, tune codes", false, []string{"algorithm: search", "tune: codes"}},
		{"`--quality best`", false, []string{best}},
		{"`--quality best`, tune floats", false, []string{best, "tune: floats"}},
		{"`--quality max`", false, []string{"quality: max"}},
		{"`--quality best`, mixed", true, []string{best}},
		{"`--quality best`, mixed, tune floats", true, []string{best, "tune: floats"}},
		{"`--quality max`, mixed", true, []string{"quality: max"}},
	}
	var rows []string
	for _, l := range list {
		rows = append(rows, l.name)
	}
	return b.grid(rows, func(m subject, row int, bits string) (float64, error) {
		l, bpw := list[row], 0.0
		base, err := b.baseline(m, weights, bits)
		if err != nil {
			return 0, err
		}
		settings := slices.Concat([]string{"bits: " + bits}, l.how)
		if l.mixed {
			same, _, err := b.quantize(m, b.file(), gq.Budget{}, "bits: "+bits)
			if err != nil {
				return 0, err
			}
			bpw, settings = same.BitsPerWeight, l.how
		}
		r, err := b.measureAt(m, weights, bpw, settings...)
		if err != nil {
			return 0, err
		}
		return float64(r.Model.KL.Mean) / base, nil
	})
}

// oneBit is perplexities: a ratio to a rounding that does not exist would say nothing.
func (b *bench) oneBit() (string, error) {
	var t strings.Builder
	t.WriteString("| model | mapping | float | search | gptq | gptq-ft | gptq-ft + refine |\n|---|---|---|---|---|---|---|\n")
	for _, m := range b.models {
		for _, mapping := range []string{"full-range", "half-step"} {
			var float float64
			var figures []string
			for _, how := range methods(m) {
				if !slices.Contains([]string{"search", "gptq", "gptq-ft", "gptq-ft + refine"}, how.name) {
					continue
				}
				r, err := b.measure(m, weights, append([]string{"bits: 1", "mapping: " + mapping}, how.settings...)...)
				if err != nil {
					return "", err
				}
				float = r.Model.Float.Perplexity
				figures = append(figures, fmt.Sprintf("%.1f", r.Model.Quantized.Perplexity))
			}
			fmt.Fprintf(&t, "| %s | %s | %.2f | %s |\n", m.name, mapping, float, strings.Join(figures, " | "))
		}
	}
	return t.String(), nil
}
