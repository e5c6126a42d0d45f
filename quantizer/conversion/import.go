package conversion

import (
	"encoding/json"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// ImportOptions are the options of NewImport.
type ImportOptions struct {
	RepackOptions
	// Dequantize stores tensors whose codes a .gqf file cannot hold as unquantized float32. Default:
	// they are refused.
	Dequantize bool
}

// NewImport lays out the job of putting a model of another program into a .gqf file. The job changes
// no code and no scale, and of the unquantized weights only the norms of a Gemma model in a GGUF file:
// it subtracts the 1 that llama.cpp adds. The tensors of a GGUF file get the names and the order of
// rows that they have in a Hugging Face checkpoint.
func NewImport(f *Foreign, opts ImportOptions) (*Plan, error) {
	recipe, err := opts.recipe()
	if err != nil {
		return nil, err
	}
	p := &Plan{opts: Options{Recipe: recipe, Threads: opts.Threads, Progress: opts.Progress}, Warnings: []string{}}
	p.out = &gqfOutput{Plan: p}
	pl := &planner{Plan: p}
	if f.IsGGUF() {
		err = pl.takeGGUF(f, opts.Dequantize)
	} else {
		err = pl.takeQuantized(f, opts.Dequantize)
	}
	if err != nil {
		return nil, err
	}
	return p, pl.layOut()
}

// ImportedTensor is a tensor as the file or the checkpoint stores it that a plan imports.
type ImportedTensor struct {
	Name      string // in the .gqf file
	Type      string // ggml's name of the type, the scheme in a checkpoint, or a dtype
	Quantized bool
	Bits      int // of a code
	Group     int // weights that share a scale; 0: the row
	Bytes     int64

	file int // index in the sources
}

// Imported are the tensors of a plan of NewImport; nil for other plans.
func (p *Plan) Imported() []ImportedTensor { return p.imported }

// imported has the methods that both inputs of NewImport share.
type imported struct {
	plan *Plan
	src  *Foreign
}

func (in *imported) listFiles(set *files.Set) { set.Input(in.src.Noun(), in.src.Paths()...) }
func (in *imported) size() int64              { return in.src.Bytes() }
func (in *imported) unchanged() error         { return in.src.unchanged() }
func (in *imported) bias(*entry) int          { return 0 }
func (in *imported) strided(*quantized) bool  { return false }
func (in *imported) measured() bool           { return false }
func (in *imported) file(*entry) string       { return in.src.path }
func (in *imported) names(e *entry) []string  { return e.names() }

// algorithm is AlgorithmOther for quantized items: the source does not say how its codes were chosen.
func (in *imported) algorithm(it item, _ *CalibratedCodes) gqf.Algorithm {
	if _, ok := it.(*quantized); ok {
		return gqf.AlgorithmOther
	}
	return gqf.AlgorithmNone
}

// addOrigin adds the names of the checkpoint, the names that only the model's code knows, and the
// sources.
func (in *imported) addOrigin(b *gqf.Builder, _ *CalibratedCodes, _ []string) error {
	for i, it := range in.plan.items {
		e, t := it.common(), in.plan.imported[i]
		b.AddName(gqf.NameSpec{Name: e.name(), Tensor: e.index, InCheckpoint: true, SourceFile: t.file, SourceBytes: t.Bytes})
		for _, n := range e.aliases {
			spec := gqf.NameSpec{Name: n.src.Name, Tensor: e.index, SourceFile: -1}
			if !n.absent {
				spec.InCheckpoint, spec.SourceFile, spec.SourceBytes = true, n.src.File, n.src.Size
			}
			b.AddName(spec)
		}
	}
	sources, err := in.src.Sources()
	if err != nil {
		return err
	}
	js, err := json.MarshalIndent(Provenance{
		Sources: sources, Repository: repositoryOfFiles(sources), Tuning: in.src.tuning(), Quantized: in.src.quantizedBy(),
	}, "", "  ")
	if err != nil {
		return err
	}
	b.AddAsset(gqf.AssetSpec{Kind: gqf.AssetProvenance, Name: gqf.ProvenanceName, Data: js})
	return nil
}

// takeOver gives a draft the scheme of its source's codes, which stay as they are.
func (d *draft) takeOver(scheme rounding.Scheme) {
	d.quantize, d.rows, d.cols, d.scheme = true, d.src.Shape[0], d.src.Shape[1], scheme
	if d.transposed {
		d.rows, d.cols = d.cols, d.rows
	}
	d.smallest = scheme.ScaleDtype.Smallest()
	l := d.line
	l.Action, l.Bits, l.Group, l.Mapping, l.ScaleDtype, l.Algorithm = ActionQuantize, scheme.Bits, scheme.Group, scheme.Mapping, scheme.ScaleDtype, gqf.AlgorithmOther
}

// dequantized is the reason that a plan gives for a tensor that an import stores in float32. why may be "".
func dequantized(kind, why string) string {
	if why == "" {
		return "dequantized from " + kind
	}
	return "dequantized from " + kind + ": " + why
}

// setDtype settles the dtype of a draft of an import, and its size in it.
func (d *draft) setDtype(dtype packing.Dtype) {
	d.src.Dtype, d.src.DtypeName, d.line.Dtype = dtype, dtype.String(), dtype.String()
	d.src.Size = d.src.Numel() * int64(dtype.Bits()/8)
}
