package gq

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/model/eval"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// FoldChoice says how a recipe's fold auto was resolved: by the KL divergence of the model that is
// folded in each way, then quantized without data at the recipe's bits.
type FoldChoice struct {
	// Fold is the choice: "none", "equalize", "rotate" or "both".
	Fold       string          `json:"fold"`
	Candidates []FoldCandidate `json:"candidates"`
	// Tokens counts the scored tokens of the text, Source is as in HeldOut.
	Tokens int    `json:"tokens"`
	Source string `json:"source"`
	// Activations are "int8" as a device executes a .gqf file, "float32" for files of other formats,
	// whose runtimes have activations of their own.
	Activations string `json:"activations"`
}

// FoldCandidate is a way to fold.
type FoldCandidate struct {
	Fold string `json:"fold"`
	// KL is the mean KL divergence from the checkpoint, in nats per token.
	KL float64 `json:"kl"`
	// Impossible says why the checkpoint cannot be folded so; "" if it can.
	Impossible string `json:"impossible,omitempty"`
}

// String has the choice and the figures of all candidates.
func (c *FoldChoice) String() string {
	var parts []string
	for _, k := range c.Candidates {
		if k.Impossible == "" {
			parts = append(parts, fmt.Sprintf("%s %.4g", k.Fold, k.KL))
		} else {
			parts = append(parts, k.Fold+" impossible")
		}
	}
	return fmt.Sprintf("%s; KL %s (%d tokens, %s, %s activations)", c.Fold, strings.Join(parts, ", "), c.Tokens, c.Source, c.Activations)
}

const (
	// foldTokens is the length of the text that folds are chosen on.
	foldTokens = 2048
	// equalizeGain and rotateGain are the parts of a simpler candidate's divergence below which a
	// candidate is preferred. Smaller differences are noise; rotations also store the lm_head of a
	// tied model apart.
	equalizeGain = 0.97
	rotateGain   = 0.9
	// stageFoldChoice measures candidates.
	stageFoldChoice = "choosing the fold"
)

// foldCandidates are in the order in which folds are measured: equalize is often chosen, and its
// checkpoint then serves the job.
var foldCandidates = []quantizer.Fold{{}, {Rotate: true}, {Rotate: true, Equalize: true}, {Equalize: true}}

// foldsBySteps lists the simplest first.
var foldsBySteps = []quantizer.Fold{{}, {Equalize: true}, {Rotate: true}, {Rotate: true, Equalize: true}}

// bestFold returns the simplest fold that no other one beats by more than noise.
func bestFold(kl map[quantizer.Fold]FoldCandidate) (best quantizer.Fold) {
	for _, fold := range foldsBySteps {
		gain := equalizeGain
		if fold.Rotate {
			gain = rotateGain
		}
		if k := kl[fold]; k.Impossible == "" && k.KL < float64(gain*kl[best].KL) {
			best = fold
		}
	}
	return best
}

// choose resolves fold auto, or finds what an interrupted job chose.
func (f *folding) choose() error {
	defer memlimit.Lift()()
	own, err := f.choiceText()
	if err != nil {
		return err
	}
	recipe, err := f.quantizeJob.opts.Recipe.JSON(f.quantizeJob.opts.Rules)
	if err != nil {
		return err
	}
	// 1: the version of the choice.
	key, err := workdir.Key("fold choice", 1, f.original.SourceStamps(), string(recipe), f.seed(), f.o.Format, own.SHA256, own.Tokens())
	if err != nil {
		return err
	}
	c := &FoldChoice{}
	if f.work.GetJSON(choiceName, key, c) && len(c.Candidates) > 0 {
		f.resumed(f.work, "the choice of the fold")
	} else {
		if c, err = f.compare(own); err != nil {
			return err
		}
		if err := f.work.PutJSON(choiceName, key, c); err != nil {
			return err
		}
	}
	best, err := quantizer.ParseFold(c.Fold)
	if err != nil {
		return err
	}
	f.choice = c
	f.o.Recipe.Fold, f.quantizeJob.opts.Recipe.Fold = best, best
	f.logf("fold auto: %s", c)
	return nil
}

