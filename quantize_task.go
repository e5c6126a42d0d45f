package gq

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/quantizer"
)

func (t *task) complete(dst string) (err error) {
	o := &t.o
	if dst == "" {
		return optionf("output", "is empty: name a file, or a directory for a checkpoint")
	}
	o.Recipe = o.Recipe.WithQuality()
	if err := o.resolveFormat(dst); err != nil {
		return err
	}
	if o.format.isDirectory() && !remote.IsRemote(dst) {
		dst = filepath.Clean(dst) // the names of other files begin with it
	}
	t.to, err = newDestination(dst, o.format, o.Split)
	return err
}

// check finds invalid options, whatever the source is.
func (t *task) check(ctx context.Context) (err error) {
	o := &t.o
	// The plan makes its own set of rules; this one finds contradictions before any work.
	if _, err := quantizer.NewRuleSet(o.Recipe, o.Rules); err != nil {
		return &OptionError{Err: err}
	}
	if o.SaveRecipe != "" {
		if _, err := o.Recipe.YAML("", o.Rules); err != nil {
			return optionf("save-recipe", "%s: %w", o.SaveRecipe, err)
		}
	}
	if err := t.checkPart(); err != nil {
		return err
	}
	if m := o.Measure; m != nil {
		if t.measured, err = m.job(ctx); err != nil {
			return err
		}
		t.measured.Name, t.measured.Parity = t.to.Name, true
	}
	if b := o.Budget; b != nil && len(b.Groups) > 0 && o.Recipe.ForGGUF() {
		return optionf("group", "beside a target of bytes or divergence: the types of GGUF files, which are chosen, have groups of their own")
	}
	return o.Budget.check()
}

// checkOutput checks that there is room for the output of a plan. check: it is read before it
// appears.
func (t *task) checkOutput(p *write.Job, check bool) error {
	if !t.writes() {
		return nil
	}
	return t.to.CheckOutput(p, check)
}

// rereads says why the job reads the weights more than once; "" if the options do not tell. Such a
// job keeps remote weights in a cache.
func (t *task) rereads() string {
	r := t.o.Recipe
	algorithms := []gqf.Algorithm{r.Algorithm}
	for _, rule := range slices.Concat(t.o.Rules, r.Rules) {
		algorithms = append(algorithms, rule.Algorithm)
	}
	switch {
	case t.o.Budget != nil:
		return "it chooses bits"
	case r.Fold != (quantizer.Fold{}):
		return "it folds the checkpoint"
	case r.Tunes() || r.Quality == quantizer.QualityMax:
		return "it tunes the model"
	case t.part != nil && r.HashFiles:
		return "it hashes the files"
	case !t.writes(): // the rest is for the writing
		return ""
	case slices.ContainsFunc(algorithms, gqf.Algorithm.Calibrated):
		return "it calibrates"
	case t.o.Measure != nil:
		return "it measures the file"
	case t.o.format != formatGQF:
		return "it compares the new file with them"
	case r.HashFiles:
		return "it hashes the files"
	}
	return ""
}

func (t *task) checkPaths(in *input) error {
	if err := t.checkPartSource(in); err != nil {
		return err
	}
	var s files.Set
	o := &t.o
	if f := in.foreign; f != nil {
		list := foreignFiles(in.Path, f)
		s.Input(f.Noun(), append(list, in.RemoteNames(list)...)...)
		s.OutputTree("output", "the imported checkpoint", t.workPath(importSuffix))
	} else {
		list := checkpointFiles(in.Path)
		s.Input("the checkpoint", append(list, in.RemoteNames(list)...)...)
	}
	s.Input("the recipe", o.RecipeFile)
	s.Input("the calibration text", named(o.Recipe.Calibrate))
	s.Input("the text to tune on", named(o.Recipe.TuneText))
	s.Input("the importance matrix", o.Recipe.Imatrix...)
	if o.format.isDirectory() {
		s.OutputTree("output", "the checkpoint of format "+string(o.format), t.to.Path)
	} else {
		s.Output("output", "the ."+string(o.format)+" file", t.to.Name)
	}
	if o.format == formatGGUF && o.Split > 0 {
		s.OutputShards("output", "a shard of the .gguf file", func(name string) string { return gguf.ShardLike(t.to.Path, name) })
	}
	s.OutputTree("output", "the working directory", t.workPath(calibSuffix))
	s.OutputTree("output", "the folded checkpoint", t.workPath(foldSuffix))
	s.Output("save-recipe", "the saved recipe", o.SaveRecipe)
	s.Output("imatrix-out", "the importance matrix", o.ImatrixOut)
	s.Output("calibrate-out", "the calibration text", o.CalibrateOut)
	if o.Measure != nil {
		o.Measure.addPaths(&s)
	}
	return collisions(&s)
}
