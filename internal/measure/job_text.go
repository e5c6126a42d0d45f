package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/choice"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/kernels"
)

// TextSource is a text, or its tokens.
type TextSource struct {
	Name    string // in the report; gates call the text by the last element of Name
	Data    []byte
	Tokens  bool // Data holds ids, see text.ParseIDs
	Options text.Options
	// Saved has the float model's predictions of this text: no need to run that model. Default: none.
	Saved *Saved
}

// scored is texts cut into windows, and the models to run. Models and tokenizer may be nil.
type scored struct {
	texts                      []cutText        // as Report.Scored
	questions                  [][]*choice.Item // as Report.Choices
	float, quantized, baseline *forward.Model
	weights                    *forward.Model // with float32 activations, for Job.ActivationShare
	baselineFile               *gqf.File
	tokenizer                  *tokenizer.Tokenizer
}

func (s *scored) close() {
	for _, m := range []*forward.Model{s.float, s.quantized, s.baseline, s.weights} {
		if m != nil {
			m.Close()
		}
	}
	if s.baselineFile != nil {
		s.baselineFile.Close()
	}
}

// any returns a model with the configuration that all share: the float model, unless saved
// predictions replace the float model.
func (s *scored) any() *forward.Model {
	if s.float != nil {
		return s.float
	}
	return s.quantized
}

type cutText struct {
	windows []text.Window
	sizes   []text.Size // by window; nil if there is no tokenizer
}

// add adds the windows of a text, and their sizes to its description.
func (s *scored) add(info *accuracy.TextInfo, windows []text.Window, sizes []text.Size) {
	s.texts = append(s.texts, cutText{windows, sizes})
	info.Windows, info.Tokens, info.Context = len(windows), text.CountScored(windows), s.any().Config().MaxPositions
	for _, z := range sizes {
		info.Bytes, info.Words = info.Bytes+z.Bytes, info.Words+z.Words
	}
}

// open opens the models and the texts, or sets r.NoModel to the reason why the model cannot be run.
func (j *Job) open(ctx context.Context, f *gqf.File, r *accuracy.Report) (*scored, error) {
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

// refused tells a model that cannot be run from a damaged model.
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

// runsFloat reports whether the float model runs: for predictions that are not saved, for
// questions, and for activations of layers; these are random without a model in the checkpoint.
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

func (j *Job) openAll(ctx context.Context, s *scored, f *gqf.File, r *accuracy.Report) (err error) {
	options := forward.Options{Threads: cpu.Threads(j.Threads), Activations: j.Activations}
	if j.runsFloat() {
		if err := j.runnable(); err != nil {
			return err
		}
		if s.float, err = forward.OpenCheckpoint(j.Source, options); err != nil {
			return err
		}
	}
	if s.quantized, err = forward.OpenGQF(f, options); err != nil {
		return fmt.Errorf("%s: %w", r.File, err)
	}
	if j.ActivationShare {
		if err := j.openWeights(s, f, options, r); err != nil {
			return err
		}
	}
	if j.Baseline != "" {
		if s.baselineFile, err = open(j.Baseline, j.BaselineView); err != nil {
			return err
		}
		s.baselineFile.CheckSums()
		if s.baseline, err = forward.OpenGQF(s.baselineFile, options); err != nil {
			return fmt.Errorf("%s: %w", cmp.Or(j.BaselineName, j.Baseline), err)
		}
	}
	if s.tokenizer, err = j.openTokenizer(f); err != nil {
		return err
	}
	if err := j.encode(ctx, s, r); err != nil {
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
			r.Texts = append(r.Texts, accuracy.TextReport{Text: info})
		}
	}
	return nil
}

// CheckNames finds mistakes in the names of texts and of files of questions before any work: two
// equal names, or a name in the gate that no text or file has.
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
	return j.Gate.CheckLabels(labelsOf(texts), labelsOf(choices))
}

func labelsOf(names []string) (labels []string) {
	for _, name := range names {
		labels = append(labels, (&accuracy.TextInfo{Name: name}).Label())
	}
	return labels
}

func (s *scored) cut(ctx context.Context, source *TextSource) (*accuracy.TextInfo, error) {
	o := source.Options
	if o.Window == 0 {
		o.Window = text.WindowOf(s.any().Config())
		if o.Convention == text.LMEval {
			o.Window = text.LMEvalWindowOf(s.any().Config())
		}
	}
	o = o.WithDefaults()
	if s.tokenizer != nil && !source.Tokens {
		if err := s.tokenizer.Fits(s.any().VocabSize()); err != nil {
			return nil, err
		}
	}
	cut, err := text.Cut(ctx, s.tokenizer, s.any().VocabSize(), text.Input{Data: source.Data, IDs: source.Tokens}, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source.Name, err)
	}
	info := &accuracy.TextInfo{
		Name: source.Name, Source: "text", SHA256: hash(source.Data), Convention: cut.Convention, Window: o.Window, Warning: cut.Warning(),
	}
	s.add(info, cut.Windows, cut.Sizes(s.tokenizer))
	if source.Tokens {
		info.Source = "tokens"
	}
	if cut.Convention != text.LlamaCpp && cut.Convention != text.LMEval && o.Stride != o.Window-1 {
		info.Stride = o.Stride
	}
	return info, nil
}

const (
	// WrittenTokens is how many tokens the float model writes for a measurement without a text.
	WrittenTokens = 4096
	// selfSeed is no seed that people calibrate with (1 by default): measure on another text.
	selfSeed = 0x6d656173757265 // "measure"
)

func (j *Job) write(ctx context.Context, s *scored, r *accuracy.Report) error {
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
	r.Text = &accuracy.TextInfo{
		Name: "text that the model wrote", Source: own.Source, Seed: own.Seed, SHA256: own.SHA256, Convention: text.Documents, Window: window,
	}
	s.add(r.Text, cut.Windows, cut.Sizes(s.tokenizer))
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

// checkLabels refuses two texts, or two files of questions, with the same name in gates.
func checkLabels(what string, names []string) error {
	seen := map[string]string{}
	for i, label := range labelsOf(names) {
		name := names[i]
		switch other, ok := seen[label]; {
		case ok && other == name:
			return fmt.Errorf("two %s are called %q: give them different names, as in a=FILE and b=FILE", what, label)
		case ok:
			return fmt.Errorf("two %s are called %q, %s and %s: name them, as in a=%s and b=%s", what, label, other, name, other, name)
		}
		seen[label] = name
	}
	return nil
}
