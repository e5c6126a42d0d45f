package gq

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/logits"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/model/text"
)

// ReferenceOptions are the options of SaveReference.
type ReferenceOptions struct {
	// Text is the text to run the model on. It must be set.
	Text TextFile
	// Windows says how to cut the text; see text.Options for its defaults.
	Windows text.Options
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

// SaveReference runs the unquantized model of the checkpoint src on a text and saves its predictions
// in file, for MeasureOptions.Reference. The file appears when it is complete.
func SaveReference(ctx context.Context, src, file string, o ReferenceOptions) (*ReferenceReport, error) {
	if o.Threads < 0 {
		return nil, optionf("threads", "%d: at least 1", o.Threads)
	}
	from, err := resolveSource(ctx, src, true, stages{to: o.Progress})
	if err != nil {
		return nil, err
	}
	defer from.release()
	src = from.Path
	if err := floatReference(src); err != nil {
		return nil, err
	}
	var set files.Set
	set.Input("the checkpoint", checkpointFiles(src)...)
	set.Input("the text", o.Text.Path)
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
	t := &accuracy.TextSource{Name: cmp.Or(o.Text.Name, o.Text.Path), Data: data, Tokens: o.Text.Tokens, Options: o.Windows}
	return writeReference(ctx, src, file, accuracy.SaveOptions{Text: t, Threads: o.Threads, Version: o.Version}, stages{to: o.Progress})
}

// writeReference runs the unquantized model of the checkpoint src on a text and writes its
// predictions to file. The stage stands alone unless s has a plan.
func writeReference(ctx context.Context, src, file string, o accuracy.SaveOptions, s stages) (*ReferenceReport, error) {
	defer memlimit.Lift()()
	f, err := atomicfile.Create(file)
	if err != nil {
		return nil, err
	}
	defer f.Abort()
	w := io.NewOffsetWriter(f, 0)
	b := bufio.NewWriterSize(w, 1<<20)
	o.Stage = s.begin
	h, err := accuracy.SaveLogits(ctx, b, src, o)
	if err != nil {
		return nil, err
	}
	if err := b.Flush(); err != nil {
		return nil, err
	}
	size, err := w.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &ReferenceReport{file, size, h}, f.Commit()
}

func openReference(name string) (*os.File, *accuracy.Saved, error) {
	f, info, err := files.Open(name)
	if err != nil {
		return nil, nil, err
	}
	saved, err := logits.Read(f, info.Size())
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, &accuracy.Saved{Name: name, File: saved}, nil
}
