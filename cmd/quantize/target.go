package quantize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/model/tokenizer"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/alloc"
	"github.com/lowbit-go/gq/quantizer/calib"
)

// targetFlags have bits and groups chosen tensor by tensor.
func targetFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "target-bpw", Usage: "choose bits and group of each tensor for at most `N` bits of payload per quantized weight"},
		&cli.StringFlag{Name: "target-size", Usage: "choose them for a file of at most `SIZE`: bytes, or with a unit (700MB, 650MiB)"},
		&cli.StringFlag{Name: "max-kl", Usage: "choose them for the smallest file whose KL divergence from the checkpoint is at most `NATS` per token, as executed, on the calibration text"},
		&cli.StringFlag{Name: "quality", Usage: "`PRESET` for what is not stated: fast (search, no data), good (gptq-ft, on text that the model writes) or best (the same with --refine, four times the text and more probes for targets)"},
		&cli.StringFlag{Name: "save-recipe", Usage: "write the recipe, with a rule for each tensor where bits were chosen, to `FILE`; --recipe reads it"},
	}
}

// goal is what bits are chosen for; at most one field is set.
type goal struct {
	bpw   float64
	bytes int64
	kl    float64
}

// goalOf reads the flags; nil if none is set.
func goalOf(c *cli.Context) (*goal, error) {
	var g goal
	var set []string
	number := func(name string, to *float64) error {
		if !c.IsSet(name) {
			return nil
		}
		set = append(set, "--"+name)
		v, err := strconv.ParseFloat(c.String(name), 64)
		if err != nil || !(v > 0) || math.IsInf(v, 0) {
			return cmdline.Usagef("--%s %s: a number above 0", name, c.String(name))
		}
		*to = v
		return nil
	}
	if err := errors.Join(number("target-bpw", &g.bpw), number("max-kl", &g.kl)); err != nil {
		return nil, err
	}
	if c.IsSet("target-size") {
		set = append(set, "--target-size")
		var err error
		if g.bytes, err = parseSize(c.String("target-size")); err != nil {
			return nil, cmdline.Usagef("--target-size: %w", err)
		}
	}
	switch {
	case len(set) == 0:
		return nil, nil
	case len(set) > 1:
		return nil, cmdline.Usagef("%s: one target at a time", strings.Join(set, " and "))
	case c.IsSet("bits"):
		return nil, cmdline.Usagef("--bits beside %s, which chooses them: leave it out, or fix single tensors with --rule", set[0])
	}
	return &g, nil
}

