// Package fromgguf takes the codes of a GGUF file over.
package fromgguf

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/imports"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Grids are the types whose codes a .gqf file holds exactly. Codes of ggml that use the whole range
// of two's complement have the mapping full-range here, whose scales may be negative. A scale of
// Q3_K and Q6_K is the product of the block's F16 scale (11 significant bits) and the group's
// sub-scale (8 bits). F32 holds this product exactly, and ggml computes it before it multiplies
// with the code.
var Grids = map[gguf.TensorType]rounding.Scheme{
	gguf.Q1_0: {Bits: 1, Group: 128, Mapping: gqf.MappingHalfStep, ScaleDtype: packing.ScaleF16},
	gguf.Q2_0: {Bits: 2, Group: 64, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF16},
	gguf.Q3_K: {Bits: 3, Group: 16, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32},
	gguf.Q4_0: {Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF16},
	gguf.Q5_0: {Bits: 5, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF16},
	gguf.Q6_K: {Bits: 6, Group: 16, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32},
	gguf.Q8_0: {Bits: 8, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF16},
}

func (in *input) Import(out write.Output, recipe quantizer.Recipe, threads int, dequantize bool) (*imports.Import, error) {
	if err := in.begin(out, recipe, threads); err != nil {
		return nil, err
	}
	for i := range in.checkpoint.Tensors {
		d, err := in.draft(&in.checkpoint.Tensors[i], dequantize)
		if err != nil {
			return nil, err
		}
		in.Pl.Items = append(in.Pl.Items, in.Pl.Item(d))
	}
	return in.Job(in, out)
}

// begin reads the model and begins a plan, without items.
func (in *input) begin(out write.Output, recipe quantizer.Recipe, threads int) error {
	f := in.file
	ck, err := llamacpp.ReadCheckpoint(f.gguf, in.table)
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	pl := plan.NewPlanner(out, recipe, threads)
	in.Imported, in.checkpoint, in.byName = imports.Imported{Src: f, Pl: pl}, ck, map[string]*llamacpp.CheckpointTensor{}
	pl.Config = ck.Assets[0].Data
	if pl.Cfg, err = arch.ParseConfig(pl.Config); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	if !slices.ContainsFunc(ck.Assets, func(a llamacpp.Asset) bool { return a.Name == "tokenizer.json" }) {
		pl.Warn("%s holds no tokenizer: no text can be given to the model", f.path)
	}
	slices.SortFunc(ck.Tensors, func(a, b llamacpp.CheckpointTensor) int { return plan.CompareNatural(a.Name, b.Name) })
	for i := range ck.Tensors {
		in.byName[ck.Tensors[i].Name] = &ck.Tensors[i]
	}
	return out.Begin(pl, nil)
}

func (in *input) draft(t *llamacpp.CheckpointTensor, dequantize bool) (*plan.Draft, error) {
	pl := in.Pl
	class := arch.Classify(pl.Cfg, t.Name, t.Shape)
	kind := t.Stored.Type
	in.addTensor(t)
	d := &plan.Draft{Entry: in.entry(t, class.Role), Form: plan.Form{Slices: class.Slices(), Transposed: t.Transposed}}
	d.SetDtype(packing.F32)
	dtype, unquantized := unquantizedTypes[kind]
	scheme, codes := Grids[kind]
	codes = codes && (len(t.Shape) == 2 || class.Experts > 0) && t.Same() && (t.Columns.Head == 0 || t.Columns.Block%scheme.Group == 0)
	switch {
	case unquantized && t.Same():
		d.SetDtype(dtype)
	case unquantized || codes:
	case !kind.Decodable():
		return nil, in.undecodable(t)
	case !dequantize:
		return nil, quantizer.Requestf("%s: tensor %q has type %s: a .gqf file has no layout for its codes, only for those of Q1_0, Q2_0, Q3_K, Q4_0, Q5_0, Q6_K and Q8_0; --dequantize stores such tensors in float32, gq accuracy, gq run and gq diff need no other file",
			in.file.path, t.Stored.Name, kind)
	}
	in.tie(d)
	if !codes {
		if d.Line.Reason = class.Reason; !unquantized {
			d.Line.Reason = plan.Dequantized(kind.String(), "")
		}
		return d, nil
	}
	d.TakeOver(scheme)
	d.Src.Size = int64(d.Slices) * d.Rows * t.Stored.RowBytes()
	if err := pl.ChooseLayouts(d, true); err != nil {
		return nil, err
	}
	if in.byName[arch.BiasName(t.Name)] != nil {
		d.HoldBias()
	}
	return d, nil
}

// tie gives the embedding the name of the lm_head that the file leaves out.
func (in *input) tie(d *plan.Draft) {
	head := arch.HeadName(in.Pl.Cfg, d.Src.Name)
	if d.Role == gqf.RoleEmbedding && head != "" && in.byName[head] == nil {
		d.Shared = true
		in.Pl.Share(&d.Entry, plan.NameRef{Src: safetensors.Tensor{Name: head}, Absent: true}, "not in the file: tied to the embedding")
	}
}

// codeBits is the width of a type's codes, which is in its name: 4 for Q4_1, Q4_K and IQ4_XS.
func codeBits(t gguf.TensorType) int {
	name := t.String()
	if i := strings.IndexAny(name, "12345678"); i >= 0 {
		return int(name[i] - '0')
	}
	return int(t.Bits())
}

func (f *File) Input() imports.Input { return &input{file: f} }

// entry begins the description of a tensor, without its dtype.
func (in *input) entry(t *llamacpp.CheckpointTensor, role gqf.Role) plan.Entry {
	line := plan.NewLine(t.Name, role, t.Shape, "")
	line.Action = plan.ActionUnquantized
	return plan.Entry{Src: &safetensors.Tensor{Name: t.Name, Shape: t.Shape}, Line: line, Role: role}
}

func (in *input) undecodable(t *llamacpp.CheckpointTensor) error {
	return fmt.Errorf("%s: tensor %q has type %s, whose weights this program cannot read", in.file.path, t.Stored.Name, t.Stored.Type)
}

// addTensor records how the file stores a tensor.
func (in *input) addTensor(t *llamacpp.CheckpointTensor) {
	kind := t.Stored.Type
	in.Tensors = append(in.Tensors, imports.ImportedTensor{
		Name: t.Name, Type: kind.String(), Quantized: kind.BlockWeights() > 1, Bits: codeBits(kind), Group: kind.BlockWeights(), Bytes: t.Bytes(), File: t.Stored.Shard,
	})
	in.Pl.SourceBytes += t.Bytes()
}
