package accuracy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/model/choice"
	"github.com/lowbit-go/gq/model/eval"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/model/tokenizer"
)

// scored is texts cut into windows, and the models to run on them. Models and tokenizer may be nil.
type scored struct {
	texts                      []cutText        // as Report.Scored
	questions                  [][]*choice.Item // as Report.Choices
	float, quantized, baseline *model.Model
	weights                    *model.Model // quantized with float32 activations, for Job.ActivationShare
	baselineFile               *gqf.File
	tokenizer                  *tokenizer.Tokenizer
}

func (s *scored) close() {
	for _, m := range []*model.Model{s.float, s.quantized, s.baseline, s.weights} {
		if m != nil {
			m.Close()
		}
	}
	if s.baselineFile != nil {
		s.baselineFile.Close()
	}
}

// any returns a model with the configuration that all share: the float model, unless its saved
// predictions stand for it.
func (s *scored) any() *model.Model {
	if s.float != nil {
		return s.float
	}
	return s.quantized
}

// cutText is a text cut into windows.
type cutText struct {
	windows []text.Window
	sizes   []text.Size // by window; nil if there is no tokenizer
}

// tokens is the number of tokens that the models read, context included.
func (c *cutText) tokens() (n int) {
	for _, w := range c.windows {
		n += len(w.Tokens)
	}
	return n
}

// open opens the models and the texts. If the model cannot be run, it sets r.NoModel to the reason.
func (j *Job) open(ctx context.Context, f *gqf.File, r *Report) (*scored, error) {
	s := &scored{}
	err := j.openAll(ctx, s, f, r)
	if err == nil {
		return s, nil
	}
	s.close()
	switch {
	case !refused(err):
		return nil, err
	case j.ActivationShare:
		return nil, fmt.Errorf("the share of int8 activations cannot be measured: %w", err)
	}
	r.NoModel, r.Text, r.Texts, r.Choices = err.Error(), nil, nil, nil
	return &scored{}, nil
}

// refused tells a model that cannot be run from a damaged one.
func refused(err error) bool {
	var noModel *noModelError
	var unsupported *arch.UnsupportedError
	var config *arch.ConfigError
	var tokens *tokenizer.UnsupportedError
	var kernel *kernels.UnsupportedError
	return errors.As(err, &noModel) || errors.As(err, &unsupported) || errors.As(err, &config) || errors.As(err, &tokens) || errors.As(err, &kernel)
}

type noModelError struct{ msg string }

func (e *noModelError) Error() string { return e.msg }

// runsFloat reports whether the float model runs: where predictions are not saved, for questions, and
// for the activations that layers are executed on. Without a model in the checkpoint, these are random.
func (j *Job) runsFloat() bool {
	switch {
	case j.Source == "":
		return false
	case !j.allSaved() || len(j.Choices) > 0:
		return true
	}
	return j.sampledInputs() && j.runnable() == nil
}

// runnable returns a *noModelError if the checkpoint cannot be run as a model.
func (j *Job) runnable() error {
	if !isDir(j.Source) {
		return &noModelError{j.Source + " is a file of weights alone: name the checkpoint's directory, with config.json and tokenizer.json, to run the model"}
	}
	if _, err := os.Stat(filepath.Join(j.Source, "config.json")); errors.Is(err, fs.ErrNotExist) {
		return &noModelError{j.Source + " has no config.json"}
	}
	return nil
}

func (j *Job) openAll(ctx context.Context, s *scored, f *gqf.File, r *Report) (err error) {
	options := model.Options{Threads: cpu.Threads(j.Threads), Activations: j.Activations}
	if j.runsFloat() {
		if err := j.runnable(); err != nil {
			return err
		}
		if s.float, err = model.OpenCheckpoint(j.Source, options); err != nil {
			return err
		}
	}
	if s.quantized, err = model.OpenGQF(f, options); err != nil {
		return fmt.Errorf("%s: %w", r.File, err)
	}
	if j.ActivationShare {
		if err := j.openWeights(s, f, options, r); err != nil {
			return err
		}
	}
	if j.Baseline != "" {
		if s.baselineFile, err = gqf.Open(j.Baseline, gqf.Options{}); err != nil {
			return err
		}
		s.baselineFile.CheckSums()
		if s.baseline, err = model.OpenGQF(s.baselineFile, options); err != nil {
			return fmt.Errorf("%s: %w", cmp.Or(j.BaselineName, j.Baseline), err)
		}
	}
	if s.tokenizer, err = j.openTokenizer(f); err != nil {
		return err
	}
	if err := s.encode(ctx, j.Choices, r); err != nil {
		return err
	}
	switch {
	case j.Saved != nil && len(j.Texts) == 0:
		return j.savedText(s, f, r)
	case j.WritesText():
		return j.write(ctx, s, r)
	}
	for i, source := range j.Texts {
		saved := j.savedOf(i)
		if saved != nil {
			if err := saved.sameVocabulary(s, r); err != nil {
				return err
			}
		}
		info, err := s.cut(ctx, source)
		if err == nil && saved != nil {
			err = saved.sameText(info, s.texts[i].windows)
		}
		switch {
		case err != nil:
			return err
		case i == 0:
			r.Text = info
		default:
			r.Texts = append(r.Texts, TextReport{Text: info})
		}
	}
	return nil
}

