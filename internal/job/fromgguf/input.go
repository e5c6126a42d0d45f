package fromgguf

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/imports"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/packing"
)

// input is the GGUF file that a plan imports. The checkpoint's tensors are the plan's items, in
// the same order.
type input struct {
	imports.Imported
	file       *File
	checkpoint *llamacpp.Checkpoint
	byName     map[string]*llamacpp.CheckpointTensor
	viewing    bool // no file is written
	table      bool // see View
}

func (in *input) Facts() write.Facts {
	f := write.Facts{Root: in.file.path, Files: []string{in.file.path}, Bytes: in.file.Bytes()}
	f.Paths.Input(in.file.Noun(), in.file.Paths()...)
	return f
}

func (in *input) Guard(fn func() error) error { return in.file.gguf.Guard(fn) }

// Unchanged fails if a file was changed after it was opened. No checksum would find the change.
func (in *input) Unchanged() error {
	f := in.file
	for i, path := range f.gguf.Paths() {
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		if was := f.stats[i]; st.Size() != was.Size() || !st.ModTime().Equal(was.ModTime()) || !os.SameFile(st, was) {
			return fmt.Errorf("%s was changed while it was read: run the job again", path)
		}
	}
	return nil
}

func (in *input) Advice(it *plan.Quantized, e *rounding.ScaleError) string {
	if e == nil || floats.Abs(e.Scale) > e.Dtype.Max() || e.Scale < 0 && it.Scheme.Positive() {
		return fmt.Sprintf("a .gqf file cannot hold such blocks of %s", in.tensor(&it.Entry).Stored.Type)
	}
	return "repack to --layout lowbit, which holds all scales of such blocks"
}

// FileAssets are config.json and the tokenizer's files, made of the metadata.
func (in *input) FileAssets() ([]gqf.PackedAsset, error) {
	var list []gqf.AssetSpec
	for _, a := range in.checkpoint.Assets {
		kind := gqf.AssetFile
		if a.Name == assets.ConfigName {
			kind = gqf.AssetConfig
		}
		list = append(list, gqf.AssetSpec{Kind: kind, Name: a.Name, Data: a.Data, Stored: in.viewing})
	}
	return assets.PackAssets(list)
}

func (in *input) AddNames(b *gqf.Builder, _ *plan.Codes, _ []string) error {
	text, _ := in.file.gguf.Text(provenance.GGUFProvenance)
	return in.RecordOrigin(b, []byte(text), nil)
}

func (in *input) tensor(e *plan.Entry) *llamacpp.CheckpointTensor {
	return &in.checkpoint.Tensors[e.Index]
}

// Bytes returns bytes of an unquantized item: a view of the file if the file stores them as they
// are. Else it converts the rows that hold the bytes.
func (in *input) Bytes(e *plan.Entry, first, count int64, buf *[]byte) ([]byte, error) {
	t := in.tensor(e)
	data, kind := in.file.gguf.Data(t.Stored), t.Stored.Type
	cols := int64(1) // of a vector, whose rows are its elements
	if len(t.Shape) > 1 {
		cols = t.Shape[len(t.Shape)-1]
	}
	same := unquantizedTypes[kind] == e.Src.Dtype && t.Same()
	if start, plain := t.Plain(); same && plain {
		return data[int64(start)*kind.Size(cols)+first:][:count], nil
	}
	size := cols * int64(e.Src.Dtype.Bits()/8)
	from, to := first/size, (first+count-1)/size+1
	out := buffer.Grow(buf, int((to-from)*size))
	x, read := make([]float32, cols), in.rows(t, int(cols))
	if t.Transposed {
		read = in.transposed(t, int(cols), int(to))
	}
	for i := from; i < to; i++ {
		dst := out[(i-from)*size:][:size]
		if same && t.Columns.Head == 0 && !t.Transposed && !t.Elements {
			stored, at := t.At(int(i))
			copy(dst, in.stored(stored, at, cols))
			continue
		}
		if err := read(x, int(i)); err != nil {
			return nil, err
		}
		if t.Restore(x); same {
			write.AppendFloats(dst[:0], x, plan.ScaleDtype(e.Src.Dtype))
			continue
		}
		imports.PutFloats(dst, x, t.Add)
	}
	return out[first-from*size:][:count], nil
}

