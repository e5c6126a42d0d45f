package gq

import (
	"context"
	"io"
	"os"
	"path"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// streams reports whether some weights of the source are not on this machine.
func (s *source) streams() bool { return len(s.Weights) > 0 }

// openCheckpoint opens the source, a checkpoint. Weights that are not on this machine are read by range
// until the context ends.
func (s *source) openCheckpoint(ctx context.Context) (*safetensors.Checkpoint, error) {
	return safetensors.Open(s.Path, s.options(ctx))
}

// options name the weights that are not on this machine.
func (s *source) options(ctx context.Context) safetensors.Options {
	opts := safetensors.Options{Context: ctx}
	for _, o := range s.Weights {
		opts.Remote = append(opts.Remote, safetensors.RemoteFile{
			Name: path.Base(o.Name), Path: s.Store.String() + "/" + o.Name, Size: o.Size, Version: o.Version(),
			ReadAt: func(ctx context.Context, dst []byte, off int64) error { return s.Store.ReadAt(ctx, o, dst, off) },
		})
	}
	return opts
}

// openFile opens the source, one file. It is read by ranges if it is not on this machine.
func (s *source) openFile(ctx context.Context) (*sourceFile, error) {
	if s.streams() {
		return &sourceFile{Size: s.Weights[0].Size, ctx: ctx, source: s}, nil
	}
	f, st, err := files.Open(s.Path)
	if err != nil {
		return nil, err
	}
	return &sourceFile{Size: st.Size(), file: f}, nil
}

// sourceFile is an open file of a source.
type sourceFile struct {
	Size int64

	file   *os.File // nil: the file is streamed
	ctx    context.Context
	source *source
}

// ReadAt implements io.ReaderAt.
func (f *sourceFile) ReadAt(p []byte, off int64) (int, error) {
	if f.file != nil {
		return f.file.ReadAt(p, off)
	}
	n := int(min(int64(len(p)), max(0, f.Size-off)))
	if err := f.source.Store.ReadAt(f.ctx, f.source.Weights[0], p[:n], off); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Close closes the file.
func (f *sourceFile) Close() {
	if f.file != nil {
		f.file.Close()
	}
}

// streamedMemory is the most memory for bytes of a checkpoint that a job streams with: a slice that is
// stored transposed is needed as a whole.
const streamedMemory = 128 << 20

// rereads says why the job reads the weights more than once; "" if the options do not tell. Such a job
// keeps remote weights in a cache.
func (j *quantizeJob) rereads() string {
	r := j.o.Recipe
	algorithms := []gqf.Algorithm{r.Algorithm}
	for _, rule := range slices.Concat(j.o.Rules, r.Rules) {
		algorithms = append(algorithms, rule.Algorithm)
	}
	switch {
	case j.o.Budget != nil:
		return "it chooses bits"
	case r.Fold != (quantizer.Fold{}):
		return "it folds the checkpoint"
	case r.Tunes() || r.Quality == quantizer.QualityMax:
		return "it tunes the model"
	case j.dry: // the rest is for the writing
		return ""
	case slices.ContainsFunc(algorithms, gqf.Algorithm.Calibrated):
		return "it calibrates"
	case j.o.Measure != nil:
		return "it measures the file"
	case j.o.Reuse != "":
		return "it compares them with an older file"
	case j.o.Format != FormatGQF:
		return "it compares the new file with them"
	case r.HashFiles:
		return "it hashes the files"
	}
	return ""
}

// hold keeps the files of a source until the job ends.
func (j *quantizeJob) hold(from *source, err error) (*source, error) {
	j.held = append(j.held, from)
	return from, err
}

// find resolves the source, and opens it if it is a model of another program. Weights of a remote
// source are streamed, unless the job reads them more than once.
func (j *quantizeJob) find(src string) (err error) {
	why := j.rereads()
	if why != "" && remote.IsRemote(src) {
		j.logCache(src, why)
	}
	if j.from, err = j.hold(resolveSource(j.ctx, src, why != "", j.stages)); err != nil {
		return err
	}
	if !j.from.streams() {
		j.foreign, err = openForeign(j.from.Path)
		return err
	}
	if j.opened, err = j.from.openCheckpoint(j.ctx); err != nil {
		return err
	}
	if quantized, err := conversion.IsQuantized(j.opened); err != nil || !quantized {
		return err
	}
	j.close()
	j.logCache(src, "it imports a quantized checkpoint")
	if j.from, err = j.hold(resolveSource(j.ctx, src, true, j.stages)); err != nil {
		return err
	}
	j.foreign, err = openForeign(j.from.Path)
	return err
}

// logCache says that the job does not stream.
func (j *quantizeJob) logCache(src, why string) {
	j.logf("%s: the job reads the weights more than once (%s): it uses the cache", remote.Redact(src), why)
}

// openSource opens the checkpoint and makes the plan.
func (j *quantizeJob) openSource(src string) (err error) {
	if j.opened == nil {
		if j.opened, err = j.from.openCheckpoint(j.ctx); err != nil {
			return err
		}
	}
	if err := j.open(j.opened); err != nil || !j.from.streams() || j.dry {
		return err
	}
	// A recipe's rules or the model's shapes may rule out streaming, although the options allow it.
	most, ok := j.plan.Streams()
	why := ""
	switch {
	case j.calibration != nil:
		why = "it calibrates"
	case !ok || most > streamedMemory:
		why = "a slice that is stored transposed exceeds the memory for streaming"
	default:
		return nil
	}
	j.close()
	j.logCache(src, why)
	if j.from, err = j.hold(resolveSource(j.ctx, src, true, j.stages)); err != nil {
		return err
	}
	if j.opened, err = j.from.openCheckpoint(j.ctx); err != nil {
		return err
	}
	return j.open(j.opened)
}

// release releases all sources of the job.
func (j *quantizeJob) release() {
	for _, from := range j.held {
		from.release()
	}
}

// close closes the source.
func (j *quantizeJob) close() {
	if j.opened != nil {
		j.opened.Close()
		j.opened = nil
	}
}
