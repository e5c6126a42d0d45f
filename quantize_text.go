package gq

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/quantizer"
)

// Entries of the working directory: a finished and an unfinished text for calibration, to measure
// on, and to tune on.
const (
	textName, draftName    = "text", "draft"
	heldOutName, heldDraft = "held-out-text", "held-out-draft"
	tuneText, tuneDraft    = "tune-text", "tune-draft"
)

// selfText describes a text that the model of a checkpoint writes.
type selfText struct {
	tokens      int
	own         int // of a file, at the beginning of the text; the model writes the rest
	wanted      int // of a file: far fewer are a warning. Default (0): tokens
	seed        uint64
	stage       string
	name, draft string // entries of the working directory
	option      string // that names a file of text instead
	// with is another text that the job will need. The model writes it in the same passes.
	with *selfText
}

// calibrationText describes the text for calibration or for the choice of bits.
func (j *job) calibrationText(tokens int) selfText {
	own := j.calibration.own
	s := selfText{tokens: tokens - own, own: own, seed: j.seed(), stage: stageText, name: textName, draft: draftName, option: "calibrate"}
	if !j.calibration.onText {
		s.wanted = min(tokens, j.choiceTokens())
	}
	measured := (j.calibration.onText || j.measuredFiles(evaluations) > 0) && own < heldOutShare*heldOutLeast
	if j.shared == nil && measured && tokens == j.seenTokens() {
		held := j.heldOutText()
		s.with = &held
	}
	return s
}

// text returns the text for calibration or for the choice of bits: the recipe's, or text that the
// model of a plan's checkpoint writes.
func (r *run) text(j *job, p *fromcheckpoint.Plan, tokens int) (*text.Text, error) {
	tok, t, err := r.textOf(j, p, j.o.Recipe.Calibrate, j.calibrationText(tokens))
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	if r.shown {
		return t, nil
	}
	r.shown = true
	return t, r.showText(j.o.CalibrateOut, p, tok, t)
}

// textOf reads the named text, or lets the model of a plan's checkpoint write a text or the rest of
// a text.
func (r *run) textOf(j *job, p *fromcheckpoint.Plan, name string, self selfText) (*tokenizer.Tokenizer, *text.Text, error) {
	tok, err := tokenizer.Open(p.SourceDir())
	if err != nil {
		return nil, nil, err
	}
	if named(name) == "" {
		t, err := r.selfText(j, p, tok, self)
		return tok, t, err
	}
	if self.own > 0 {
		return r.completedText(j, p, tok, name, self)
	}
	t, err := r.fileText(p, tok, name, self.tokens)
	if wanted := cmp.Or(self.wanted, self.tokens); err == nil && t.Tokens() < wanted/8 {
		r.warn("%s has %d tokens, %d were asked for: on so few the result may be worse than without a text", name, t.Tokens(), wanted)
	}
	return tok, t, err
}

