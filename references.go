package gq

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/logits"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// references is a directory that keeps a float model's predictions by content. The name of a file of
// reference logits is the hash of the checkpoint, the text and the way that the text is cut.
type references struct {
	dir, src string // src is the checkpoint
	version  string // the program's
	threads  int

	model any // what identifies the checkpoint; nil: not read yet
}

// references returns the directory that o.Reference names; nil if it names a file or nothing.
func (o *MeasureOptions) references(src string, j *accuracy.Job) (*references, error) {
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
func (r *references) openFor(ctx context.Context, j *accuracy.Job, s stages) (done func(), err error) {
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
func (r *references) path(ctx context.Context, t *accuracy.TextSource) (string, error) {
	if r.model == nil {
		var err error
		if r.model, err = modelContent(ctx, r.src); err != nil {
			return "", err
		}
	}
	key, err := workdir.Key("reference", logits.Version, r.model, sha256.Sum256(t.Data), t.Tokens, t.Options)
	return filepath.Join(r.dir, key[:32]+".logits"), err
}

// modelContent identifies a checkpoint by the checksums of its tensors and the hashes of the files
// beside them.
func modelContent(ctx context.Context, src string) (any, error) {
	ck, err := safetensors.Open(src, safetensors.Options{})
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	sums, err := accuracy.SumTensors(ctx, ck)
	if err != nil {
		return nil, err
	}
	config, err := conversion.ReadConfig(ck)
	if err != nil {
		return nil, err
	}
	assets, err := assetHashes(ck.Dir())
	return []any{sums, sha256.Sum256(config), assets}, err
}

// open opens the predictions of the texts, which it makes if the directory has none. A damaged file
// is made again. done closes the files.
func (r *references) open(ctx context.Context, texts []*accuracy.TextSource, s stages) (done func(), err error) {
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

func (r *references) get(ctx context.Context, t *accuracy.TextSource, s stages) (*os.File, error) {
	path, err := r.path(ctx, t)
	if err != nil {
		return nil, err
	}
	f, saved, err := openReference(path)
	if _, damaged := errors.AsType[*logits.FormatError](err); damaged || errors.Is(err, os.ErrNotExist) {
		s.logf("the float model runs on %s; %s keeps its predictions", t.Name, path)
		if _, err := writeReference(ctx, r.src, path, accuracy.SaveOptions{Text: t, Threads: r.threads, Version: r.version}, s); err != nil {
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