// stored returns the bytes of a row of cols weights.
func (in *input) stored(t *gguf.Tensor, row int, cols int64) []byte {
	size := t.Type.Size(cols)
	return in.file.gguf.Data(t)[int64(row)*size:][:size]
}

// rows returns a function that dequantizes rows of a tensor, as they are stored.
func (in *input) rows(t *llamacpp.CheckpointTensor, cols int) func(x []float32, row int) error {
	if t.Elements {
		read := in.elements(t)
		return func(x []float32, row int) error { return read(x, row*len(x)) }
	}
	y := make([]float32, cols)
	var have *llamacpp.Segment
	var turned []float32 // of have
	return func(x []float32, row int) error {
		s, own := t.Segment(row)
		if s.Turned > 0 {
			for c := 0; c < cols && s != have; c++ {
				line := buffer.Grow(&turned, cols*s.Rows)[c*s.Rows:][:s.Rows]
				if err := in.decode(line, s.Stored, s.First+c, 0, in.stored(s.Stored, s.First+c, int64(s.Rows))); err != nil {
					return err
				}
			}
			have = s
			for c := range x {
				x[c] = turned[c*s.Rows+own]
			}
			return nil
		}
		err := in.decode(y, s.Stored, s.First+own, 0, in.stored(s.Stored, s.First+own, int64(cols)))
		if copy(x, y); t.Columns.Head != 0 {
			for i, v := range y {
				x[t.Columns.At(i)] = v
			}
		}
		return err
	}
}

// transposed returns a function that reads rows up to a row of transposed slices. It reads the
// columns that these rows are at once.
func (in *input) transposed(t *llamacpp.CheckpointTensor, cols, to int) func(x []float32, row int) error {
	rows, n := int(t.Shape[1]), t.Stored.Type.BlockWeights()
	var block []float32
	have, first, width := -1, 0, 0 // the slice and the rows in block
	return func(x []float32, row int) error {
		slice, at := row/rows, row%rows
		for i := 0; i < cols && have != slice; i++ {
			first = at / n * n
			width = min(rows, (at+to-row+n-1)/n*n) - first
			stored, line := t.At(slice*cols + i)
			data := in.stored(stored, line, int64(rows))[stored.Type.Size(int64(first)):][:stored.Type.Size(int64(width))]
			if err := in.decode(buffer.Grow(&block, cols*width)[i*width:][:width], stored, line, first, data); err != nil {
				return err
			}
		}
		have = slice
		for i := range x {
			x[i] = block[i*width+at-first]
		}
		return nil
	}
}

// elements returns a function that reads elements from first on, in the checkpoint's order. It
// dequantizes only the blocks that hold them.
func (in *input) elements(t *llamacpp.CheckpointTensor) func(x []float32, first int) error {
	n := t.Stored.Type.BlockWeights()
	size := int(t.Stored.Type.Size(int64(n)))
	block, have, of := make([]float32, n), -1, t.Stored
	return func(x []float32, first int) error {
		for i := range x {
			stored, at := t.At(first + i)
			if b := at / n; b != have || stored != of {
				if err := in.decode(block, stored, 0, b*n, in.file.gguf.Data(stored)[b*size:][:size]); err != nil {
					return err
				}
				have, of = b, stored
			}
			x[i] = block[at%n]
		}
		return nil
	}
}

// decode dequantizes a row from a column on. It fails if a weight of a quantized type is not
// finite, as filler does for scales: NaN in place of a weight is damage, not a value.
func (in *input) decode(x []float32, t *gguf.Tensor, row, column int, data []byte) error {
	if err := t.Type.Decode(x, data); err != nil {
		return fmt.Errorf("%s: tensor %q: %w", in.file.path, t.Name, err)
	}
	if t.Type.BlockWeights() == 1 {
		return nil
	}
	if i := slices.IndexFunc(x, func(v float32) bool { return !floats.Finite(v) }); i >= 0 {
		return fmt.Errorf("%s: tensor %q, row %d: the %s weight in column %d is %v: want finite weights", in.file.path, t.Name, row, t.Type, column+i, x[i])
	}
	return nil
}

// reader takes the codes of rows apart.
type reader struct {
	write.NoSums
	*input
}