// fileText reads a text in sequences for the model of a plan's checkpoint.
func (r *run) fileText(p *fromcheckpoint.Plan, tok *tokenizer.Tokenizer, name string, tokens int) (*text.Text, error) {
	window, err := windowOf(p)
	if err != nil {
		return nil, err
	}
	data, err := files.ReadContext(r.ctx, name, files.MaxText)
	if err != nil {
		return nil, err
	}
	t, err := text.Read(r.ctx, tok, data, tokens, window)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

// ownTokens returns how many tokens of the recipe's file best and max calibrate on if the model
// writes the rest of the text, because the file is too short. The end of the file is held out: an
// eighth as many tokens. 0: the model writes no rest.
func (r *run) ownTokens(j *job) (int, error) {
	k, q, name := j.calibration, j.o.Recipe.Quality, named(j.o.Recipe.Calibrate)
	if name == "" || !k.needed() || q != quantizer.QualityBest && q != quantizer.QualityMax {
		return 0, nil
	}
	p := j.source.plan
	tok, err := tokenizer.Open(p.SourceDir())
	if err != nil {
		return 0, err
	}
	t, err := r.fileText(p, tok, name, k.tokens)
	if err != nil {
		return 0, fmt.Errorf("calibration: %w", err)
	}
	if t.Tokens() >= k.tokens {
		return 0, nil
	}
	own := max(1, t.Tokens()*heldOutShare/(heldOutShare+1))
	r.logf("calibrates on %d tokens of %s and %d tokens that the model writes", own, name, k.tokens-own)
	return own, nil
}

// completedText returns the beginning of a file, and text that the model writes.
func (r *run) completedText(j *job, p *fromcheckpoint.Plan, tok *tokenizer.Tokenizer, name string, self selfText) (*tokenizer.Tokenizer, *text.Text, error) {
	t, err := r.fileText(p, tok, name, self.own)
	if err != nil {
		return nil, nil, err
	}
	rest, err := r.selfText(j, p, tok, self)
	if err != nil {
		return nil, nil, err
	}
	return tok, t.And(rest), nil
}

// windowOf is the length of a calibration sequence.
func windowOf(p *fromcheckpoint.Plan) (int, error) {
	m, err := forward.OpenCheckpoint(p.SourceDir(), forward.Options{Threads: 1})
	if err != nil {
		return 0, err
	}
	defer m.Close()
	return text.WindowOf(m.Config()), nil
}

// showText writes the text to the named file, "" for none, and examines whether the file gives the
// same tokens.
func (r *run) showText(name string, p *fromcheckpoint.Plan, tok *tokenizer.Tokenizer, t *text.Text) error {
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
	switch again, err := text.Read(r.ctx, tok, data, t.Tokens(), window); {
	case r.ctx.Err() != nil:
		return r.ctx.Err()
	case err == nil && again.Equal(t):
		r.logf("%s: calibrate %s with %d tokens reads these tokens again", name, name, t.Tokens())
	case ids:
		r.warn("%s: calibrate reads other sequences from it: the tokenizer has no token that separates and begins them", name)
	default:
		r.warn("%s: calibrate reads other tokens from it, because the tokenizer cuts the text in another way: a name that ends in .ids gives a file of the tokens", name)
	}
	return nil
}

// selfText returns the text that the model of a plan's checkpoint writes. Writing is slow, so the
// run keeps the text. The next job finishes the text of an interrupted job.
func (r *run) selfText(j *job, p *fromcheckpoint.Plan, tok *tokenizer.Tokenizer, s selfText) (*text.Text, error) {
	var missing []unwritten
	for next := &s; next != nil; next = next.with {
		u, t, err := r.writtenText(j, p, tok, *next)
		switch {
		case err != nil:
			return nil, err
		case t == nil:
			missing = append(missing, u)
		case len(missing) == 0:
			return t, nil
		}
	}
	texts, err := r.writeTexts(j, p, missing)
	if err != nil {
		return nil, err
	}
	return texts[0], nil
}

// unwritten is a text to write, with its key in the working directory.
type unwritten struct {
	selfText
	key string
	o   text.WriteOptions
}

// writtenText returns a text that this job or an interrupted job wrote. If there is none, t is nil
// and u says how to write the text.
func (r *run) writtenText(j *job, p *fromcheckpoint.Plan, tok *tokenizer.Tokenizer, s selfText) (u unwritten, t *text.Text, err error) {
	start, ends := text.Start(tok)
	// 2: the version of the algorithm that writes text.
	key, err := workdir.Key("text", 2, s.tokens, s.seed, start, ends, p.SourceStamps())
	if err != nil {
		return u, nil, err
	}
	if t := r.texts[key]; t != nil {
		return u, t, nil
	}
	u = unwritten{s, key, text.WriteOptions{Start: start, Ends: ends, Tokens: s.tokens, Seed: s.seed}}
	if j.shared != nil { // jobs of other recipes have texts of other lengths
		u.name, u.draft = s.name+"-"+key[:16], s.draft+"-"+key[:16]
	}
	if !r.work.GetJSON(u.name, key, &t) || t == nil || len(t.Sequences) == 0 {
		return u, nil, nil
	}
	what := "the text that the model wrote"
	if s.name == heldOutName {
		what = "the held-out text that the model wrote"
	}
	r.resumed(r.work, "%s", what)
	r.remember(j, key, t, s)
	return u, t, nil
}

// remember keeps a text for the job, and warns of a text in which the model repeats itself, once
// for each option.
func (r *run) remember(j *job, key string, t *text.Text, s selfText) {
	r.texts[key] = t
	fault := text.ContentOf(text.WindowsOf(t.Sequences)).Fault()
	if fault == "" || r.degenerate[s.option] {
		return
	}
	r.degenerate[s.option] = true
	do := fmt.Sprintf("use --%s FILE with real text", s.option)
	switch name := j.o.Recipe.Calibrate; {
	case s.name == heldOutName && name != quantizer.Self: // the rest of the file was too short
		do = fmt.Sprintf("use a text longer than %s, so that its end is held out instead", name)
	case s.own > 0:
		do = fmt.Sprintf("use a text of %d tokens, so that the model writes none of it", j.calibration.tokens)
	case s.name == textName && j.o.CalibrateOut == "":
		do += ", and --calibrate-out FILE to see what the model wrote"
	}
	r.warn("the model repeats itself in the text that it wrote: %s; %s", fault, do)
}

// Checkpoints up to packedWriter are repacked in memory to write texts. SmolLM2-135M in float32
// takes 4.6 instead of 9.2 ms of CPU time for a token of 16 sequences, on an AMD EPYC.
const packedWriter = 1 << 30

// writeTexts lets the model write texts, or finish the texts of an interrupted job. The stage is
// the first text's.
func (r *run) writeTexts(j *job, p *fromcheckpoint.Plan, list []unwritten) ([]*text.Text, error) {
	m, err := forward.OpenCheckpoint(p.SourceDir(), forward.Options{Threads: j.o.Threads, Packed: p.SourceBytes <= packedWriter})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	total := 0
	var options []text.WriteOptions
	for _, u := range list {
		total += u.tokens
		u.o.Window = text.WindowOf(m.Config())
		if r.work.GetJSON(u.draft, u.key, &u.o.Draft) && u.o.Draft != nil {
			r.resumed(r.work, "%d of %d tokens of text", u.o.Draft.Size(), u.tokens)
		}
		u.o.Keep = func(d *text.Draft) error { return r.work.PutJSON(u.draft, u.key, d) }
		options = append(options, u.o)
	}
	add, end := r.begin(list[0].stage, "tokens", int64(total))
	defer end()
	for i := range options {
		options[i].Progress = func(n int) { add(int64(n)) }
	}
	texts, err := text.WriteAll(r.ctx, m, options)
	if err != nil {
		return nil, err
	}
	for i, u := range list {
		if err := r.work.PutJSON(u.name, u.key, texts[i]); err != nil {
			return nil, err
		}
		if err := r.work.Delete(u.draft); err != nil {
			return nil, err
		}
		r.remember(j, u.key, texts[i], u.selfText)
	}
	return texts, nil
}

// heldOutText describes the held-out text if the model writes it.
func (j *job) heldOutText() selfText {
	return selfText{
		tokens: j.heldOutTokens(), seed: ^j.seed(), stage: stageHeldText, name: heldOutName, draft: heldDraft, option: "calibrate",
	}
}
