package accuracy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/model/eval"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/model/tokenizer"
)

// scored is a text cut into windows and the models that are run on it. Models and tokenizer are nil where there are none.
type scored struct {
	windows                    []text.Window
	float, quantized, baseline *model.Model
	baselineFile               *gqf.File
	tokenizer                  *tokenizer.Tokenizer
}

func (s *scored) close() {
	for _, m := range []*model.Model{s.float, s.quantized, s.baseline} {
		if m != nil {
			m.Close()
		}
	}
	if s.baselineFile != nil {
		s.baselineFile.Close()
	}
}

// tokens is the number of tokens that models read, context included.
func (s *scored) tokens() (n int) {
	for _, w := range s.windows {
		n += len(w.Tokens)
	}
	return n
}

// open opens models and text. If the model is one that cannot be run, r.NoModel says why.
func (j *Job) open(ctx context.Context, f *gqf.File, r *Report) (*scored, error) {
	s := &scored{}
	err := j.openAll(ctx, s, f, r)
	if err == nil {
		return s, nil
	}
	s.close()
	if !refused(err) {
		return nil, err
	}
	r.NoModel, r.Text = err.Error(), nil
	return &scored{}, nil
}

// refused tells models that cannot be run from those that are damaged.
func refused(err error) bool {
	var noModel *noModelError
	var unsupported *arch.UnsupportedError
	var config *arch.ConfigError
	var tokens *tokenizer.UnsupportedError
	var kernel *kernels.UnsupportedError
	return errors.As(err, &noModel) || errors.As(err, &unsupported) || errors.As(err, &config) || errors.As(err, &tokens) || errors.As(err, &kernel)
}

// noModelError says that there is no model to run.
type noModelError struct{ msg string }

func (e *noModelError) Error() string { return e.msg }

func (j *Job) openAll(ctx context.Context, s *scored, f *gqf.File, r *Report) (err error) {
	if !isDir(j.Source) {
		return &noModelError{j.Source + " is a file of weights alone: name the checkpoint's directory, with config.json and tokenizer.json, to run the model"}
	}
	if _, err := os.Stat(filepath.Join(j.Source, "config.json")); errors.Is(err, fs.ErrNotExist) {
		return &noModelError{j.Source + " has no config.json"}
	}
	options := model.Options{Threads: cpu.Threads(j.Threads), Activations: j.Activations}
	if s.float, err = model.OpenCheckpoint(j.Source, options); err != nil {
		return err
	}
	if s.quantized, err = model.OpenGQF(f, options); err != nil {
		return fmt.Errorf("%s: %w", r.File, err)
	}
	if j.Baseline != "" {
		if s.baselineFile, err = gqf.Open(j.Baseline, gqf.Options{}); err != nil {
			return err
		}
		s.baselineFile.CheckSums()
		if s.baseline, err = model.OpenGQF(s.baselineFile, options); err != nil {
			return fmt.Errorf("%s: %w", j.Baseline, err)
		}
	}
	if s.tokenizer, err = j.openTokenizer(f); err != nil {
		return err
	}
	o := j.Text.Options
	if o.Window == 0 {
		o.Window = text.WindowOf(s.float.Config())
	}
	o = o.WithDefaults()
	cut, err := text.Cut(ctx, s.tokenizer, s.float.VocabSize(), text.Input{Data: j.Text.Data, IDs: j.Text.Tokens}, o)
	if err != nil {
		return fmt.Errorf("%s: %w", j.Text.Name, err)
	}
	s.windows = cut.Windows
	r.Text = &TextInfo{
		Name: j.Text.Name, SHA256: hash(j.Text.Data), Convention: cut.Convention, Window: o.Window,
		Windows: len(s.windows), Tokens: text.CountScored(s.windows), Context: s.float.Config().MaxPositions, Warning: cut.Warning(),
	}
	if cut.Convention != text.LlamaCpp && o.Stride != o.Window-1 {
		r.Text.Stride = o.Stride
	}
	return nil
}

// openTokenizer opens that of the checkpoint, or else that of the .gqf; ids need none.
func (j *Job) openTokenizer(f *gqf.File) (t *tokenizer.Tokenizer, err error) {
	if _, err := os.Stat(filepath.Join(j.Source, "tokenizer.json")); err == nil {
		t, err := tokenizer.Open(j.Source)
		if err != nil && j.Text.Tokens {
			return nil, nil
		}
		return t, err
	}
	var files tokenizer.Files
	for _, a := range []struct {
		name string
		to   *[]byte
	}{
		{"tokenizer.json", &files.Tokenizer}, {"tokenizer_config.json", &files.Config},
		{"special_tokens_map.json", &files.SpecialTokensMap}, {"generation_config.json", &files.GenerationConfig},
	} {
		if f.HasAsset(a.name) {
			if *a.to, err = f.Asset(a.name); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case files.Tokenizer != nil:
		t, err = tokenizer.ParseFiles(files)
	case !j.Text.Tokens:
		err = &noModelError{"neither " + j.Source + " nor the .gqf has a tokenizer.json: a text cannot be turned into tokens, ids can be given as they are"}
	}
	if err != nil && j.Text.Tokens {
		return nil, nil
	}
	return t, err
}

// contextTokens is how many tokens before a worst one are shown.
const contextTokens = 24

// spell fills in the texts of tokens.
func (s *scored) spell(worst []eval.WorstToken) {
	t := s.tokenizer
	if t == nil {
		return
	}
	for i := range worst {
		w := &worst[i]
		tokens := s.windows[w.Window].Tokens
		w.Context = t.Decode(tokens[max(0, w.Position-contextTokens):w.Position], true)
		w.Text = t.Decode([]int32{w.Token}, false)
		w.FloatTopText = t.Decode([]int32{w.FloatTop}, false)
		w.QuantizedTopText = t.Decode([]int32{w.QuantizedTop}, false)
	}
}
