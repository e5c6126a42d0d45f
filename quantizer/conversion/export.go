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
	// Threads is how many workers run. Default: GOMAXPROCS.
	Threads int
	// Progress is called, from any worker, with bytes that were done since the last call. Default: none.
	Progress func(n int64)
}

// NewExport lays out the job of writing the model in f as a .gguf file with the same codes and scales.
// It fails with a *quantizer.RequestError for a tensor that no type of GGUF files holds exactly. The
// checksums of all data that are read are checked: a damaged file ends the job with a
// *gqf.FormatError.
func NewExport(f *gqf.File, path string, opts ExportOptions) (*Plan, error) {
	f.CheckSums()
	in := &fileInput{gqf: f, path: path}
	config, err := f.Asset("config.json")
	if err != nil {
		return nil, fmt.Errorf("%s holds no config.json, which says what the model is: quantize the checkpoint again, with its config.json", path)
	}
	p := &Plan{in: in, config: config, opts: Options{Threads: opts.Threads, Progress: opts.Progress}, Warnings: []string{}}
	p.out = &ggufOutput{Plan: p, from: in, opts: opts.GGUF, config: config}
	pl := &planner{Plan: p}
	sources, err := in.sources()
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

// sources are the tensors of the file, for llama.cpp's description of the model.
func (in *fileInput) sources() (list []llamacpp.Source, err error) {
	for i := range in.gqf.Len() {
		t := in.gqf.Tensor(i)
		if weight, ok := arch.ScaleOf(t.Name); ok {
			if w, ok := in.gqf.Lookup(weight); ok {
				return nil, fmt.Errorf("%s: tensor %q is unquantized with scales of its own, which a .gguf file has no place for: quantize the checkpoint again with --target gguf, or to a .gguf file", in.path, w.Name)
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
