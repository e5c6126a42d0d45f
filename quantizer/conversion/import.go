package conversion

import (
	"fmt"
	"os"
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/model/llamacpp"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// ImportOptions are the options of NewImport.
type ImportOptions struct {
	RepackOptions
	// Dequantize stores tensors of types whose codes a .gqf file cannot hold as unquantized float32.
	// Default: they are refused.
	Dequantize bool
}

// grids are the types whose codes a .gqf file holds exactly, with F16 scales. Codes of ggml that use
// the whole range of two's complement have the mapping full-range here, whose scales may be negative.
var grids = map[gguf.TensorType]rounding.Scheme{
	gguf.Q1_0: {Bits: 1, Mapping: gqf.MappingHalfStep},
	gguf.Q2_0: {Bits: 2, Mapping: gqf.MappingFullRange},
	gguf.Q4_0: {Bits: 4, Mapping: gqf.MappingFullRange},
	gguf.Q5_0: {Bits: 5, Mapping: gqf.MappingFullRange},
	gguf.Q8_0: {Bits: 8, Mapping: gqf.MappingFullRange},
}

// unquantizedTypes are ggml's types of unquantized tensors.
var unquantizedTypes = map[gguf.TensorType]packing.Dtype{gguf.F32: packing.F32, gguf.F16: packing.F16, gguf.BF16: packing.BF16}

// NewImport lays out the job of putting the model of a GGUF file into a .gqf file, whose tensors
// have the names and the order of rows of a Hugging Face checkpoint. Codes, scales and unquantized
// weights stay what they are; norms of Gemma lose the 1 that llama.cpp adds.
func NewImport(f *gguf.File, path string, opts ImportOptions) (*Plan, error) {
	recipe, err := opts.recipe()
	if err != nil {
		return nil, err
	}
	ck, err := llamacpp.ReadCheckpoint(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	in := &ggufInput{gguf: f, path: path, checkpoint: ck, byName: map[string]*llamacpp.CheckpointTensor{}}
	for _, p := range f.Paths() {
		st, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		in.stats = append(in.stats, st)
	}
	cfg, err := arch.ParseConfig(ck.Assets[0].Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p := &Plan{in: in, config: ck.Assets[0].Data, opts: Options{Recipe: recipe, Threads: opts.Threads, Progress: opts.Progress}, Warnings: []string{}}
	p.out = &gqfOutput{Plan: p}
	pl := &planner{Plan: p, cfg: cfg}
	if len(ck.Assets) == 1 {
		pl.warn("%s holds no tokenizer: no text can be given to the model", path)
	}
	in.plan = p
	slices.SortFunc(ck.Tensors, func(a, b llamacpp.CheckpointTensor) int { return compareNatural(a.Name, b.Name) })
	for i := range ck.Tensors {
		in.byName[ck.Tensors[i].Name] = &ck.Tensors[i]
	}
	for i := range ck.Tensors {
		d, err := pl.fromGGUF(in, &ck.Tensors[i], opts.Dequantize)
		if err != nil {
			return nil, err
		}
		p.items = append(p.items, d.item())
	}
	return p, pl.layOut()
}

// fromGGUF makes the draft of a tensor.
func (pl *planner) fromGGUF(in *ggufInput, t *llamacpp.CheckpointTensor, dequantize bool) (*draft, error) {
	class := arch.Classify(pl.cfg, t.Name, t.Shape)
	kind := t.Stored.Type
	src := &safetensors.Tensor{Name: t.Name, Shape: t.Shape, Dtype: packing.F32}
	dtype, unquantized := unquantizedTypes[kind]
	scheme, codes := grids[kind]
	switch codes = codes && len(t.Shape) == 2 && t.Add == 0; {
	case unquantized && t.Add == 0:
		src.Dtype = dtype
	case unquantized || codes:
	case !kind.Decodable():
		return nil, fmt.Errorf("%s: tensor %q has type %s, whose weights this program cannot read", in.path, t.Stored.Name, kind)
	case !dequantize:
		return nil, quantizer.Requestf("%s: tensor %q has type %s: a .gqf file has no layout for its codes, only for those of Q1_0, Q2_0, Q4_0, Q5_0 and Q8_0; --dequantize stores such tensors in float32, gq accuracy, gq run and gq diff need no other file",
			in.path, t.Stored.Name, kind)
	}
	src.DtypeName = src.Dtype.String()
	src.Size = src.Numel() * int64(src.Dtype.Bits()/8)
	pl.SourceBytes += t.Bytes()
	line := &PlanTensor{Name: t.Name, Role: class.Role, Shape: t.Shape, Dtype: src.DtypeName, Action: ActionUnquantized}
	d := &draft{entry: entry{src: src, line: line, role: class.Role}, slices: 1}
	if class.Role == gqf.RoleEmbedding {
		pl.tieImported(in, d)
	}
	if !codes {
		if line.Reason = class.Reason; !unquantized {
			line.Reason = fmt.Sprintf("dequantized from %s", kind)
		}
		return d, nil
	}
	d.quantize, d.rows, d.cols = true, t.Shape[0], t.Shape[1]
	src.Size = d.rows * t.Stored.RowBytes()
	scheme.ScaleDtype, scheme.Group = packing.ScaleF16, kind.BlockWeights()
	d.scheme, d.smallest = scheme, packing.ScaleF16.Smallest()
	if err := pl.chooseLayouts(d, true); err != nil {
		return nil, err
	}
	if in.byName[biasName(t.Name)] != nil {
		d.holdBias()
	}
	line.Action, line.Bits, line.Group, line.Mapping, line.ScaleDtype, line.Algorithm = ActionQuantize, scheme.Bits, scheme.Group, scheme.Mapping, scheme.ScaleDtype, gqf.AlgorithmOther
	return d, nil
}

// tieImported gives the embedding the name of the lm_head that the file leaves out.
func (pl *planner) tieImported(in *ggufInput, d *draft) {
	head := arch.HeadName(pl.cfg, d.src.Name)
	if head == "" || in.byName[head] != nil {
		return
	}
	d.shared = true
	d.aliases = append(d.aliases, nameRef{src: safetensors.Tensor{Name: head}, absent: true})
	pl.Tensors = append(pl.Tensors, &PlanTensor{
		Name: head, Role: gqf.RoleHead, Action: ActionShare, Shape: d.src.Shape, Dtype: d.src.DtypeName, SharedWith: d.src.Name,
		Reason: "not in the file: tied to the embedding",
	})
}

// Imported are the tensors of a plan of NewImport, with their places in the GGUF file; nil for other
// plans.
func (p *Plan) Imported() []llamacpp.CheckpointTensor {
	if in, ok := p.in.(*ggufInput); ok {
		return in.checkpoint.Tensors
	}
	return nil
}

// Sources are the GGUF file of a plan of NewImport, or its shards; nil for other plans.
func (p *Plan) Sources() ([]Source, error) {
	if in, ok := p.in.(*ggufInput); ok {
		return in.sources()
	}
	return nil, nil
}
