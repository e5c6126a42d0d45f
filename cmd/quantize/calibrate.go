package quantize

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/measure"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/model/tokenizer"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/calib"
)

// calibrationFlags are those that go with an algorithm that needs calibration data.
func calibrationFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "calibrate", Usage: "`FILE` of text or token ids to run the model on, for gptq, gptq-ft, imatrix and awq and to choose bits with; or self: the model writes its own, which serves as well"},
		&cli.IntFlag{Name: "calibrate-tokens", Value: calib.DefaultTokens, Usage: "tokens of calibration"},
		&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "of the text that the model writes, and of the matrices of --rotate"},
		&cli.BoolFlag{Name: "refine", Usage: "coordinate descent and a refit of scales behind gptq and gptq-ft"},
		&cli.StringSliceFlag{Name: "imatrix", Usage: "`FILE` of moments for --algorithm imatrix, of --imatrix-out or of llama.cpp (GGUF or imatrix.dat); several are merged (repeatable)"},
		&cli.StringFlag{Name: "imatrix-out", Usage: "`FILE` to write the moments to that --algorithm imatrix used"},
	}
}

// calibration is a job that --algorithm asks for; nil if it needs none.
type calibration struct {
	imatrix, solved, awq bool            // what algorithms there are; awq ends as imatrix does
	plan                 *quantizer.Plan // of the checkpoint as it is
}

// calibrationOf looks for algorithms in the plan that need calibration, and refuses flags that don't go with them. choosing
// tells that bits are chosen, for which there is text too, rotating that a seed
// makes rotations.
func calibrationOf(c *cli.Context, p *quantizer.Plan, choosing, rotating bool) (*calibration, error) {
	k := &calibration{plan: p}
	for _, m := range p.Matrices() {
		k.awq = k.awq || m.Scheme.Algorithm == gqf.AlgorithmAWQ
		k.imatrix = k.imatrix || m.Scheme.Algorithm == gqf.AlgorithmImatrix
		k.solved = k.solved || calib.Calibrated(m.Scheme.Algorithm)
	}
	set := func(names ...string) string {
		for _, name := range names {
			if c.IsSet(name) {
				return name
			}
		}
		return ""
	}
	switch {
	case !k.imatrix && !k.solved && !k.awq:
		if name := set("calibrate", "calibrate-tokens", "seed", "refine", "imatrix", "imatrix-out"); name != "" && !(choosing && (name == "calibrate" || name == "seed")) && !(rotating && name == "seed") {
			return nil, cmdline.Usagef("--%s goes with --algorithm gptq, gptq-ft, imatrix or awq", name)
		}
		return nil, nil
	case k.imatrix && k.solved:
		return nil, cmdline.Usagef("imatrix together with gptq or gptq-ft: choose one of them for all tensors")
	case k.awq && (k.imatrix || k.solved):
		return nil, cmdline.Usagef("awq together with imatrix, gptq or gptq-ft: choose one of them for all tensors")
	case !k.imatrix && set("imatrix", "imatrix-out") != "":
		return nil, cmdline.Usagef("--%s goes with --algorithm imatrix", set("imatrix", "imatrix-out"))
	case !k.solved && c.Bool("refine"):
		return nil, cmdline.Usagef("--refine goes with --algorithm gptq or gptq-ft")
	case !c.IsSet("calibrate") && !c.IsSet("imatrix"):
		return nil, cmdline.Usagef("this algorithm needs calibration data: --calibrate self, or --calibrate FILE of text")
	case c.Int("calibrate-tokens") < 16:
		return nil, cmdline.Usagef("--calibrate-tokens %d: at least 16", c.Int("calibrate-tokens"))
	}
	return k, nil
}

// workDir keeps what long jobs have finished until the file is there: a job that was ended goes on from it. "" for a dry
// run, which writes nothing.
func workDir(c *cli.Context) string {
	if c.Bool("dry-run") {
		return ""
	}
	return c.String("output") + ".calib"
}

// leaveWork removes the work directory of a job that ended with err, if nothing is to be done any more: the file is
// written, or does not meet its gate. Else it says where to go on from.
func leaveWork(c *cli.Context, err error) error {
	dir := workDir(c)
	if _, unmet := errors.AsType[*measure.GateError](err); dir != "" && (err == nil || unmet) {
		return cmp.Or(err, calib.RemoveWork(dir))
	}
	if st, e := os.Stat(dir); e != nil || !st.IsDir() {
		return err
	}
	hint := fmt.Sprintf("what is finished is in %s: the same command goes on from there, or one with another target", cmdline.Text(dir))
	if c.Context.Err() == nil {
		return fmt.Errorf("%w; %s", err, hint)
	}
	fmt.Fprintf(c.App.ErrWriter, "gq: %s\n", hint)
	return err
}

