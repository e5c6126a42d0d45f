package gqf

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/packing"
)

// A View is where the data of a payload lie that is in a file of another program: whole rows, as
// the payload's header describes them.
type View struct {
	// Parts are the rows in one or several runs.
	Parts [][]byte
	// Order has the place of each row among the rows of Parts. Default (nil): the row's number.
	Order []int32
	// Columns has the place of each stored column of LayoutBlocks. File.Data leaves columns as they
	// are stored. Default (nil): the column's number.
	Columns []int32
}

// View makes a File of a Builder's directory, without a file of its own: a model of another program
// with the tensors, names and assets that a .gqf file of it would have. views has the data of each
// payload, by AddPayload's number. Payloads may be LayoutPlain or LayoutBlocks. guard is the other
// file's Guard. name is the other file's name in errors.
//
// Methods that concern checksums find nothing to check.
func (im *Image) View(name string, views []View, guard func(fn func() error) error) *File {
	f := &File{front: im.front, views: make([]View, len(views)), guard: guard}
	f.front.name, f.front.view = name, true
	order := orderBy(len(views), func(i, j int) int { return cmp.Compare(im.payloadOff[i], im.payloadOff[j]) })
	for at, i := range order {
		f.views[at] = views[i]
	}
	return f
}

// View returns the place of a payload's data, or nil if the data lie in this file.
func (f *File) View(p Payload) *View {
	if f.views == nil {
		return nil
	}
	return &f.views[p.Index]
}

// Rows returns n rows of a payload from row first on, in the order of Parts and in the runs that
// Parts have.
func (v *View) Rows(h packing.Header, first, n int) (runs [][]byte) {
	size := rowBytes(h)
	end := first + n
	for _, part := range v.Parts {
		have := len(part) / size
		if from, to := max(first, 0), min(end, have); from < to {
			runs = append(runs, part[from*size:to*size:to*size])
		}
		first, end = first-have, end-have
	}
	return runs
}

// RowBytes is the size of a row of a payload with header h.
func (v *View) RowBytes(h packing.Header) int { return rowBytes(h) }

func rowBytes(h packing.Header) int {
	if h.Layout == packing.LayoutBlocks {
		return int(gguf.TensorType(h.Dtype).Size(int64(h.Cols)))
	}
	return int(h.Cols) * h.Dtype.Bits() / 8
}

// whole returns the rows in order: in place, or copied if they lie in several parts or in another
// order.
func (v *View) whole(h packing.Header) []byte {
	if len(v.Parts) == 1 && v.Order == nil {
		return v.Parts[0]
	}
	all := slices.Concat(v.Parts...)
	if v.Order == nil {
		return all
	}
	size := rowBytes(h)
	ordered := make([]byte, 0, len(all))
	for _, row := range v.Order {
		ordered = append(ordered, all[int(row)*size:][:size]...)
	}
	return ordered
}

// row returns a row of size bytes in place.
func (v *View) row(i, size int) []byte {
	if v.Order != nil {
		i = int(v.Order[i])
	}
	for _, part := range v.Parts {
		if n := len(part) / size; i >= n {
			i -= n
			continue
		}
		return part[i*size:][:size]
	}
	panic(fmt.Sprintf("gqf: row %d behind the rows of a view", i))
}

// blockRows reads rows of LayoutBlocks. A panel is a row. Scales of types with minima do not tell
// the weights: DequantizeRow does.
type blockRows struct {
	h    packing.Header
	kind gguf.TensorType
	view *View
	size int // of a row
}

func newBlockRows(h packing.Header, v *View) *blockRows {
	return &blockRows{h, gguf.TensorType(h.Dtype), v, rowBytes(h)}
}

func (b *blockRows) Header() packing.Header       { return b.h }
func (b *blockRows) Prefix() []byte               { return nil }
func (b *blockRows) Panels() int                  { return int(b.h.Rows) }
func (b *blockRows) PanelBytes() int              { return b.size }
func (b *blockRows) PanelRows(int) int            { return 1 }
func (b *blockRows) PackedCols() int              { return int(b.h.Cols) }
func (b *blockRows) Groups() int                  { return int(b.h.Groups()) }
func (b *blockRows) Bias(_ []byte, _ int) float32 { return 0 }

func (b *blockRows) NewPanel() *packing.Panel {
	return &packing.Panel{Codes: make([]int8, b.h.Cols), Scales: make([]float32, b.Groups())}
}

func (b *blockRows) PackPanel([]byte, *packing.Panel) {
	panic("gqf: blocks of ggml are written by package gguf")
}

func (b *blockRows) UnpackPanel(p *packing.Panel, src []byte) {
	b.numbers(p.Codes, p.Scales, src)
	p.Rows = 1
}

func (b *blockRows) Row(codes []int8, scales []float32, _ []int8, _ []byte, row int) {
	b.numbers(codes, scales, b.view.row(row, b.size))
}

// numbers reads codes, and scales with their sub-scales. Either may be nil.
func (b *blockRows) numbers(codes []int8, scales []float32, src []byte) {
	var block gguf.Block
	n, weights, group := b.kind.BlockBytes(), b.kind.BlockWeights(), b.kind.GroupWeights()
	for i := 0; len(src) > 0; i, src = i+1, src[n:] {
		b.kind.ReadBlock(&block, src[:n])
		if codes != nil {
			copy(codes[i*weights:], block.Codes[:weights])
		}
		for g := range weights / group {
			if scales == nil {
				break
			}
			scales[i*weights/group+g] = block.GroupScale(b.kind, g)
		}
	}
	place(codes, b.view.Columns, 1)
	place(scales, b.view.Columns, b.kind.GroupWeights())
}

// place puts the values of groups of neighbouring columns at their places.
func place[T any](list []T, columns []int32, group int) {
	if columns == nil {
		return
	}
	for i, v := range slices.Clone(list) {
		list[int(columns[i*group])/group] = v
	}
}

func (b *blockRows) DequantizeRow(dst []float32, _ []byte, row int) {
	if err := b.kind.Decode(dst[:b.h.Cols], b.view.row(row, b.size)); err != nil {
		panic(err) // the type and the size were checked
	}
	place(dst[:b.h.Cols], b.view.Columns, 1)
}

// CheckPanel accepts any bytes: ggml's blocks have no checksum.
func (b *blockRows) CheckPanel(int, []byte) error { return nil }
