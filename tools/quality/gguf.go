package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/internal/job/synth"
)

var (
	programs = flag.String("llama.cpp", "", "the `directory` of llama-quantize, llama-imatrix and llama-perplexity, for the tables gguf and ggufspeed")
	figures  = flag.String("figures", "tools/quality/gguf.json", "the `file` for the figures of table gguf; those that it holds are not measured again")
)

// A figure is what one .gguf file costs.
type figure struct {
	Model string `json:"model"`
	Type  string `json:"type"` // llama-quantize's name
	By    string `json:"by"`
	Bytes int64  `json:"bytes"`
	// Mean KL divergence from the float32 model, nats per token, by llama-perplexity.
	KL       float64 `json:"kl"`
	KLError  float64 `json:"kl_error"` // its standard error
	SameTop1 float64 `json:"same_top1_percent"`
	Seconds  float64 `json:"seconds"` // of the quantization
	// Windows are the mean divergences of the windows, for the errors of trained models' ratios.
	Windows string `json:"windows,omitempty"`
}

// The ways of llama-quantize.
const (
	plain    = "llama-quantize"
	weighted = "llama-quantize --imatrix"
)

// A ggufType is one of llama-quantize's mixtures and what gq does at the same bits.
type ggufType struct {
	name string
	bits int  // 0: only gq's mixed file is compared
	k    bool // blocks of 256
}

// mixedOnly are mixtures that llama-quantize makes with an importance matrix.
func mixedOnly(names ...string) (list []ggufType) {
	for _, name := range names {
		list = append(list, ggufType{name: name})
	}
	return list
}

// types are the mixtures for a model's rows. llama-quantize falls back to Q5_0 in a Q4_K_M of rows
// that are no multiples of 256, and makes no Q4_0 at all of rows that are no multiples of 32.
func (s *ggufSubject) types() []ggufType {
	switch s.name {
	case "stories260K": // rows of 64 and 172
		return append([]ggufType{{"Q4_K_M", 5, false}}, mixedOnly("IQ4_XS")...)
	case "books1.3M": // rows of 128 and 384
		return append([]ggufType{{"Q4_0", 4, false}, {"Q4_K_M", 5, false}}, mixedOnly("IQ4_XS", "Q5_K_M")...)
	case "SmolLM2": // rows of 576, and of 1536 in down_proj
		return mixedOnly("Q4_K_M", "IQ2_M", "Q6_K", "Q3_K_M", "IQ2_XXS", "IQ3_XXS", "IQ4_XS", "Q5_K_M", "IQ1_M")
	case "Gemma": // rows of 640, of 1024 in o_proj and of 2048 in down_proj
		return mixedOnly("Q4_K_M", "IQ2_M", "Q6_K", "Q3_K_M", "IQ2_XXS", "IQ3_XXS", "IQ4_XS", "Q5_K_M", "IQ1_M")
	}
	list := []ggufType{{"Q4_0", 4, false}, {"Q4_K_M", 4, true}, {"Q3_K_M", 3, true}, {"Q2_K", 2, true}, {"Q5_K_M", 5, true}, {"Q6_K", 6, true}}
	return append(list, mixedOnly("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_M", "IQ3_XXS", "IQ3_M", "IQ4_XS")...)
}

// ggufWays are gq's rows: a name, settings, and whether types are mixed to have llama-quantize's
// bytes.
var ggufWays = []struct {
	name     string
	settings []string
	mixed    bool
}{
	{"search", []string{"algorithm: search"}, false},
	{"good", []string{"quality: good"}, false},
	{"good, mixed", []string{"quality: good"}, true},
	{"best", []string{"quality: best"}, false},
}

// ggufSubject is a model with what llama.cpp's programs made of it.
type ggufSubject struct {
	subject
	blocks bool // rows are multiples of 256

	window                          string
	float, logits, imatrix          string // "" before the first measurement
	calibrationText, evaluationText string // files
}

