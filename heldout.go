package gq

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/model/eval"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/model/tokenizer"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// HeldOut compares a calibrated file with its checkpoint on text that calibration did not see.
type HeldOut struct {
	// KL is the mean KL divergence from the checkpoint, in nats per token, with the quantized model
	// executed as on a device.
	KL float64 `json:"kl"`
	// Tokens counts the scored tokens.
	Tokens int `json:"tokens"`
	// Source is "text" or "tokens" for the text after the calibration text in its file, "self" for
	// text that the model wrote.
	Source string `json:"source"`
}

// The length of the held-out text is a fraction of the calibration text's, within these bounds.
const (
	heldOutShare           = 8
	heldOutLeast           = 256
	heldOutMost            = 4096
	stageHeldText          = "writing held-out text"
	stageHeldOut           = "measuring"
	heldOutName, heldDraft = "held-out-text", "held-out-draft" // entries of the working directory
)

// heldOut measures the file at path. If the model cannot be run, it adds a warning to the report.
func (k *calibration) heldOut(path string, r *QuantizeReport) error {
	defer memlimit.Raise(k.memory(k.plan, cpu.Threads(k.o.Threads)))()
	h, err := k.measureHeldOut(path)
	if k.ctx.Err() != nil {
		return k.ctx.Err()
	}
	if err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the KL divergence on held-out text was not measured: %v", err))
		return nil
	}
	r.HeldOut = h
	return nil
}

func (k *calibration) measureHeldOut(path string) (*HeldOut, error) {
	windows, source, err := k.heldOutWindows()
	if err != nil {
		return nil, err
	}
	_, end := k.begin(stageHeldOut, "", 0)
	defer end()
	reference, done, err := k.floatReference(k.original, windows)
	if err != nil {
		return nil, err
	}
	defer done()
	kl, err := k.klOf(path, reference, model.Int8)
	return &HeldOut{KL: kl, Tokens: text.CountScored(windows), Source: source}, err
}

// floatReference runs the model of a plan's checkpoint on the windows. done must be called when the
// reference is no longer used.
func (j *quantizeJob) floatReference(p *conversion.Plan, windows []text.Window) (r *eval.Reference, done func(), err error) {
	float, err := model.OpenCheckpoint(p.SourceDir(), model.Options{Threads: j.o.Threads, Log: func(kernels.Choice) {}})
	if err != nil {
		return nil, nil, err
	}
	if r, err = eval.NewReference(j.ctx, float, windows); err != nil {
		float.Close()
		return nil, nil, err
	}
	return r, func() { float.Close() }, nil
}

// klOf runs the model in the file at path, .gqf or .gguf, and returns its divergence from the
// reference.
func (j *quantizeJob) klOf(path string, reference *eval.Reference, a model.Activations) (kl float64, err error) {
	err = withGQF(j.ctx, path, j.o.Threads, stages{}, func(path string, _ *accuracy.Imported) error {
		f, err := gqf.Open(path, gqf.Options{})
		if err != nil {
			return err
		}
		defer f.Close()
		f.CheckSums()
		m, err := model.OpenGQF(f, model.Options{Threads: j.o.Threads, Activations: a, Log: func(kernels.Choice) {}})
		if err != nil {
			return err
		}
		defer m.Close()
		kl, err = reference.KL(j.ctx, m)
		return err
	})
	return kl, err
}

// heldOutTokens is the length of the held-out text.
func (k *calibration) heldOutTokens() int {
	return min(max(k.tokens()/heldOutShare, heldOutLeast), heldOutMost)
}

// heldOutWindows returns text that calibration does not see: what follows the calibration text in
// its file, or what the model writes.
func (k *calibration) heldOutWindows() ([]text.Window, string, error) {
	tokens := k.tokens()
	most := k.heldOutTokens()
	tok, err := tokenizer.Open(k.original.SourceDir())
	if err != nil {
		return nil, "", err
	}
	if name := k.o.Recipe.Calibrate; name != quantizer.Self {
		t, err := k.fileText(k.original, tok, name, tokens+most)
		if err != nil {
			return nil, "", err
		}
		if rest := t.After(tokens); text.CountScored(rest) >= heldOutLeast/2 {
			return rest, t.Source, nil
		}
	}
	t, err := k.selfText(k.original, tok, k.heldOutText())
	if err != nil {
		return nil, "", err
	}
	return text.WindowsOf(t.Sequences), t.Source, nil
}

// heldOutText describes the held-out text if the model writes it.
func (k *calibration) heldOutText() selfText {
	return selfText{
		tokens: k.heldOutTokens(), seed: ^k.seed(), stage: stageHeldText, name: heldOutName, draft: heldDraft, option: "calibrate",
	}
}

// notRunnable says why gq cannot run the model of the checkpoint; "" if it can.
func (j *quantizeJob) notRunnable() string {
	source := j.original.SourceDir()
	if j.foreign != nil || j.name != j.src {
		source = j.name // the directory is temporary, or in a cache
	}
	if j.config == nil {
		return fmt.Sprintf("%s has no config.json", source)
	}
	if _, err := arch.ParseForward(j.config); err != nil {
		return fmt.Sprintf("config.json: %v", err)
	}
	err := j.tokenizable()
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("%s has no tokenizer (tokenizer.json)", source)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}
