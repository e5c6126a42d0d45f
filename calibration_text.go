package gq

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/model/tokenizer"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// text returns the text for calibration or for the choice of bits: the recipe's, or text that the
// model of a plan's checkpoint writes.
func (j *quantizeJob) text(p *conversion.Plan, tokens int) (*text.Text, error) {
	self := j.calibrationText(tokens)
	if p != j.original {
		self.with = nil // the original model writes it
	}
	tok, t, err := j.textOf(p, j.o.Recipe.Calibrate, self)
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	if j.shown {
		return t, nil
	}
	j.shown = true
	return t, j.showText(p, tok, t)
}

// textOf reads the named text, or lets the model of a plan's checkpoint write one.
func (j *quantizeJob) textOf(p *conversion.Plan, name string, self selfText) (*tokenizer.Tokenizer, *text.Text, error) {
	tok, err := tokenizer.Open(p.SourceDir())
	if err != nil {
		return nil, nil, err
	}
	var t *text.Text
	if name != "" && name != quantizer.Self {
		if t, err = j.fileText(p, tok, name, self.tokens); err == nil {
			j.checkLength(name, t.Tokens(), self.tokens)
		}
	} else {
		t, err = j.selfText(p, tok, self)
	}
	return tok, t, err
}

// checkLength warns of a text that has less than an eighth of the tokens that were asked for.
func (j *quantizeJob) checkLength(name string, tokens, want int) {
	if tokens >= want/8 {
		return
	}
	warning := fmt.Sprintf("%s has %d tokens, %d were asked for: on so few the result may be worse than without a text", name, tokens, want)
	if !slices.Contains(j.warnings, warning) {
		j.warnings = append(j.warnings, warning)
	}
}

// fileText reads a text for training or calibration, in sequences for the model of a plan's checkpoint.
func (j *quantizeJob) fileText(p *conversion.Plan, tok *tokenizer.Tokenizer, name string, tokens int) (*text.Text, error) {
	window, err := windowOf(p)
	if err != nil {
		return nil, err
	}
	return readText(j.ctx, tok, name, tokens, window)
}

// readText reads the first tokens of a text in sequences of a window's length.
func readText(ctx context.Context, tok *tokenizer.Tokenizer, name string, tokens, window int) (*text.Text, error) {
	data, err := files.ReadContext(ctx, name, files.MaxText)
	if err != nil {
		return nil, err
	}
	t, err := text.Read(ctx, tok, data, tokens, window)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

// windowOf is the length of a calibration sequence.
func windowOf(p *conversion.Plan) (int, error) {
	m, err := model.OpenCheckpoint(p.SourceDir(), model.Options{Threads: 1})
	if err != nil {
		return 0, err
	}
	defer m.Close()
	return text.WindowOf(m.Config()), nil
}

// showText writes o.CalibrateOut.
func (j *quantizeJob) showText(p *conversion.Plan, tok *tokenizer.Tokenizer, t *text.Text) error {
	name := j.o.CalibrateOut
	if name == "" {
		return nil
	}
	ids := strings.EqualFold(filepath.Ext(name), ".ids")
	data := t.Format(tok, ids)
	if err := atomicfile.WriteFile(name, data); err != nil {
		return err
	}
	window, err := windowOf(p)
	if err != nil {
		return err
	}
	switch again, err := text.Read(j.ctx, tok, data, t.Tokens(), window); {
	case j.ctx.Err() != nil:
		return j.ctx.Err()
	case err == nil && again.Equal(t):
		j.logf("%s: calibrate %s with %d tokens reads these tokens again", name, name, t.Tokens())
	case ids:
		j.warnings = append(j.warnings, fmt.Sprintf("%s: calibrate reads other sequences from it: the tokenizer has no token that separates and begins them", name))
	default:
		j.warnings = append(j.warnings, fmt.Sprintf("%s: calibrate reads other tokens from it, because the tokenizer cuts the text in another way: a name that ends in .ids gives a file of the tokens", name))
	}
	return nil
}