// gguf is the table of files at equal bytes. Without llama.cpp's programs it is the table of the
// stored figures.
func (b *bench) gguf() (string, error) {
	raw, err := os.ReadFile(*figures)
	if err == nil {
		err = json.Unmarshal(raw, &b.figures)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", *figures, err)
	}
	for _, m := range b.models {
		if *programs == "" {
			break // the table of the stored figures
		}
		if err := b.ggufOf(m); err != nil {
			return "", fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return ggufTable(b.figures), nil
}

// ggufOf measures all files of a model.
func (b *bench) ggufOf(m subject) error {
	s := &ggufSubject{subject: m, blocks: m.name == "books3.7M"}
	// Rows that no type divides stay as they are: in 16 bits, as llama-quantize stores them.
	s.dir = strings.Replace(s.dir, "-f32", "-bf16", 1)
	for _, t := range s.types() {
		if !b.rows.MatchString(t.name) {
			continue
		}
		for _, by := range []string{plain, weighted} {
			if t.bits == 0 && by == plain {
				continue
			}
			if err := b.llamaQuantize(s, t.name, by); err != nil {
				return err
			}
		}
		settings := []string{fmt.Sprintf("bits: %d", t.bits), "embedding-bits: 6"}
		if t.k {
			settings = append(settings, "mapping: k-quant")
		}
		if !s.blocks {
			settings[1] = "embedding-bits: 8" // as llama-quantize falls back
		}
		for _, way := range ggufWays {
			if t.bits == 0 && !way.mixed {
				continue
			}
			var bytes int64
			all := slices.Concat(settings, way.settings)
			if way.mixed { // a stated width or mapping would leave no choice
				bytes, all = b.figure(figure{Model: m.name, Type: t.name, By: weighted}).Bytes, way.settings
			}
			if m.real { // the text of the importance matrix
				all = append(slices.Clone(all), fmt.Sprintf("calibrate: %q", m.head))
			}
			if err := b.gqQuantize(s, t.name, way.name, bytes, all); err != nil {
				return err
			}
		}
	}
	return nil
}

// figure returns the stored figure of the same file, or a figure of 0 bytes.
func (b *bench) figure(f figure) figure {
	return find(b.figures, f.Model, f.Type, f.By)
}

func find(all []figure, model, kind, by string) figure {
	for _, f := range all {
		if f.Model == model && f.Type == kind && f.By == by {
			return f
		}
	}
	return figure{}
}

// store keeps a figure.
func (b *bench) store(f figure) error {
	if *verbose {
		log.Printf("%s %s, %s: %d bytes, KL %.6f ± %.6f, %.2f s", f.Model, f.Type, f.By, f.Bytes, f.KL, f.KLError, f.Seconds)
	}
	b.figures = append(b.figures, f)
	raw, err := json.MarshalIndent(b.figures, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(*figures, append(raw, '\n'), 0o666)
}

// prepare makes a model's float32 file, its logits and an importance matrix.
func (b *bench) prepare(s *ggufSubject) error {
	if s.float != "" {
		return nil
	}
	at := func(name string) string { return filepath.Join(b.tmp, s.name+"."+name) }
	s.window, s.logits, s.imatrix = strconv.Itoa(s.cut.Window), at("logits"), at("imatrix.gguf")
	s.calibrationText, s.evaluationText = at("head.plain"), at("tail.plain")
	// The text's markers between documents mean nothing to llama.cpp's programs.
	for from, to := range map[string]string{s.head: s.calibrationText, s.tail: s.evaluationText} {
		raw, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, []byte(strings.ReplaceAll(string(raw), "<|endoftext|>", "")), 0o666); err != nil {
			return err
		}
	}
	source, float := at("source.gguf"), at("f32.gguf")
	if _, err := os.Stat(s.logits); err == nil { // of an earlier run, see -work
		s.float = float
		return nil
	}
	if _, _, err := b.quantize(s.subject, source, gq.Budget{}, "rules: [{match: '*', skip: true}]"); err != nil {
		return err
	}
	if _, err := b.program("llama-quantize", source, float, "F32"); err != nil {
		return err
	}
	s.float = float
	if _, err := b.program("llama-imatrix", "-m", float, "-f", s.calibrationText, "-c", s.window, "-b", s.window, "-t", "1", "-o", s.imatrix); err != nil {
		return err
	}
	if _, err := b.perplexity(s, float, "--save-all-logits", s.logits+".part"); err != nil {
		return err
	}
	return os.Rename(s.logits+".part", s.logits)
}

// perplexity runs llama-perplexity on the text that calibration has not seen.
func (b *bench) perplexity(s *ggufSubject, file string, args ...string) (string, error) {
	args = append([]string{"-m", file, "-f", s.evaluationText, "--chunks", strconv.Itoa(cmp.Or(s.windows, 60)), "-c", s.window, "-b", s.window, "-t", "1", "-fa", "off", "-ctk", "f32", "-ctv", "f32"}, args...)
	return b.program("llama-perplexity", args...)
}

// program runs one of llama.cpp's programs and returns its output.
func (b *bench) program(name string, args ...string) (string, error) {
	if *programs == "" {
		return "", errors.New("-llama.cpp is missing: the directory of llama.cpp's programs")
	}
	out, err := exec.CommandContext(b.ctx, filepath.Join(*programs, name), args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out[max(0, len(out)-2000):])
	}
	return string(out), nil
}

// llamaQuantize makes and measures a file of llama-quantize.
func (b *bench) llamaQuantize(s *ggufSubject, name, by string) error {
	f := figure{Model: s.name, Type: name, By: by}
	if b.figure(f).Bytes != 0 {
		return nil
	}
	if err := b.prepare(s); err != nil {
		return err
	}
	file := filepath.Join(b.tmp, "llama.gguf")
	args := []string{s.float, file, name, "2"}
	if by == weighted {
		args = append([]string{"--imatrix", s.imatrix}, args...)
	}
	start := time.Now()
	if _, err := b.program("llama-quantize", args...); err != nil {
		return err
	}
	f.Seconds = time.Since(start).Seconds()
	return b.measureGGUF(s, file, f)
}

// gqQuantize makes and measures a file of gq, of at most so many bytes if this is not 0.
func (b *bench) gqQuantize(s *ggufSubject, name, by string, bytes int64, settings []string) error {
	f := figure{Model: s.name, Type: name, By: by}
	if b.figure(f).Bytes != 0 {
		return nil
	}
	if err := b.prepare(s); err != nil {
		return err
	}
	file := filepath.Join(b.tmp, s.name+"."+name+".gq.gguf")
	var err error
	if _, f.Seconds, err = b.quantize(s.subject, file, gq.Budget{FileBytes: bytes}, settings...); err != nil {
		return err
	}
	return b.measureGGUF(s, file, f)
}

var (
	meanKL   = regexp.MustCompile(`Mean +KLD: +([0-9.e-]+) ± +([0-9.e-]+)`)
	sameTop1 = regexp.MustCompile(`Same top p: +([0-9.]+)`)
	// A window's line has perplexity, its logarithm's difference and KL of all windows so far.
	soFar = regexp.MustCompile(`(?m)^ *[0-9]+(?: +-?[0-9.]+ ± +[0-9.]+){2} +(-?[0-9.]+) ± `)
)

// measureGGUF measures a file and stores the figure.
func (b *bench) measureGGUF(s *ggufSubject, file string, f figure) error {
	st, err := os.Stat(file)
	if err != nil {
		return err
	}
	f.Bytes = st.Size()
	var kl, top []string
	var out string
	// llama-perplexity may lose the end of its output.
	for range 20 {
		out, err = b.perplexity(s, file, "--kl-divergence", "--kl-divergence-base", s.logits)
		if err != nil {
			return err
		}
		if kl, top = meanKL.FindStringSubmatch(out), sameTop1.FindStringSubmatch(out); kl != nil && top != nil {
			break
		}
	}
	if kl == nil || top == nil {
		return errors.New("llama-perplexity printed no KL divergence")
	}
	for i, dst := range []*float64{&f.KL, &f.KLError, &f.SameTop1} {
		if *dst, err = strconv.ParseFloat(append(kl[1:], top[1])[i], 64); err != nil {
			return err
		}
	}
	if s.real {
		f.Windows = windowsOf(out)
	}
	return b.store(f)
}

// ggufSource names a model with the dtype of its checkpoint if the other tables have another dtype.
func ggufSource(model string) string {
	if model == "stories260K" {
		return model + " (BF16)"
	}
	return model
}

// windowsOf returns the mean divergences of windows, from the means of all windows so far.
func windowsOf(out string) string {
	var list []string
	sum := 0.0
	for i, m := range soFar.FindAllStringSubmatch(out, -1) {
		mean, _ := strconv.ParseFloat(m[1], 64)
		list = append(list, fmt.Sprintf("%.5f", mean*float64(i+1)-sum))
		sum = mean * float64(i+1)
	}
	return strings.Join(list, " ")
}

// paired writes the ratio of two divergences. Its standard error is from the paired differences of
// windows, if both figures have them.
func paired(f, of figure) string {
	a, b := strings.Fields(f.Windows), strings.Fields(of.Windows)
	r, squares, sum := f.KL/of.KL, 0.0, 0.0
	for i := range min(len(a), len(b)) {
		x, _ := strconv.ParseFloat(a[i], 64)
		y, _ := strconv.ParseFloat(b[i], 64)
		squares, sum = squares+(x-r*y)*(x-r*y), sum+y
	}
	if sum == 0 {
		return fmt.Sprintf("%.2f", r)
	}
	n := float64(len(a))
	return fmt.Sprintf("%.2f ± %.2f", r, math.Sqrt(squares*n/(n-1))/sum)
}

// ggufTable has a row for each type of a model.
func ggufTable(all []figure) string {
	of := func(f figure, by string) figure { return find(all, f.Model, f.Type, by) }
	var t strings.Builder
	t.WriteString("| model | type | bytes | llama-quantize | with imatrix | gq's bytes | search | good | good, mixed | best |\n" + strings.Repeat("|---", 10) + "|\n")
	for _, f := range all {
		was := of(f, plain)
		if f.By != weighted || was.Bytes == 0 {
			continue
		}
		fmt.Fprintf(&t, "| %s | %s | %d | %s | %s | %d |", ggufSource(f.Model), f.Type, f.Bytes, kl(was.KL), kl(f.KL), of(f, "search").Bytes)
		for _, way := range ggufWays {
			g := of(f, way.name)
			fmt.Fprintf(&t, " %s (%.2f) |", kl(g.KL), g.KL/f.KL)
		}
		t.WriteByte('\n')
	}
	t.WriteString("\n| model and type | bytes | with imatrix | good, mixed |\n" + strings.Repeat("|---", 4) + "|\n")
	for _, f := range all {
		if g := of(f, "good, mixed"); f.By == weighted && g.Bytes != 0 && of(f, plain).Bytes == 0 {
			fmt.Fprintf(&t, "| %s %s | %d | %s | %s (%s) |\n", ggufSource(f.Model), f.Type, f.Bytes, kl(f.KL), kl(g.KL), paired(g, f))
		}
	}
	return t.String()
}

// kl writes a KL divergence with as many digits as mean something.
func kl(v float64) string { return strings.TrimPrefix(fmt.Sprintf("%.5f", v), "0") }

// ggufSpeed times the quantization of a synthetic model of a billion weights, without calibration,
// the fastest of three.
func (b *bench) ggufSpeed() (string, error) {
	m := subject{name: "llama-3.2-1b", dir: filepath.Join(b.tmp, "llama-3.2-1b")}
	if _, err := gq.Synth(b.ctx, m.dir, synth.Presets[m.name], nil); err != nil {
		return "", err
	}
	source, out := filepath.Join(b.tmp, "source.gguf"), filepath.Join(b.tmp, "out.gguf")
	if _, _, err := b.quantize(m, source, gq.Budget{}, "rules: [{match: '*', skip: true}]"); err != nil {
		return "", err
	}
	fastest := func(run func() (float64, error)) (best float64, err error) {
		for range 3 {
			s, err := run()
			if err != nil {
				return 0, err
			}
			best = min(cmp.Or(best, s), s)
		}
		return best, nil
	}
	var t strings.Builder
	t.WriteString("| type of all matrices | llama-quantize --pure | gq, search | ratio |\n|---|---|---|---|\n")
	for _, q := range []struct{ name, settings string }{
		{"Q4_0", "bits: 4, embedding-bits: 4"}, {"Q4_K", "bits: 4, embedding-bits: 4, mapping: k-quant"}, {"Q6_K", "bits: 6, embedding-bits: 6, mapping: k-quant"},
	} {
		theirs, err := fastest(func() (float64, error) {
			start := time.Now()
			_, err := b.program("llama-quantize", "--pure", source, out, q.name, "2")
			return time.Since(start).Seconds(), err
		})
		if err != nil {
			return "", err
		}
		ours, err := fastest(func() (seconds float64, err error) {
			_, seconds, err = b.quantize(m, out, gq.Budget{}, q.settings, "algorithm: search")
			return seconds, err
		})
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&t, "| %s | %.1f s | %.1f s | %.2f |\n", q.name, theirs, ours, ours/theirs)
	}
	return t.String(), nil
}
