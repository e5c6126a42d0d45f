package gq

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/model/tokenizer"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// openWork opens the working directories, from which an interrupted job resumes, and locks them for
// the whole job. Plan only needs places for imported and folded checkpoints, and leaves the
// directories of Quantize alone.
func (j *quantizeJob) openWork() (err error) {
	calibDir, foldDir := j.workPaths()
	if !j.dry && j.o.part == nil {
		if err := j.to.checkOutput(j.plan, j.checked()); err != nil {
			return err
		}
	}
	if d := j.o.shared; d != nil {
		if j.work = d; j.folding != nil {
			j.folding.work = d
		}
		return nil
	}
	if !j.dry && (j.calibration != nil || j.tuning != nil || j.o.Budget != nil) {
		if j.work, err = workdir.Open(calibDir); err != nil {
			return err
		}
	}
	if j.folding != nil {
		j.folding.work, err = workdir.Open(foldDir)
	}
	return err
}

// calibSuffix ends the name of the working directory of calibration and the choice of bits.
const calibSuffix = ".calib"

// workPaths are where the working directories are, if the job has them.
func (j *quantizeJob) workPaths() (calib, fold string) {
	base := j.dst
	if j.dry {
		base += ".plan"
	}
	return base + calibSuffix, base + ".fold"
}

// cleanUp ends the job, whose error is err. It removes the working directories if no work is left:
// the file is written, or does not meet its gate. Otherwise it keeps finished work for the next
// job, and says where.
func (j *quantizeJob) cleanUp(err error) error {
	dirs := []*workdir.Dir{j.work, j.imported}
	if f := j.folding; f != nil {
		dirs = append(dirs, f.work)
		if f.folded != nil {
			err = join(err, f.folded.Close())
		}
	}
	_, unmet := errors.AsType[*GateNotMetError](err)
	done := err == nil || unmet || j.dry
	var left []string
	for _, d := range dirs {
		switch {
		case d == nil || d == j.o.shared:
		case done || d == j.imported && wrongOptions(err):
			err = join(err, d.Remove())
		default:
			size := d.Size()
			kept, e := d.Close()
			if err = join(err, e); kept {
				left = append(left, fmt.Sprintf("%s (%.1f MB)", d.Path(), float64(size)/1e6))
			}
		}
	}
	if len(left) == 0 {
		return err
	}
	hint := fmt.Sprintf("what is finished is in %s: the same command goes on from there, or one with another target", strings.Join(left, " and "))
	return &ResumeError{err, []string{hint}}
}

// wrongOptions reports whether a job failed because of what was asked for, so that the same command
// cannot go on.
func wrongOptions(err error) bool {
	_, option := errors.AsType[*OptionError](err)
	_, request := errors.AsType[*quantizer.RequestError](err)
	return option || request
}

func join(err, second error) error {
	if err != nil {
		return err
	}
	return second
}

// resumed logs that an earlier job did a part of this one.
func (j *quantizeJob) resumed(d *workdir.Dir, what string) {
	j.logf("resumed: found %s in %s", what, d.Path())
}

// selfText describes a text that the model of a checkpoint writes.
type selfText struct {
	tokens      int
	seed        uint64
	stage       string
	name, draft string // entries of the working directory
	option      string // that names a file of text instead
	// with is another text that the job will need. The model writes it in the same passes.
	with *selfText
}

// calibrationText describes the text for calibration or for the choice of bits.
func (j *quantizeJob) calibrationText(tokens int) selfText {
	s := selfText{tokens: tokens, seed: j.seed(), stage: stageText, name: textName, draft: draftName, option: "calibrate"}
	if k := j.calibration; j.textCalibrated() && tokens == k.tokens() {
		held := k.heldOutText()
		s.with = &held
	}
	return s
}