// setQuality sets the flags of a preset that were not given.
func setQuality(c *cli.Context) error {
	var flags [][2]string
	switch preset := c.String("quality"); preset {
	case "":
	case "fast":
		flags = [][2]string{{"algorithm", "search"}}
	case "good":
		flags = [][2]string{{"algorithm", "gptq-ft"}, {"calibrate", "self"}}
	case "best":
		flags = [][2]string{{"algorithm", "gptq-ft"}, {"calibrate", "self"}, {"calibrate-tokens", "32768"}, {"refine", "true"}}
	default:
		return cmdline.Usagef("--quality %s: fast, good or best", preset)
	}
	if c.IsSet("algorithm") && c.IsSet("quality") {
		return cmdline.Usagef("--algorithm beside --quality, which chooses it: state one of them")
	}
	for _, f := range flags {
		if !c.IsSet(f[0]) {
			if err := c.Set(f[0], f[1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// units of sizes; longer ones before their endings.
var units = []struct {
	name  string
	bytes float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12}, {"k", 1e3}, {"m", 1e6}, {"g", 1e9}, {"t", 1e12}, {"b", 1}, {"", 1},
}

// parseSize reads a number of bytes: "700MB", "650 MiB", "1.5GB", "123456".
func parseSize(s string) (int64, error) {
	word := strings.ToLower(s)
	for _, u := range units {
		number, ok := strings.CutSuffix(word, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(v > 0) || float64(v*u.bytes) >= 1<<62 || strings.ContainsAny(number, "xp_") {
			break
		}
		return int64(v * u.bytes), nil
	}
	return 0, fmt.Errorf("%q is no size: write bytes, or a number with kB, MB, GB, KiB, MiB or GiB", s)
}

// probeTokens is how much text bits are chosen with.
const probeTokens = 2560

// chooser finds the allocation of a goal.
type chooser struct {
	*goal
	c       *cli.Context
	dir     string
	ck      *safetensors.Checkpoint
	config  []byte
	opts    quantizer.Options
	threads int

	float, probed *model.Model
	reference     *accuracy.Reference
	source        string // of the text
	text          [][]int32
	data          *calibration // nil: the algorithm needs none
}

// allocation is what --json shows of it.
type allocation struct {
	*alloc.Allocation
	Source string `json:"source"` // of the text: "self", "text" or "tokens"
	// KL was measured: with the file as executed, on that text.
	KL          *float64           `json:"kl,omitempty"`
	Evaluations []alloc.Evaluation `json:"evaluations,omitempty"`
}

// choose returns the options with a rule for each tensor.
func (g *goal) choose(c *cli.Context, dir string, ck *safetensors.Checkpoint, config []byte, opts quantizer.Options, data *calibration) (*allocation, error) {
	if config == nil {
		return nil, cmdline.Usagef("%s has no config.json: to choose bits the model has to run", dir)
	}
	h := &chooser{goal: g, c: c, dir: dir, ck: ck, config: config, opts: opts, threads: opts.Threads, data: data}
	defer h.close()
	cmdline.LiftMemoryLimit()
	if err := h.open(); err != nil {
		return nil, fmt.Errorf("choosing bits: %w", err)
	}
	p, err := h.probe(opts)
	if err != nil {
		return nil, err
	}
	out := &allocation{Source: h.source}
	switch {
	case g.bpw > 0:
		out.Allocation, err = p.BitsPerWeight(g.bpw)
	case g.bytes > 0:
		out.Allocation, err = p.FileBytes(g.bytes)
	default:
		out.Allocation, out.Evaluations, err = p.MaxKL(c.Context, g.kl, h.measure)
		for _, e := range out.Evaluations {
			if out.Allocation != nil && e.BitsPerWeight == out.BitsPerWeight {
				out.KL = &e.KL
			}
		}
	}
	return out, err
}

func (h *chooser) close() {
	for _, m := range []*model.Model{h.float, h.probed} {
		if m != nil {
			m.Close()
		}
	}
}

// packedBytes is up to which size of a checkpoint its weights are copied into the order of their kernels.
const packedBytes = 1 << 29 // there are two of them

// open opens model and text, and runs the float model on that.
func (h *chooser) open() (err error) {
	size := int64(0)
	for _, t := range h.ck.Tensors() {
		size += t.Size
	}
	options := model.Options{Threads: h.threads, Packed: size <= packedBytes, Log: func(kernels.Choice) {}}
	if h.float, err = model.OpenCheckpoint(h.dir, options); err != nil {
		return err
	}
	tok, err := tokenizer.Open(h.dir)
	if err != nil {
		return err
	}
	own, err := h.readText(tok)
	if err != nil {
		return err
	}
	h.source, h.text = own.Source, own.First(probeTokens)
	if h.reference, err = accuracy.NewReference(h.c.Context, h.float, text.WindowsOf(h.text)); err != nil {
		return err
	}
	h.probed, err = model.OpenCheckpoint(h.dir, options)
	return err
}

// readText gives the calibration text, or has the model write one.
func (h *chooser) readText(tok *tokenizer.Tokenizer) (*text.Text, error) {
	if h.data != nil && h.c.IsSet("calibrate") {
		return h.data.text(h.c)
	}
	window := text.WindowOf(h.float.Config())
	if path := h.c.String("calibrate"); path != "" && path != "self" {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		t, err := text.Read(tok, data, probeTokens, window)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return t, nil
	}
	bar := cmdline.NewCount(os.Stderr, probeTokens, "writing text", "tokens", h.c.Bool("quiet"))
	defer bar.Finish()
	start, ends := text.Start(tok)
	return text.Write(h.c.Context, h.float, start, ends, probeTokens, window, h.c.Uint64("seed"), func(n int) { bar.Add(int64(n)) })
}

func (h *chooser) probe(opts quantizer.Options) (*alloc.Probed, error) {
	job := alloc.Job{
		Checkpoint: h.ck, Config: h.config, Options: opts, Model: h.probed, Windows: h.text,
		KL: func(ctx context.Context, layer int) (float64, error) {
			if layer < 0 {
				return h.reference.KL(ctx, h.probed)
			}
			return h.reference.KLFrom(ctx, h.probed, layer)
		},
	}
	if dir := workDir(h.c); dir != "" {
		job.WorkFile = filepath.Join(dir, calib.ProbesName)
	}
	if h.c.IsSet("group") {
		job.Groups = []int{opts.Recipe.Group}
	}
	job.TableFixed = h.c.IsSet("embedding-bits")
	if h.bpw > 0 && h.bpw < 2.5 { // the person asked for it
		job.MinBits = 1
	}
	if h.c.String("quality") == "best" {
		job.Widths = []int{2, 3, 4, 5}
	}
	if h.data != nil {
		job.Prepare = makeRoom
	}
	var bar *cmdline.Progress
	job.Start = func(steps int) {
		bar = cmdline.NewCount(os.Stderr, int64(steps), "probing tensors", "steps", h.c.Bool("quiet"))
	}
	job.Progress = func(n int) { bar.Add(int64(n)) }
	p, err := job.Probe(h.c.Context)
	if bar != nil {
		bar.Finish()
	}
	return p, err
}

// makeRoom has a plan's size include the longest account of calibration that a file may have.
func makeRoom(p *quantizer.Plan) error {
	seed := uint64(math.MaxUint64)
	return p.SetChosen(&quantizer.Chosen{
		Rows: func(quantizer.Matrix) quantizer.RowReader { return nil },
		Calibration: &quantizer.Calibration{
			Algorithm: "gptq-ft", Parameters: map[string]any{"room": strings.Repeat("x", 512)}, Source: "imatrix", SHA256: strings.Repeat("0", 64),
			Tokens: math.MaxInt32, Sequences: math.MaxInt32, Seed: &seed, Fallbacks: math.MaxInt32,
		},
	})
}

// errMeasured ends the writing of a file that was only to be measured.
var errMeasured = errors.New("measured")

// measure writes the file of an allocation, runs it as a device would and removes it.
func (h *chooser) measure(ctx context.Context, a *alloc.Allocation) (kl float64, err error) {
	opts := h.opts
	opts.Rules = append(slices.Clone(a.Rules), opts.Rules...)
	plan, err := quantizer.NewPlan(h.ck, h.config, opts) // a.Plan is for the file that stays
	if err != nil {
		return 0, err
	}
	if h.data != nil {
		done, err := h.data.run(h.c, plan)
		if err != nil {
			return 0, err
		}
		defer done() // its layers stay: if nothing better is found, the file is made of them
	}
	_, err = plan.WriteChecked(ctx, h.c.String("output"), func(temp string, _ *quantizer.Report) error {
		f, err := gqf.Open(temp, gqf.Options{})
		if err != nil {
			return err
		}
		defer f.Close()
		m, err := model.OpenGQF(f, model.Options{Threads: h.threads, Log: func(kernels.Choice) {}})
		if err != nil {
			return err
		}
		defer m.Close()
		if kl, err = h.reference.KL(ctx, m); err != nil {
			return err
		}
		return errMeasured
	})
	if errors.Is(err, errMeasured) {
		err = nil
	}
	if !h.c.Bool("quiet") && err == nil {
		fmt.Fprintf(h.c.App.ErrWriter, "%.3f bits per weight: KL %.5f\n", a.BitsPerWeight, kl)
	}
	return kl, err
}

// print writes the table of what was chosen.
func (a *allocation) print(w io.Writer) error {
	err := cmdline.Table(w, []string{"TENSOR", "BITS>", "GROUP>", "BYTES>", "KL>"}, func(line func(...any)) {
		for _, r := range a.Rows {
			group := strconv.Itoa(r.Group)
			if r.Group == 0 {
				group = "channel"
			}
			line(cmdline.Text(r.Tensor), r.Bits, group, r.Bytes, fmt.Sprintf("%.6f", r.KL))
		}
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\n%s\n\n", a.summary())
	return err
}

// summary says what the choice comes to.
func (a *allocation) summary() string {
	s := fmt.Sprintf("%.4f bits per weight, a file of %d bytes, predicted KL %.5f", a.BitsPerWeight, a.OutputBytes, a.PredictedKL)
	if a.KL != nil {
		s += fmt.Sprintf(", measured %.5f", *a.KL)
	}
	return s
}

// comment heads a saved recipe.
func (a *allocation) comment(c *cli.Context) string {
	if a == nil {
		return "gq quantize"
	}
	for _, name := range []string{"target-bpw", "target-size", "max-kl"} {
		if c.IsSet(name) {
			return fmt.Sprintf("gq quantize --%s %s\n%s", name, c.String(name), a.summary())
		}
	}
	return a.summary()
}

// saveRecipe writes the recipe if --save-recipe asks for it.
func saveRecipe(c *cli.Context, opts quantizer.Options, a *allocation) error {
	path := c.String("save-recipe")
	if path == "" {
		return nil
	}
	return alloc.SaveRecipe(path, a.comment(c), opts.Recipe, opts.Rules)
}

// printChosenPlan is PrintPlan with the choice of bits, if there was one.
func printChosenPlan(c *cli.Context, p *quantizer.Plan, a *allocation) error {
	if a == nil || !c.Bool("json") {
		return PrintPlan(c, p)
	}
	return cmdline.PrintJSON(c.App.Writer, struct {
		*quantizer.Plan
		Allocation *allocation `json:"allocation"`
	}{p, a})
}

// printChosenReport is PrintReport with the choice of bits, if there was one.
func printChosenReport(c *cli.Context, r *quantizer.Report, a *allocation) error {
	if a == nil || !c.Bool("json") {
		return PrintReport(c, r)
	}
	return cmdline.PrintJSON(c.App.Writer, struct {
		*quantizer.Report
		Allocation *allocation `json:"allocation"`
	}{r, a})
}
