package conversion

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/model/llamacpp"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

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

// takeGGUF makes the items of a GGUF file.
func (pl *planner) takeGGUF(f *Foreign, dequantize bool) error {
	ck, err := llamacpp.ReadCheckpoint(f.gguf)
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	in := &ggufInput{imported: imported{pl.Plan, f}, gguf: f.gguf, checkpoint: ck, byName: map[string]*llamacpp.CheckpointTensor{}}
	pl.in, pl.config = in, ck.Assets[0].Data
	if pl.cfg, err = arch.ParseConfig(pl.config); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	if len(ck.Assets) == 1 {
		pl.warn("%s holds no tokenizer: no text can be given to the model", f.path)
	}
	slices.SortFunc(ck.Tensors, func(a, b llamacpp.CheckpointTensor) int { return compareNatural(a.Name, b.Name) })
	for i := range ck.Tensors {
		in.byName[ck.Tensors[i].Name] = &ck.Tensors[i]
	}
	for i := range ck.Tensors {
		d, err := pl.fromGGUF(in, &ck.Tensors[i], dequantize)
		if err != nil {
			return err
		}
		pl.items = append(pl.items, d.item())
	}
	return nil
}

// fromGGUF makes the draft of a tensor.
func (pl *planner) fromGGUF(in *ggufInput, t *llamacpp.CheckpointTensor, dequantize bool) (*draft, error) {
	class := arch.Classify(pl.cfg, t.Name, t.Shape)
	kind := t.Stored.Type
	pl.imported = append(pl.imported, ImportedTensor{
		Name: t.Name, Type: kind.String(), Quantized: kind.BlockWeights() > 1, Bits: codeBits(kind), Group: kind.BlockWeights(), Bytes: t.Bytes(), file: t.Stored.Shard,
	})
	pl.SourceBytes += t.Bytes()
	line := &PlanTensor{Name: t.Name, Role: class.Role, Shape: t.Shape, Action: ActionUnquantized}
	d := &draft{entry: entry{src: &safetensors.Tensor{Name: t.Name, Shape: t.Shape}, line: line, role: class.Role}, slices: 1}
	d.setDtype(packing.F32)
	dtype, unquantized := unquantizedTypes[kind]
	scheme, codes := grids[kind]
	switch codes = codes && len(t.Shape) == 2 && t.Add == 0; {
	case unquantized && t.Add == 0:
		d.setDtype(dtype)
	case unquantized || codes:
	case !kind.Decodable():
		return nil, fmt.Errorf("%s: tensor %q has type %s, whose weights this program cannot read", in.src.path, t.Stored.Name, kind)
	case !dequantize:
		return nil, quantizer.Requestf("%s: tensor %q has type %s: a .gqf file has no layout for its codes, only for those of Q1_0, Q2_0, Q4_0, Q5_0 and Q8_0; --dequantize stores such tensors in float32, gq accuracy, gq run and gq diff need no other file",
			in.src.path, t.Stored.Name, kind)
	}
	if class.Role == gqf.RoleEmbedding {
		pl.tieImported(in, d)
	}
	if !codes {
		if line.Reason = class.Reason; !unquantized {
			line.Reason = dequantized(kind.String(), "")
		}
		return d, nil
	}
	scheme.ScaleDtype, scheme.Group = packing.ScaleF16, kind.BlockWeights()
	d.takeOver(scheme)
	d.src.Size = d.rows * t.Stored.RowBytes()
	if err := pl.chooseLayouts(d, true); err != nil {
		return nil, err
	}
	if in.byName[biasName(t.Name)] != nil {
		d.holdBias()
	}
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

// codeBits is the width of a type's codes, which is in its name: 4 for Q4_1, Q4_K and IQ4_XS.
func codeBits(t gguf.TensorType) int {
	name := t.String()
	if i := strings.IndexAny(name, "12345678"); i >= 0 {
		return int(name[i] - '0')
	}
	return int(t.Bits())
}
