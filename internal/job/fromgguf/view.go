package fromgguf

import (
	"context"
	"slices"
	"unique"

	"github.com/lowbit-go/gq/formats/gqf"
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
// stores with other numbers, are in memory. f must stay open as long as the view is used. With
// table, the vocabulary is an asset that only gq reads: tokenizer.TableFile.
func (f *File) View(ctx context.Context, table bool) (v *gqf.File, tensors map[string]imports.ImportedTensor, err error) {
	in := &input{file: f, viewing: true, table: table}
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
	head       unique.Handle[packing.Header]
	slices     int
	transposed bool // as in gqf.TensorSpec
}

func (it *viewed) Headers() []packing.Header { return []packing.Header{it.head.Value()} }

func (it *viewed) Weights() int64 { return it.Src.Numel() }

func (it *viewed) AddTo(b *gqf.Builder, spec gqf.TensorSpec) {
	h := it.head.Value()
	spec.Experts, spec.Transposed = it.slices, it.transposed
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
	if !kind.Decodable() {
		return nil, nil, in.undecodable(t)
	}
	in.addTensor(t)
	dtype, plain := unquantizedTypes[kind]
	matrix := len(t.Shape) == 2 || class.Experts > 0
	inPlace := matrix && t.Same() && (t.Columns.Head == 0 || !plain && t.Columns.Block%kind.GroupWeights() == 0) && !t.Elements && (!plain || !t.Transposed)
	if !plain || !t.Same() {
		dtype = packing.F32
	}
	d := &plan.Draft{Entry: in.entry(t, class.Role), Form: plan.Form{Slices: class.Slices()}}
	d.Index = i
	d.SetDtype(dtype)
	in.tie(d)
	it := &viewed{Entry: d.Entry, slices: 1}
	rows, cols := it.Src.Matrix()
	it.head = unique.Make(packing.PlainHeader(dtype, uint64(rows), uint64(cols)))
	if !inPlace {
		data, err := in.Bytes(&it.Entry, 0, it.Src.Size, new([]byte))
		return it, []gqf.View{{Parts: [][]byte{slices.Clone(data)}}}, err
	}
	if !plain {
		it.transposed = t.Transposed
		it.slices, rows, cols = plan.SliceShape(t.Shape, t.Transposed)
		it.head = unique.Make(kind.Header(uint64(rows), uint64(cols)))
	}
	views := make([]gqf.View, it.slices)
	for s := range views {
		views[s] = in.rowsOf(t, s*int(rows), int(rows))
		for c := 0; t.Columns.Head != 0 && c < int(cols); c++ {
			views[s].Columns = append(views[s].Columns, int32(t.Columns.At(c)))
		}
	}
	return it, views, nil
}

// rowsOf returns the places of rows of a tensor from row first on. A part is a segment.
func (in *input) rowsOf(t *llamacpp.CheckpointTensor, first, rows int) gqf.View {
	v := gqf.View{Order: make([]int32, rows)}
	starts, total, moved := map[*llamacpp.Segment]int{}, 0, false
	for i := 0; i < rows; {
		s, own := t.Segment(first + i)
		start, ok := starts[s]
		if !ok {
			size := int(s.Stored.RowBytes())
			v.Parts = append(v.Parts, in.file.gguf.Data(s.Stored)[s.First*size:][:s.Rows*size:s.Rows*size])
			start, starts[s] = total, total
			total += s.Rows
		}
		n := 1
		if s.Same() {
			n = min(s.Rows-own, rows-i)
		}
		for ; n > 0; n-- {
			v.Order[i] = int32(start + own)
			moved = moved || start+own != i
			i, own = i+1, own+1
		}
	}
	if !moved {
		v.Order = nil
	}
	return v
}