// choiceName is the entry of the working directory.
const choiceName = "choice"

// compare measures all candidates on a text.
func (f *folding) compare(own *text.Text) (*FoldChoice, error) {
	windows := text.WindowsOf(own.First(foldTokens))
	reference, done, err := f.floatReference(f.original, windows)
	if err != nil {
		return nil, err
	}
	defer done()
	activations := model.Int8
	if f.o.Format != FormatGQF {
		activations = model.Float32
	}
	c := &FoldChoice{Tokens: text.CountScored(windows), Source: own.Source, Activations: activations.String()}
	add, end := f.begin(stageFoldChoice, "steps", int64(len(foldCandidates)))
	defer end()
	kl := map[quantizer.Fold]FoldCandidate{}
	for _, fold := range foldCandidates {
		if kl[fold], err = f.try(fold, reference, activations); err != nil {
			return nil, fmt.Errorf("choosing the fold: %s: %w", fold, err)
		}
		add(1)
	}
	for _, fold := range foldsBySteps {
		c.Candidates = append(c.Candidates, kl[fold])
	}
	c.Fold = bestFold(kl).String()
	return c, nil
}

// choiceText is the text to choose a fold on: calibration's, if there is one.
func (f *folding) choiceText() (*text.Text, error) {
	m, err := model.OpenCheckpoint(f.original.SourceDir(), model.Options{Threads: 1, Log: func(kernels.Choice) {}})
	if err != nil {
		return nil, optionf("fold", "auto runs the model: %w; without it, state fold none", err)
	}
	m.Close()
	tokens := foldTokens
	if f.calibration != nil && f.o.Recipe.Calibrate != "" {
		tokens = f.calibration.tokens()
	}
	return f.text(f.original, tokens)
}

// try measures a candidate. Its file stands beside the output for a moment.
func (f *folding) try(fold quantizer.Fold, reference *eval.Reference, a model.Activations) (c FoldCandidate, err error) {
	c.Fold = fold.String()
	ck, config, opts := f.quantizeJob.ck, f.quantizeJob.config, f.quantizeJob.opts
	if fold != (quantizer.Fold{}) {
		job, err := f.job(fold)
		if err != nil {
			return c, err
		}
		folded, record, _, err := f.make(job, false)
		var no *arch.UnsupportedError
		if errors.As(err, &no) {
			c.Impossible = no.Msg
			return c, nil
		}
		if err != nil {
			return c, err
		}
		if ck, err = safetensors.Open(folded, safetensors.Options{}); err != nil {
			return c, err
		}
		defer ck.Close()
		if config, err = conversion.ReadConfig(ck); err != nil {
			return c, err
		}
		if opts.Origin, err = f.origin(record); err != nil {
			return c, err
		}
		opts.Assets = nil // the cache would hold the assets of a closed checkpoint until the job ends
	}
	opts.Recipe, opts.Rules = withoutData(opts.Recipe), rulesWithoutData(opts.Rules)
	opts.Recipe.Fold = fold
	opts.Progress = nil
	plan, err := conversion.NewPlan(ck, config, opts)
	if err != nil {
		return c, err
	}
	err = plan.WriteTemporary(f.ctx, f.dst, nil, func(temp string) (err error) {
		c.KL, err = f.klOf(temp, reference, a)
		return err
	})
	return c, err
}

// withoutData replaces algorithms that calibrate by search.
func withoutData(r quantizer.Recipe) quantizer.Recipe {
	if r.Algorithm.Calibrated() {
		r.Algorithm = gqf.AlgorithmSearch
	}
	r.Rules = rulesWithoutData(r.Rules)
	return r
}

func rulesWithoutData(rules []quantizer.Rule) (list []quantizer.Rule) {
	for _, rule := range rules {
		if rule.Algorithm.Calibrated() {
			rule.Algorithm = gqf.AlgorithmSearch
		}
		list = append(list, rule)
	}
	return list
}
