package gq

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/lora"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/logits"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/measure"
	"github.com/lowbit-go/gq/internal/memlimit"
)

// ReferenceOptions are the options of SaveReference.
type ReferenceOptions struct {
	// Text is the text to run the model on. It must be set.
	Text TextFile
	// Windows says how to cut the text; see text.Options for its defaults.
	Windows text.Options
	// Lora names adapters that are merged into the checkpoint, as in quantizer.Recipe. Default: none.
	Lora []string
	// Version is the program's version, for the file. Default (""): none.
	Version string
	// Threads is the number of goroutines. Default (0): GOMAXPROCS. The file does not depend on it.
	Threads int
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress
}

// ReferenceReport describes a file of reference logits.
type ReferenceReport struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	*logits.Header
}

// SaveReference runs the unquantized model of the checkpoint src on a text and saves its
// predictions in file, for MeasureOptions.Reference. The file appears when it is complete.
func SaveReference(ctx context.Context, src, file string, o ReferenceOptions) (*ReferenceReport, error) {
	from, err := resolveSource(ctx, src, true, stages{to: o.Progress})
	if err != nil {
		return nil, err
	}
	defer from.Release()
	src = from.Path
	if err := floatReference(src); err != nil {
		return nil, err
	}
	var set files.Set
	set.Input("the checkpoint", checkpointFiles(src)...)
	set.Input("the text", o.Text.Path)
	for _, name := range o.Lora {
		set.Input("the adapter", lora.Files(name)...)
	}
	set.Output("save-reference", "the reference logits", file)
	if err := collisions(&set); err != nil {
		return nil, err
	}
	if err := o.Windows.Check(); err != nil {
		return nil, &OptionError{Err: err}
	}
	data, err := files.ReadContext(ctx, o.Text.Path, files.MaxText)
	if err != nil {
		return nil, err
	}
	t := &measure.TextSource{Name: cmp.Or(o.Text.Name, o.Text.Path), Data: data, Tokens: o.Text.Tokens, Options: o.Windows}
	var r *ReferenceReport
	err = withAdapters(ctx, src, o.Lora, o.Threads, stages{to: o.Progress}, func(src string, _ *provenance.Provenance) (err error) {
		r, err = writeReference(ctx, src, file, measure.SaveOptions{Text: t, Threads: o.Threads, Version: o.Version}, stages{to: o.Progress})
		return err
	})
	return r, err
}

// writeReference runs the unquantized model of the checkpoint src on a text and writes its
// predictions to file. The stage stands alone unless s has a plan.
func writeReference(ctx context.Context, src, file string, o measure.SaveOptions, s stages) (*ReferenceReport, error) {
	defer memlimit.Lift()()
	o.Stage = s.begin
	r := &ReferenceReport{File: file}
	err := writeReport(ctx, file, func(w *io.OffsetWriter) (err error) {
		b := bufio.NewWriterSize(w, 1<<20)
		if r.Header, err = measure.SaveLogits(ctx, b, src, o); err != nil {
			return err
		}
		if err := b.Flush(); err != nil {
			return err
		}
		r.Bytes, err = w.Seek(0, io.SeekCurrent)
		return err
	})
	return r, err
}

func openReference(name string) (*os.File, *measure.Saved, error) {
	f, info, err := files.Open(name)
	if err != nil {
		return nil, nil, err
	}
	saved, err := logits.Read(f, info.Size())
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, &measure.Saved{Name: name, File: saved}, nil
}

// references is a directory that keeps a float model's predictions by content. The name of a file
// of reference logits is the hash of the checkpoint, the text and the way that the text is cut.
type references struct {
	dir, src string // src is the checkpoint
	version  string // the program's
	threads  int

	model any // what identifies the checkpoint; nil: not read yet
}

// references returns the directory that o.Reference names; nil if it names a file or nothing.
func (o *MeasureOptions) references(src string, j *measure.Job) (*references, error) {
	if o.Reference == "" {
		return nil, nil
	}
	if fi, err := os.Stat(o.Reference); err != nil || !fi.IsDir() {
		return nil, nil // opening it as a file gives the error
	}
	switch {
	case src == "":
		return nil, optionf("reference", "%s is a directory, which keeps predictions by checkpoint and text: name the checkpoint too, or a file in the directory", o.Reference)
	case len(j.Texts) == 0:
		return nil, optionf("reference", "%s is a directory: name the text too, whose predictions it keeps", o.Reference)
	}
	return &references{dir: o.Reference, src: src, version: o.Version, threads: o.Threads}, nil
}

// openFor opens the predictions of the job's texts once the files to measure are known to open.
func (r *references) openFor(ctx context.Context, j *measure.Job, s stages) (done func(), err error) {
	for _, file := range []string{j.File, j.Baseline} {
		if file == "" {
			continue
		}
		f, err := gqf.Open(file, gqf.Options{})
		if err != nil {
			return nil, err
		}
		f.Close()
	}
	return r.open(ctx, j.Texts, s)
}

// path is the file that has, or will have, the predictions of a text.
func (r *references) path(ctx context.Context, t *measure.TextSource) (string, error) {
	if r.model == nil {
		var err error
		if r.model, err = modelContent(ctx, r.src); err != nil {
			return "", err
		}
	}
	key, err := workdir.Key("reference", logits.Version, r.model, sha256.Sum256(t.Data), t.Tokens, t.Options)
	return filepath.Join(r.dir, key[:32]+".logits"), err
}

// modelContent identifies a checkpoint by the checksums of its tensors and the hashes of its other
// files.
func modelContent(ctx context.Context, src string) (any, error) {
	ck, err := safetensors.Open(src, safetensors.Options{})
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	sums, err := measure.SumTensors(ctx, ck)
	if err != nil {
		return nil, err
	}
	config, err := assets.ReadConfig(ck)
	if err != nil {
		return nil, err
	}
	assets, err := assetHashes(ck.Dir())
	return []any{sums, sha256.Sum256(config), assets}, err
}

// open opens the predictions of the texts, and makes those that are missing or damaged. done closes
// the files.
func (r *references) open(ctx context.Context, texts []*measure.TextSource, s stages) (done func(), err error) {
	var opened []*os.File
	done = func() {
		for _, f := range opened {
			f.Close()
		}
	}
	for _, t := range texts {
		f, err := r.get(ctx, t, s)
		if err != nil {
			done()
			return nil, err
		}
		opened = append(opened, f)
	}
	return done, nil
}

func (r *references) get(ctx context.Context, t *measure.TextSource, s stages) (*os.File, error) {
	path, err := r.path(ctx, t)
	if err != nil {
		return nil, err
	}
	f, saved, err := openReference(path)
	if _, damaged := errors.AsType[*logits.FormatError](err); damaged || errors.Is(err, os.ErrNotExist) {
		s.logf("the float model runs on %s; %s keeps its predictions", t.Name, path)
		if _, err := writeReference(ctx, r.src, path, measure.SaveOptions{Text: t, Threads: r.threads, Version: r.version}, s); err != nil {
			return nil, err
		}
		f, saved, err = openReference(path)
	}
	if err != nil {
		return nil, fmt.Errorf("reference logits: %w", err)
	}
	t.Saved = saved
	return f, nil
}
