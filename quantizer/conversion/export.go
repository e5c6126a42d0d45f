package conversion

import (
	"fmt"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/model/llamacpp"
)

// ExportOptions are the options of NewExport.
type ExportOptions struct {
	GGUF GGUFOptions
	// Checkpoint makes the output a checkpoint. Default (nil): a .gguf file.
	Checkpoint *CheckpointOptions
	// Threads is how many workers run. Default: GOMAXPROCS.
	Threads int
	// Progress is called, from any worker, with bytes that were done since the last call. Default: none.
	Progress func(n int64)
}

// NewExport lays out the job of writing the model in f as a .gguf file, or as a checkpoint in a format
// of another library, with the same codes and scales. It fails with a *quantizer.RequestError for a
// tensor that the file or the format cannot hold exactly. The job checks the checksums of all data
// that it reads: a damaged file ends it with a *gqf.FormatError.
func NewExport(f *gqf.File, path string, opts ExportOptions) (*Plan, error) {
	f.CheckSums()
	in := &fileInput{gqf: f, path: path}
	config, err := f.Asset("config.json")
	if err != nil {
		return nil, fmt.Errorf("%s holds no config.json, which says what the model is: quantize the checkpoint again, with its config.json", path)
	}
	p := &Plan{in: in, config: config, opts: Options{Threads: opts.Threads, Progress: opts.Progress}, Warnings: []string{}}
	p.out = &ggufOutput{Plan: p, from: in, opts: opts.GGUF, config: config}
	what := "a .gguf file"
	if c := opts.Checkpoint; c != nil {
		p.out = newCheckpointOutput(p, in, *c)
		what = fmt.Sprintf("a checkpoint of format %s", c.Format)
	}
	pl := &planner{Plan: p}
	sources, err := in.sources(what)
	if err != nil {
		return nil, err
	}
	if err := p.out.begin(pl, sources); err != nil {
		return nil, err
	}
	if err := pl.takeAll(in); err != nil {
		return nil, err
	}
	return p, pl.layOut()
}

// sources lists the tensors of the file, for llama.cpp's description of the model. what names the
// output in errors: "a .gguf file".
func (in *fileInput) sources(what string) (list []llamacpp.Source, err error) {
	for i := range in.gqf.Len() {
		t := in.gqf.Tensor(i)
		if weight, ok := arch.ScaleOf(t.Name); ok {
			if w, ok := in.gqf.Lookup(weight); ok {
				return nil, fmt.Errorf("%s: tensor %q is unquantized with scales of its own, which %s has no place for: quantize the checkpoint to it with gq quantize --format", in.path, w.Name, what)
			}
		}
		shape := logicalShape(t.Shape, t.Transposed)
		for j, name := range t.Names() {
			s := llamacpp.Source{Name: name, Shape: shape}
			if j > 0 {
				s.Same = t.Name
			}
			list = append(list, s)
		}
	}
	return list, nil
}