// selfText returns the text that the model of a plan's checkpoint writes. Writing is slow, so the
// text is kept for the job's other uses of it. The next job finishes a text that an interrupted one began.
func (j *quantizeJob) selfText(p *conversion.Plan, tok *tokenizer.Tokenizer, s selfText) (*text.Text, error) {
	var missing []unwritten
	for one := &s; one != nil; one = one.with {
		u, t, err := j.writtenText(p, tok, *one)
		switch {
		case err != nil:
			return nil, err
		case t == nil:
			missing = append(missing, u)
		case len(missing) == 0:
			return t, nil
		}
	}
	texts, err := j.writeTexts(p, missing)
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

// writtenText returns a text that this job or an interrupted one wrote. If there is none, t is nil and u
// says how to write it.
func (j *quantizeJob) writtenText(p *conversion.Plan, tok *tokenizer.Tokenizer, s selfText) (u unwritten, t *text.Text, err error) {
	start, ends := text.Start(tok)
	// 2: the version of the algorithm that writes text.
	key, err := workdir.Key("text", 2, s.tokens, s.seed, start, ends, p.SourceStamps())
	if err != nil {
		return u, nil, err
	}
	if t := j.texts[key]; t != nil {
		return u, t, nil
	}
	u = unwritten{s, key, text.WriteOptions{Start: start, Ends: ends, Tokens: s.tokens, Seed: s.seed}}
	if j.o.shared != nil { // jobs of other recipes have texts of other lengths
		u.name, u.draft = s.name+"-"+key[:16], s.draft+"-"+key[:16]
	}
	if j.work != nil && j.work.GetJSON(u.name, key, &t) && t != nil && len(t.Sequences) > 0 {
		what := "the text that the model wrote"
		if s.name == heldOutName {
			what = "the held-out text that the model wrote"
		}
		j.resumed(j.work, what)
		j.remember(key, t, s)
		return u, t, nil
	}
	return u, nil, nil
}

// remember keeps a text for the job.
func (j *quantizeJob) remember(key string, t *text.Text, s selfText) {
	if j.texts == nil {
		j.texts = map[string]*text.Text{}
	}
	j.texts[key] = t
	j.warnDegenerate(t, s)
}

// warnDegenerate warns, once for each option, of a text in which the model repeats itself.
func (j *quantizeJob) warnDegenerate(t *text.Text, s selfText) {
	share := t.Distinct()
	if share >= text.LeastDistinct || j.degenerate[s.option] {
		return
	}
	if j.degenerate == nil {
		j.degenerate = map[string]bool{}
	}
	j.degenerate[s.option] = true
	do := fmt.Sprintf("use --%s FILE with real text", s.option)
	switch name := j.o.Recipe.Calibrate; {
	case s.name == heldOutName && name != quantizer.Self: // the rest of the file was too short
		do = fmt.Sprintf("use a text longer than %s, so that its end is held out instead", name)
	case s.name == textName && j.o.CalibrateOut == "":
		do += ", and --calibrate-out FILE to see what the model wrote"
	}
	j.warnings = append(j.warnings, fmt.Sprintf("the model repeats itself in the text that it wrote: %.3f of the 4-grams of tokens are distinct, "+
		"and at least %g is expected; %s", share, text.LeastDistinct, do))
}

// writeTexts lets the model write texts, or finish the texts of an interrupted job. The stage is the
// first text's.
func (j *quantizeJob) writeTexts(p *conversion.Plan, list []unwritten) ([]*text.Text, error) {
	m, err := model.OpenCheckpoint(p.SourceDir(), model.Options{Threads: j.o.Threads})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	total := 0
	var options []text.WriteOptions
	for _, u := range list {
		total += u.tokens
		u.o.Window = text.WindowOf(m.Config())
		if j.work != nil {
			if j.work.GetJSON(u.draft, u.key, &u.o.Draft) && u.o.Draft != nil {
				j.resumed(j.work, fmt.Sprintf("%d of %d tokens of text", u.o.Draft.Size(), u.tokens))
			}
			u.o.Keep = func(d *text.Draft) error { return j.work.PutJSON(u.draft, u.key, d) }
		}
		options = append(options, u.o)
	}
	add, end := j.begin(list[0].stage, "tokens", int64(total))
	defer end()
	for i := range options {
		options[i].Progress = func(n int) { add(int64(n)) }
	}
	texts, err := text.WriteAll(j.ctx, m, options)
	if err != nil {
		return nil, err
	}
	for i, u := range list {
		if j.work != nil {
			if err := j.work.PutJSON(u.name, u.key, texts[i]); err != nil {
				return nil, err
			}
			if err := j.work.Delete(u.draft); err != nil {
				return nil, err
			}
		}
		j.remember(u.key, texts[i], u.selfText)
	}
	return texts, nil
}

// Entries of a finished and of an unfinished text.
const (
	textName  = "text"
	draftName = "draft"
)
