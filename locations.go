package gq

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/imports"
	"github.com/lowbit-go/gq/internal/job/location"
	"github.com/lowbit-go/gq/internal/job/write"
)

// told tells a package below of the stages.
func (s stages) told() location.Told { return location.Told{Begin: s.begin, Log: s.logf} }

func resolveSource(ctx context.Context, name string, whole bool, s stages) (*location.Source, error) {
	return location.Resolve(ctx, name, whole, s.told())
}

// resolveAll resolves several names, "" to itself: it replaces each name by the path, and returns
// the names for reports. Everything is on this machine until the caller calls release.
func resolveAll(ctx context.Context, s stages, names ...*string) (reported []string, release func(), err error) {
	var sources []*location.Source
	release = func() {
		for _, from := range sources {
			from.Release()
		}
	}
	for _, name := range names {
		from := &location.Source{}
		if *name != "" {
			if from, err = resolveSource(ctx, *name, true, s); err != nil {
				release()
				return nil, nil, err
			}
		}
		sources = append(sources, from)
		reported = append(reported, from.Name)
		*name = from.Path
	}
	return reported, release, nil
}

// newDestination returns the destination of an output of format f. split is the greatest size of a
// shard; 0: none.
func newDestination(name string, f format, split int64) (*location.Destination, error) {
	d, err := location.NewDestination(name, f.isDirectory() || split > 0)
	return d, optionOf(err)
}

// writeTo runs a job whose output of format f is dst. stage names it for progress.
func writeTo(ctx context.Context, p *write.Job, dst string, f format, split int64, s stages, stage string) (*write.Report, error) {
	to, err := newDestination(dst, f, split)
	if err != nil {
		return nil, err
	}
	if err := to.Open(ctx, false); err != nil {
		return nil, err
	}
	defer to.Close()
	add, end := s.begin(stage, "bytes", p.SourceBytes)
	defer end()
	return to.Write(ctx, p, write.Options{Progress: add}, s.told(), end)
}

// optionOf turns an option's error of package location into an *OptionError.
func optionOf(err error) error {
	if e, ok := errors.AsType[*location.OptionError](err); ok {
		return &OptionError{e.Option, e.Err}
	}
	return err
}

func isDirectory(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// collisions refuses outputs that would replace inputs or each other.
func collisions(s *files.Set) error {
	err := s.Check()
	if err == nil {
		err = s.CheckReplaced()
	}
	if e, ok := errors.AsType[*files.CollisionError](err); ok {
		return &OptionError{e.Option, err}
	}
	if e, ok := errors.AsType[*files.StreamError](err); ok {
		return &OptionError{e.Option, err}
	}
	return err
}

// checkEnding refuses the name dst for a file of format f if it has the ending of the other format,
// because commands go by the ending. instead is another way out. Default (""): to write the other
// format.
func checkEnding(dst string, f format, instead string) error {
	ext := filepath.Ext(dst)
	for _, other := range []format{formatGQF, formatGGUF} {
		if other == f || !strings.EqualFold(ext, "."+string(other)) {
			continue
		}
		name := strings.TrimSuffix(dst, ext)
		if !f.isDirectory() {
			name += "." + string(f)
		}
		if instead == "" {
			instead = "leave the target out"
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
	for _, name := range assets.AssetFiles() {
		list = append(list, filepath.Join(dir, name))
	}
	return list
}

// foreignFiles lists the files of the source src that a job reads.
func foreignFiles(src string, f imports.Foreign) []string {
	if f.IsGGUF() {
		return f.Paths()
	}
	return checkpointFiles(src)
}

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
	s.Output("report", "a report", o.Reports...)
}

// checkOrder detects a checkpoint and a .gqf file in the wrong order.
func checkOrder(src, file string) error {
	k, err := files.KindOf(src)
	if err != nil || k != files.GQF && k != files.GGUF {
		return nil
	}
	if _, err := safetensors.Files(file); err != nil {
		return nil
	}
	if other, err := files.KindOf(file); err == nil && other != files.Safetensors {
		return nil // of two files, it is not known which is mistaken
	}
	name := ".gqf"
	if k == files.GGUF {
		name = ".gguf"
	}
	return optionf("", "%s is a %s file and %s a checkpoint: name the checkpoint first, then the %s file", src, name, file, name)
}