// run chooses the codes of a plan. done is called when they are written.
func (k *calibration) run(c *cli.Context, p *quantizer.Plan) (done func(), err error) {
	cmdline.LiftMemoryLimit()
	if err := p.CheckOutput(c.String("output")); err != nil {
		return nil, err
	}
	if !k.solved {
		return func() {}, k.runImatrix(c, p)
	}
	text, err := k.text(c)
	if err != nil {
		return nil, err
	}
	bar := cmdline.NewCount(os.Stderr, calib.Work(p), "calibrating", "weights", c.Bool("quiet"))
	result, err := calib.Run(c.Context, p, text, calib.Options{Refine: c.Bool("refine"), WorkDir: workDir(c), Threads: c.Int("threads"), Progress: bar.Add})
	bar.Finish()
	if err != nil {
		return nil, err
	}
	p.Warnings = append(p.Warnings, result.Warnings...)
	return result.Close, p.SetChosen(result.Chosen())
}

// text reads or makes the tokens: with the checkpoint as it was before it was folded.
func (k *calibration) text(c *cli.Context) (*text.Text, error) {
	p := k.plan
	tok, err := tokenizer.Open(p.SourceDir())
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	tokens, name := c.Int("calibrate-tokens"), c.String("calibrate")
	if name != "self" {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("calibration: %w", err)
		}
		m, err := model.OpenCheckpoint(p.SourceDir(), model.Options{Threads: 1})
		if err != nil {
			return nil, err
		}
		defer m.Close()
		text, err := text.Read(tok, data, tokens, text.WindowOf(m.Config()))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return text, nil
	}
	seed := c.Uint64("seed")
	h := sha256.New()
	fmt.Fprintln(h, 1, tokens, seed) // 1: the version of the way in which text is written
	fmt.Fprintln(h, p.SourceStamps())
	return calib.KeptText(workDir(c), hex.EncodeToString(h.Sum(nil)), func() (*text.Text, error) {
		m, err := model.OpenCheckpoint(p.SourceDir(), model.Options{Threads: c.Int("threads")})
		if err != nil {
			return nil, err
		}
		defer m.Close()
		bar := cmdline.NewCount(os.Stderr, int64(tokens), "writing text", "tokens", c.Bool("quiet"))
		defer bar.Finish()
		start, ends := text.Start(tok)
		return text.Write(c.Context, m, start, ends, tokens, text.WindowOf(m.Config()), seed, func(n int) { bar.Add(int64(n)) })
	})
}

// moments runs the model on a text.
func (k *calibration) moments(c *cli.Context, p *quantizer.Plan, text *text.Text) (*calib.Imatrix, error) {
	m, err := model.OpenCheckpoint(p.SourceDir(), model.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	layers := len(m.Config().Layers)
	m.Close()
	bar := cmdline.NewCount(os.Stderr, int64(layers)*int64(text.Tokens()), "calibrating", "tokens", c.Bool("quiet"))
	defer bar.Finish()
	return calib.CollectImatrix(c.Context, p, text, calib.Options{Threads: c.Int("threads"), Progress: bar.Add})
}

func (k *calibration) runImatrix(c *cli.Context, p *quantizer.Plan) error {
	im := &calib.Imatrix{Linears: map[string]*calib.Moments{}}
	info := quantizer.Calibration{Source: "imatrix"}
	h := sha256.New()
	for _, name := range c.StringSlice("imatrix") {
		data, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("imatrix: %w", err)
		}
		h.Write(data)
		one, err := calib.ReadImatrix(data, p)
		if err == nil {
			err = im.Merge(one)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	info.SHA256 = hex.EncodeToString(h.Sum(nil))
	if c.IsSet("calibrate") {
		text, err := k.text(c)
		if err != nil {
			return err
		}
		if c.IsSet("imatrix") {
			info.Parameters = map[string]any{"imatrix-sha256": info.SHA256}
		}
		info.Source, info.SHA256, info.Tokens, info.Sequences, info.Seed = text.Source, text.SHA256, text.Tokens(), len(text.Sequences), text.Seed
		one, err := k.moments(c, p, text)
		if err == nil {
			err = im.Merge(one)
		}
		if err != nil {
			return err
		}
	}
	if c.IsSet("imatrix-out") {
		var b bytes.Buffer
		if err := im.Write(&b); err != nil {
			return err
		}
		if err := os.WriteFile(c.String("imatrix-out"), b.Bytes(), 0o666); err != nil {
			return err
		}
	}
	chosen, warnings, err := im.Chosen(p, info)
	if err != nil {
		return err
	}
	p.Warnings = append(p.Warnings, warnings...)
	return p.SetChosen(chosen)
}
