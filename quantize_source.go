package gq

import (
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/fromquantized"
	"github.com/lowbit-go/gq/internal/job/location"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/packing"
)

// findSource finds the source, and opens it if it is a model of another program or if its weights
// are streamed. Weights of a remote source are streamed, unless the job reads them more than once.
func (r *run) findSource(t *task, src string) (*input, error) {
	why := t.rereads()
	if why != "" {
		return r.wholeSource(src, why)
	}
	in, err := r.input(src, false)
	if err != nil || !in.Streams() {
		return in, err
	}
	if quantized, err := fromquantized.IsQuantized(in.ck); err != nil || !quantized {
		return in, err
	}
	return r.wholeSource(src, "it imports a quantized checkpoint")
}

// wholeSource finds the source and copies remote weights into the cache. why says why the job reads
// them more than once.
func (r *run) wholeSource(src, why string) (*input, error) {
	if remote.IsRemote(src) {
		r.logf("%s: the job reads the weights more than once (%s): it uses the cache", remote.Redact(src), why)
	}
	return r.input(src, true)
}

func (r *run) input(src string, whole bool) (*input, error) {
	from, err := resolveSource(r.ctx, src, whole, r.stages)
	if err != nil {
		return nil, err
	}
	r.atEnd(from.Release)
	in := &input{Source: from}
	if in.Streams() {
		return in, r.open(in)
	}
	if in.foreign, err = openForeign(from.Path); in.foreign != nil {
		r.atEnd(func() { in.foreign.Close() })
	}
	return in, err
}

// open opens the checkpoint, unless it is open.
func (r *run) open(in *input) (err error) {
	if in.ck != nil {
		return nil
	}
	if in.ck, err = in.OpenCheckpoint(r.ctx); err == nil {
		r.atEnd(func() { in.ck.Close() })
	}
	return err
}

// importSource makes a checkpoint of unquantized weights of a foreign source, in a working
// directory that lasts as long as the others of the job.
func (r *run) importSource(t *task, in *input) (*input, error) {
	f := in.foreign
	if err := r.mayQuantize(t, in); err != nil {
		return nil, err
	}
	plan, err := conversion.NewImport(f, conversion.RepackOptions{Threads: t.o.Threads, Dequantize: true})
	if err != nil {
		return nil, err
	}
	if err := t.checkOutput(plan.Job, true); err != nil {
		return nil, err
	}
	sources, err := f.Sources()
	if err != nil {
		return nil, err
	}
	parts := []any{"import", 2}
	for _, path := range f.Paths() {
		st, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		parts = append(parts, filepath.Base(path), st.Size(), st.ModTime().UnixNano())
	}
	for _, s := range sources {
		parts = append(parts, s.HeaderSHA256)
	}
	from, err := r.made(t, in.Name, "checkpoint", parts, func(dir string) error {
		add, end := r.stages.begin(stageImport, "bytes", plan.SourceBytes)
		return plan.WriteTemporary(r.ctx, filepath.Join(dir, "import.gqf"), write.Options{Progress: add}, func(temp string) error {
			end()
			g, err := gqf.Open(temp, gqf.Options{})
			if err != nil {
				return err
			}
			defer g.Close()
			_, err = conversion.Dequantize(r.ctx, g, temp, filepath.Join(dir, importedName), conversion.DequantizeOptions{Dtype: packing.F32, Threads: t.o.Threads})
			return err
		})
	})
	return &input{Source: from, foreign: f, files: sources}, err
}

// made finds a checkpoint that was made of the source called name in the working directory, or
// makes it. parts identify the source.
func (r *run) made(t *task, name, tree string, parts []any, write func(dir string) error) (*location.Source, error) {
	key, err := workdir.Key(parts...)
	if err != nil {
		return nil, err
	}
	dirs, err := r.openDir(t, importSuffix)
	if err != nil {
		return nil, err
	}
	dir, _, err := dirs.Tree(r.ctx, tree, key, write)
	return &location.Source{Name: name, Path: filepath.Join(dir, importedName)}, err
}

// importedName is the name of the checkpoint in its working directory: it appears when it is
// complete.
const importedName = "model"

// mayQuantize refuses a source with quantized weights, unless the options ask for quantizing them
// again.
func (r *run) mayQuantize(t *task, in *input) error {
	tensors := in.foreign.Quantized()
	if tensors == "" {
		return nil
	}
	if t.o.Requantize {
		r.logf("%s is quantized already (%s): its weights are quantized once more, which loses more than quantizing the original", in.Name, tensors)
		return nil
	}
	takes := "takes its codes over"
	if in.foreign.IsGGUF() {
		takes = "takes codes of Q1_0, Q2_0, Q3_K, Q4_0, Q5_0, Q6_K and Q8_0 over"
	}
	return optionf("", "%s is quantized already (%s): gq repack %s -o x.gqf %s; --requantize quantizes the weights once more, which loses more than quantizing the original",
		in.Name, tensors, in.Name, takes)
}