func (in *input) Reader(*plan.Codes) write.Reader { return reader{input: in} }

func (in reader) Begin(b *write.Block, _ *write.Result) (fill func(n, i int64) error, end func() error, err error) {
	t, row0 := in.tensor(&b.Item.Entry), int64(b.Unit.Slice)*b.Item.Rows+b.Row0()
	if err := in.readBias(b); err != nil {
		return nil, nil, err
	}
	var f gguf.Fields
	return func(n, i int64) error {
		stored, at := t.At(int(row0 + n))
		if err := stored.Type.Unpack(&f, in.stored(stored, at, stored.Columns())); err != nil {
			return b.Fail(n, err)
		}
		row := b.Row(i)
		copy(row.Codes, f.Codes)
		copy(row.Scales, f.Scales)
		for g, sub := range f.SubScales {
			row.Scales[g] = f.Scales[g*len(f.Scales)/b.Groups] * float32(sub) // exact, see grids
		}
		if t.Columns.Head != 0 { // whole groups have other places
			copy(f.Codes, row.Codes)
			scales, group := slices.Clone(row.Scales), len(row.Codes)/b.Groups
			for g, s := range scales {
				at := t.Columns.At(g * group)
				copy(row.Codes[at:], f.Codes[g*group:][:group])
				row.Scales[at/group] = s
			}
		}
		if err := b.Holds(i); err != nil {
			return b.Fail(n, err)
		}
		return nil
	}, nil, nil
}

func (in *input) readBias(b *write.Block) error {
	rows, first := b.Rows(), int64(b.Unit.Slice)*b.Item.Rows+b.Row0()
	bias := b.GrowBias(rows)
	clear(bias)
	t := in.byName[arch.BiasName(b.Item.Name())]
	if t == nil {
		return nil
	}
	if err := in.elements(t)(bias[:rows], int(first)); err != nil {
		return err
	}
	if i := slices.IndexFunc(bias[:rows], func(v float32) bool { return !floats.Finite(v) }); i >= 0 {
		stored, at := t.At(int(first) + i)
		return fmt.Errorf("%s: tensor %q: element %d is %v: a bias has to be finite", in.file.path, stored.Name, at, bias[i])
	}
	b.PadBias(rows)
	return nil
}

var unquantizedTypes = map[gguf.TensorType]packing.Dtype{gguf.F32: packing.F32, gguf.F16: packing.F16, gguf.BF16: packing.BF16}

// File is an open GGUF file, or the shards of one model.
type File struct {
	path  string
	gguf  *gguf.File
	stats []fs.FileInfo // of the file, or of its shards
}

// Open opens a GGUF file, or the shards of one model.
func Open(path string) (imports.Foreign, error) {
	g, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, gguf: g}
	for _, p := range g.Paths() {
		st, err := os.Stat(p)
		if err != nil {
			g.Close()
			return nil, err
		}
		f.stats = append(f.stats, st)
	}
	return f, nil
}

func (f *File) Close() error    { return f.gguf.Close() }
func (f *File) IsGGUF() bool    { return true }
func (f *File) Noun() string    { return "the .gguf file" }
func (f *File) Paths() []string { return f.gguf.Paths() }
func (f *File) Bytes() int64    { return f.gguf.Size() }

// Quantized describes the quantized tensors, if there are any: "tensors: 42 of Q4_0, 1 of Q8_0".
func (f *File) Quantized() string {
	count := map[string]int{}
	for _, t := range f.gguf.Tensors {
		if t.Type.BlockWeights() > 1 {
			count[t.Type.String()]++
		}
	}
	if len(count) == 0 {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d of %s", count[name], name))
	}
	return "tensors: " + strings.Join(parts, ", ")
}

func (f *File) Sources() (list []provenance.Source, err error) {
	for i, path := range f.gguf.Paths() {
		start := f.stats[i].Size()
		for _, t := range f.gguf.Tensors {
			if t.Shard == i {
				start = min(start, t.Offset)
			}
		}
		sum, err := provenance.HashStart(path, start)
		if err != nil {
			return nil, err
		}
		list = append(list, provenance.NewSource(path, f.stats[i].Size(), sum))
	}
	return list, nil
}
