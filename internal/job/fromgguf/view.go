package fromgguf

import (
	"context"
	"fmt"
	"slices"
	"unique"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/imports"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/togqf"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// View presents a GGUF file as a .gqf file with the names, shapes and orders of the Hugging Face
// checkpoint. Matrices lie where the GGUF file has them; vectors, and matrices that llama.cpp
// stores with other numbers, are in memory. f must stay open as long as the view is used.
func (f *File) View(ctx context.Context) (v *gqf.File, tensors map[string]imports.ImportedTensor, err error) {
	in := &input{file: f, viewing: true}
	err = in.Guard(func() error {
		v, err = in.view(ctx)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return v, imports.ByName(in.Tensors), nil
}

// viewed is a tensor of a view. Its payloads, one for each slice, have the same header.
type viewed struct {
	plan.Entry
	head   unique.Handle[packing.Header]
	slices int
}

func (it *viewed) Headers() []packing.Header { return []packing.Header{it.head.Value()} }

func (it *viewed) Weights() int64 { return it.Src.Numel() }

func (it *viewed) AddTo(b *gqf.Builder, spec gqf.TensorSpec) {
	h := it.head.Value()
	spec.Experts = it.slices
	if h.Layout == packing.LayoutBlocks {
		spec.Mapping, spec.Algorithm = gqf.MappingOther, gqf.AlgorithmOther
	}
	tensor := b.AddTensor(spec)
	for s := range it.slices {
		b.AddPayload(gqf.PayloadSpec{Tensor: tensor, Slice: s, Header: h})
	}
}

func (in *input) view(ctx context.Context) (*gqf.File, error) {
	out := togqf.New(in)
	if err := in.begin(out, quantizer.Recipe{}, 0); err != nil {
		return nil, err
	}
	var views []gqf.View
	for i := range in.checkpoint.Tensors {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		it, parts, err := in.viewOf(i)
		if err != nil {
			return nil, err
		}
		in.Pl.Items = append(in.Pl.Items, it)
		views = append(views, parts...)
	}
	if err := in.Pl.LayOut(); err != nil {
		return nil, err
	}
	target, err := out.Target(nil, nil, nil)
	if err != nil {
		return nil, err
	}
	return target.(*togqf.Target).Image.View(in.file.path, views, in.file.gguf.Guard), nil
}

// viewOf describes tensor i, and returns the places of its payloads.
func (in *input) viewOf(i int) (*viewed, []gqf.View, error) {
	t := &in.checkpoint.Tensors[i]
	kind, class := t.Stored.Type, arch.Classify(in.Pl.Cfg, t.Name, t.Shape)
	if !kind.Decodable() || t.Split != nil && !t.Split.Values.Type.Decodable() {
		return nil, nil, in.undecodable(t)
	}
	in.addTensor(t)
	dtype, plain := unquantizedTypes[kind]
	matrix := len(t.Shape) == 2 || class.Experts > 0
	inPlace := matrix && t.Same()
	if !inPlace || !plain {
		dtype = packing.F32
	}
	d := &plan.Draft{Entry: in.entry(t, class.Role), Form: plan.Form{Slices: class.Slices()}}
	d.Index = i
	d.SetDtype(dtype)
	if class.Role == gqf.RoleEmbedding {
		in.tie(d)
	}
	it := &viewed{Entry: d.Entry, slices: 1}
	rows, cols := it.Src.Matrix()
	it.head = unique.Make(packing.PlainHeader(dtype, uint64(rows), uint64(cols)))
	if !inPlace {
		data, err := in.Bytes(&it.Entry, 0, it.Src.Size, new([]byte))
		return it, []gqf.View{{Parts: [][]byte{slices.Clone(data)}}}, err
	}
	if !plain {
		it.slices = max(1, class.Experts)
		n := len(t.Shape)
		rows, cols = t.Shape[n-2], t.Shape[n-1]
		it.head = unique.Make(kind.Header(uint64(rows), uint64(cols)))
	}
	views := make([]gqf.View, it.slices)
	for s := range views {
		views[s].Parts = in.parts(t, s*int(rows), int(rows))
		if t.Permuted() {
			views[s].Order = make([]int32, rows)
			for row := range views[s].Order {
				views[s].Order[row] = int32(t.Row(row) - t.First)
			}
		}
	}
	return it, views, nil
}

// parts returns the rows of a tensor from row first on, in the runs that the file has.
func (in *input) parts(t *llamacpp.CheckpointTensor, first, rows int) (list [][]byte) {
	add := func(stored *gguf.Tensor, at, n int) {
		size := int(stored.RowBytes())
		list = append(list, in.file.gguf.Data(stored)[at*size:][:n*size:n*size])
	}
	if !t.Fused() {
		add(t.Stored, t.First+first, rows)
		return list
	}
	for rows > 0 {
		stored, at := t.At(first)
		n := 1
		for n < rows {
			if next, row := t.At(first + n); next != stored || row != at+n {
				break
			}
			n++
		}
		add(stored, at, n)
		first, rows = first+n, rows-n
	}
	return list
}

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