// CheckNames finds mistakes in the names of texts and of files of questions before any work: two of
// one name, or a name in the gate that none has.
func (j *Job) CheckNames() error {
	var texts, choices []string
	for _, t := range j.Texts {
		texts = append(texts, t.Name)
	}
	if len(j.Texts) == 0 && j.Saved != nil {
		texts = []string{j.Saved.Text.Name}
	}
	for _, c := range j.Choices {
		choices = append(choices, c.Name)
	}
	if err := checkLabels("texts", texts); err != nil {
		return err
	}
	if err := checkLabels("files of questions", choices); err != nil || j.Gate == nil {
		return err
	}
	if err := matchLabels("texts", j.Gate.Texts, labelsOf(texts)); err != nil {
		return err.in(j.Gate.Name)
	}
	if err := matchLabels("choices", j.Gate.Choices, labelsOf(choices)); err != nil {
		return err.in(j.Gate.Name)
	}
	return nil
}

// cut divides a text into windows.
func (s *scored) cut(ctx context.Context, source *TextSource) (*TextInfo, error) {
	o := source.Options
	if o.Window == 0 {
		o.Window = text.WindowOf(s.any().Config())
		if o.Convention == text.LMEval {
			o.Window = text.LMEvalWindowOf(s.any().Config())
		}
	}
	o = o.WithDefaults()
	cut, err := text.Cut(ctx, s.tokenizer, s.any().VocabSize(), text.Input{Data: source.Data, IDs: source.Tokens}, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source.Name, err)
	}
	s.texts = append(s.texts, cutText{cut.Windows, cut.Sizes(s.tokenizer)})
	info := &TextInfo{
		Name: source.Name, Source: "text", SHA256: hash(source.Data), Convention: cut.Convention, Window: o.Window,
		Windows: len(cut.Windows), Tokens: text.CountScored(cut.Windows), Context: s.any().Config().MaxPositions, Warning: cut.Warning(),
	}
	if source.Tokens {
		info.Source = "tokens"
	}
	info.setSize(s.texts[len(s.texts)-1].sizes)
	if cut.Convention != text.LlamaCpp && cut.Convention != text.LMEval && o.Stride != o.Window-1 {
		info.Stride = o.Stride
	}
	return info, nil
}

const (
	// WrittenTokens is how many tokens the float model writes for a measurement without a text.
	WrittenTokens = 4096
	// selfSeed differs from the seeds that people calibrate with (1 by default), so that a file is
	// not measured on the text that it was calibrated on.
	selfSeed = 0x6d656173757265 // "measure"
)

// write lets the float model write the text.
func (j *Job) write(ctx context.Context, s *scored, r *Report) error {
	tokens := max(WrittenTokens, 2*j.MinTokens)
	add, end := j.stage(r, "writing", "writing text to measure on", "tokens", int64(tokens))
	defer end()
	window := text.WindowOf(s.float.Config())
	o := text.WriteOptions{Tokens: tokens, Window: window, Seed: selfSeed, Progress: func(n int) { add(int64(n)) }}
	o.Start, o.Ends = text.Start(s.tokenizer)
	own, err := text.Write(ctx, s.float, o)
	if err != nil {
		return err
	}
	cut := text.CutSequences(own.Sequences)
	windows := cut.Windows
	s.texts = []cutText{{windows, cut.Sizes(s.tokenizer)}}
	r.Text = &TextInfo{
		Name: "text that the model wrote", Source: own.Source, Seed: own.Seed, SHA256: own.SHA256, Convention: text.Documents, Window: window,
		Windows: len(windows), Tokens: text.CountScored(windows), Context: s.float.Config().MaxPositions,
	}
	r.Text.setSize(s.texts[0].sizes)
	return nil
}

// openTokenizer opens the tokenizer of the checkpoint, or else of the file. Token ids need none.
func (j *Job) openTokenizer(f *gqf.File) (*tokenizer.Tokenizer, error) {
	ids := j.HasText() && len(j.Choices) == 0 && !slices.ContainsFunc(j.Texts, func(t *TextSource) bool { return !t.Tokens })
	t, err := (*tokenizer.Tokenizer)(nil), error(fs.ErrNotExist)
	if isDir(j.Source) {
		t, err = tokenizer.Open(j.Source)
	}
	if errors.Is(err, fs.ErrNotExist) {
		t, err = tokenizer.Read(f.Asset)
	}
	switch {
	case err == nil:
		return t, nil
	case ids:
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, &noModelError{"neither " + j.Source + " nor the .gqf has a tokenizer.json: a text cannot be turned into tokens, ids can be given as they are"}
	}
	return nil, err
}

// contextTokens is how many tokens are shown before each worst token.
const contextTokens = 24

// spell fills in the texts of tokens.
func (c *cutText) spell(t *tokenizer.Tokenizer, worst []eval.WorstToken) {
	if t == nil {
		return
	}
	for i := range worst {
		w := &worst[i]
		tokens := c.windows[w.Window].Tokens
		w.Context = t.Decode(tokens[max(0, w.Position-contextTokens):w.Position], true)
		w.Text = t.Decode([]int32{w.Token}, false)
		w.FloatTopText = t.Decode([]int32{w.FloatTop}, false)
		w.QuantizedTopText = t.Decode([]int32{w.QuantizedTop}, false)
	}
}
