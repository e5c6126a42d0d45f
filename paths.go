package gq

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// collisions refuses a job whose outputs would replace its inputs or each other.
func collisions(s *files.Set) error {
	err := s.Check()
	if e, ok := errors.AsType[*files.CollisionError](err); ok {
		return &OptionError{e.Option, err}
	}
	if e, ok := errors.AsType[*files.StreamError](err); ok {
		return &OptionError{e.Option, err}
	}
	return err
}

// checkEnding refuses the name dst for a file of format f if it has the ending of the other format,
// because commands go by the ending. instead is another way out. Default (""): to write the other format.
func checkEnding(dst string, f Format, instead string) error {
	ext := filepath.Ext(dst)
	for _, other := range []Format{FormatGQF, FormatGGUF} {
		if other == f || !strings.EqualFold(ext, "."+string(other)) {
			continue
		}
		name := strings.TrimSuffix(dst, ext)
		if !f.IsDirectory() {
			name += "." + string(f)
		}
		if instead == "" {
			instead = "choose format " + string(other)
		}
		return optionf("output", "%s: the job writes %s, and commands take a file of this name for a .%s file: name it %s, or %s",
			dst, f.noun(), other, name, instead)
	}
	return nil
}

// checkpointFiles lists the files of the checkpoint src that a job reads, and optional files that
// are missing: an output of that name would change the checkpoint.
func checkpointFiles(src string) []string {
	dir, list := src, []string{src}
	if st, err := os.Stat(src); err == nil && !st.IsDir() {
		dir = filepath.Dir(src)
	}
	// Opening the checkpoint reports the error.
	if weights, err := safetensors.Files(src); err == nil {
		list = append(list, weights...)
	}
	list = append(list, filepath.Join(dir, "config.json"))
	for _, name := range conversion.AssetFiles() {
		list = append(list, filepath.Join(dir, name))
	}
	return list
}

// remoteNames returns the names in the store of a remote source of files that the source has on this
// machine, and of its weights: outputs may go to the same store.
func (s *source) remoteNames(local []string) (names []string) {
	if !s.isRemote() {
		return nil
	}
	dir := strings.TrimRight(s.Name, "/")
	if st, err := os.Stat(s.Path); err == nil && !st.IsDir() {
		dir = dir[:strings.LastIndexByte(dir, '/')]
	}
	for _, file := range local {
		names = append(names, dir+"/"+filepath.Base(file))
	}
	for _, o := range s.Weights {
		names = append(names, dir+"/"+path.Base(o.Name))
	}
	return names
}

// foreignFiles lists the files of the source src that a job reads.
func foreignFiles(src string, f *conversion.Foreign) []string {
	if f.IsGGUF() {
		return f.Paths()
	}
	return checkpointFiles(src)
}

// checkPaths checks the outputs of the job against its inputs.
func (j *quantizeJob) checkPaths() error {
	var s files.Set
	if f := j.foreign; f != nil {
		list := foreignFiles(j.src, f)
		s.Input(f.Noun(), append(list, j.from.remoteNames(list)...)...)
		s.OutputTree("output", "the imported checkpoint", j.importDir())
	} else {
		list := checkpointFiles(j.src)
		s.Input("the checkpoint", append(list, j.from.remoteNames(list)...)...)
	}
	s.Input("the recipe", j.o.RecipeFile)
	s.Input("the file to copy tensors from", j.o.Reuse)
	if j.reuseName != j.o.Reuse {
		s.Input("the file to copy tensors from", j.reuseName)
	}
	if c := j.o.Recipe.Calibrate; c != quantizer.Self {
		s.Input("the calibration text", c)
	}
	if t := j.o.Recipe.TuneText; t != quantizer.Self {
		s.Input("the text to tune on", t)
	}
	s.Input("the importance matrix", j.o.Recipe.Imatrix...)
	if j.o.Format.IsDirectory() {
		s.OutputTree("output", "the checkpoint of format "+string(j.o.Format), j.dst)
	} else {
		s.Output("output", "the ."+string(j.o.Format)+" file", j.to.Name)
	}
	if j.o.Format == FormatGGUF && j.o.Split > 0 {
		s.OutputShards("output", "a shard of the .gguf file", func(name string) string { return gguf.ShardLike(j.dst, name) })
	}
	calibDir, foldDir := j.workPaths()
	s.OutputTree("output", "the working directory", calibDir)
	s.OutputTree("output", "the folded checkpoint", foldDir)
	s.Output("save-recipe", "the saved recipe", j.o.SaveRecipe)
	s.Output("imatrix-out", "the importance matrix", j.o.ImatrixOut)
	s.Output("calibrate-out", "the calibration text", j.o.CalibrateOut)
	if j.o.Measure != nil {
		j.o.Measure.addPaths(&s)
	}
	return collisions(&s)
}

// addPaths adds the files that the options name.
func (o *MeasureOptions) addPaths(s *files.Set) {
	for _, t := range o.Texts {
		what := "the text"
		if t.Tokens {
			what = "the token ids"
		}
		s.Input(what, t.Path)
	}
	for _, c := range o.Choices {
		s.Input("the questions", c.Path)
	}
	if o.Gate != accuracy.DefaultGateName {
		s.Input("the gate", o.Gate)
	}
	s.Input("the earlier report", o.Against)
	s.Input("the baseline", o.Baseline)
	s.Input("the reference logits", o.Reference)
	if o.Remote != nil {
		s.Input("the other build", o.Remote.Binary)
	}
	s.Output("report", "a report", o.Reports...)
}

// checkOrder detects a checkpoint and a .gqf file in the wrong order.
func checkOrder(src, file string) error {
	k, err := files.KindOf(src)
	if err != nil || k != files.GQF && k != files.GGUF {
		return nil
	}
	if other, err := files.KindOf(file); err == nil && (other == files.GQF || other == files.GGUF) {
		return nil // which of them is mistaken is not known
	}
	if _, err := safetensors.Files(file); err != nil {
		return nil
	}
	if other, err := files.KindOf(file); err == nil && other != files.Safetensors {
		return nil // a file of another kind
	}
	name := ".gqf"
	if k == files.GGUF {
		name = ".gguf"
	}
	return optionf("", "%s is a %s file and %s a checkpoint: name the checkpoint first, then the %s file", src, name, file, name)
}
