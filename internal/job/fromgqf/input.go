package fromgqf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/packing"
)

// Input is a .gqf file. Its tensors are the plan's items, in the same order.
type Input struct {
	gqf  *gqf.File
	path string
	pl   *plan.Planner
	as   func(name string) packing.Dtype // see Dequantize
}

// New returns the input of a file that is open from path. The checksums of all data that are read
// are checked.
func New(f *gqf.File, path string) *Input {
	f.CheckSums()
	return &Input{gqf: f, path: path}
}

func (in *Input) Facts() write.Facts {
	f := write.Facts{Root: in.path, Files: []string{in.path}, Bytes: in.gqf.Size()}
	f.Paths.Input("the .gqf file", in.path)
	return f
}

func (in *Input) Guard(fn func() error) error { return in.gqf.Guard(fn) }

// Unchanged does nothing: the checksums are checked.
func (in *Input) Unchanged() error { return nil }

func (in *Input) Advice(*plan.Quantized, *rounding.ScaleError) string {
	return "repack to another layout, or quantize the checkpoint again"
}

func (in *Input) OpenModel(opts forward.Options) (*forward.Model, error) {
	return forward.OpenGQF(in.gqf, opts)
}

func (in *Input) Asset(name string) ([]byte, error) {
	data, err := in.gqf.Asset(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrNotExist
	}
	return data, err
}

func (in *Input) Assets() (list []write.SideFile, err error) {
	for _, a := range in.gqf.Assets() {
		if a.Kind != gqf.AssetConfig && a.Kind != gqf.AssetFile {
			continue
		}
		if a.Name == assets.ConfigName && a.RawBytes > files.MaxModelFile {
			return nil, fmt.Errorf("%s: asset %q has %d bytes, more than the %d of a config.json", in.path, a.Name, a.RawBytes, files.MaxModelFile)
		}
		list = append(list, write.SideFile{Name: a.Name, Size: a.RawBytes, Write: func(w io.Writer) error {
			_, err := in.gqf.CopyAsset(w, a.Name)
			return err
		}})
	}
	return list, nil
}

// StoredNames lists the names of an item that the checkpoint has, the canonical name first.
func (in *Input) StoredNames(e *plan.Entry) []string {
	return slices.DeleteFunc(e.Names(), func(name string) bool {
		n, ok := in.gqf.FindName(name)
		return !ok || !n.InCheckpoint
	})
}

func (in *Input) Absorbed() bool {
	for n := range in.gqf.AllNames() {
		if n.Absorbed {
			return true
		}
	}
	return false
}

// Provenance is the file's own, with the checksums of the names that the output has.
func (in *Input) Provenance(*plan.Codes, []string, []write.ItemResult) (recipe, origin []byte, err error) {
	var fold []byte
	for name, to := range map[string]*[]byte{gqf.RecipeName: &recipe, gqf.ProvenanceName: &origin, gqf.FoldName: &fold} {
		if *to, err = in.Asset(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
	}
	written := map[int]bool{}
	for _, it := range in.pl.Items {
		n, _ := in.gqf.FindName(it.Common().Src.Name)
		written[n.Tensor] = true
	}
	sums := provenance.SourceSums{}
	for n := range in.gqf.AllNames() {
		if n.SourceCRC != 0 && written[n.Tensor] {
			sums.Set(n.Name, n.SourceCRC)
		}
	}
	origin, err = sums.AddTo(origin, fold)
	return recipe, origin, err
}

// tensor finds an item's tensor by name: an output may leave items out, and count the rest anew.
func (in *Input) tensor(e *plan.Entry) gqf.Tensor {
	t, _ := in.gqf.Lookup(e.Src.Name)
	return t
}

// Rows reads rows of an item: unquantized bytes, or codes.
func (in *Input) Rows(it plan.Item) (func(dst []float32, slice int, row, n int64), error) {
	u, ok := it.(*plan.Unquantized)
	if !ok {
		return in.dequantized(it)
	}
	if p, _ := in.tensor(&u.Entry).Payload(0, 0, gqf.KindWeights); p.Header.Layout != packing.LayoutPlain {
		return in.dequantized(it)
	}
	var views [][]byte
	for s := range in.tensor(&u.Entry).Experts {
		view, err := in.data(&u.Entry, s)
		if err != nil {
			return nil, err
		}
		views = append(views, view)
	}
	size := u.Cols * int64(u.Src.Dtype.Bits()/8)
	return func(dst []float32, slice int, row, n int64) {
		if len(views) == 1 { // which holds all slices
			slice, row = 0, row+int64(slice)*u.Rows
		}
		safetensors.Widen(dst, views[slice][row*size:(row+n)*size], u.Src.Dtype)
	}, nil
}

func (in *Input) dequantized(it plan.Item) (func(dst []float32, slice int, row, n int64), error) {
	t := in.tensor(it.Common())
	slices := make([]*gqf.Rows, t.Experts)
	for s := range slices {
		var err error
		if slices[s], err = t.Rows(0, s); err != nil {
			return nil, err
		}
	}
	return func(dst []float32, slice int, row, n int64) {
		cols := int64(len(dst)) / n
		for i := range n {
			slices[slice].Dequantize(dst[i*cols:][:cols], int(row+i))
		}
	}, nil
}

func (in *Input) AddNames(b *gqf.Builder, _ *plan.Codes, _ []string) error {
	b.CopyNames(in.gqf)
	return nil
}

func (in *Input) data(e *plan.Entry, slice int) ([]byte, error) {
	payload, _ := in.tensor(e).Payload(0, slice, gqf.KindWeights)
	return in.gqf.Data(payload)
}

// Bytes is a view of a slice, or a copy if the bytes are in several slices.
func (in *Input) Bytes(e *plan.Entry, first, count int64, buf *[]byte) ([]byte, error) {
	size := max(1, e.Src.Size/int64(in.tensor(e).Experts))
	for out := []byte(nil); ; {
		view, err := in.data(e, int(first/size))
		if err != nil {
			return nil, err
		}
		view = view[first%size:]
		view = view[:min(int64(len(view)), count-int64(len(out)))]
		if int64(len(view)) == count {
			return view, nil
		}
		if out == nil {
			out = buffer.Grow(buf, int(count))[:0]
		}
		if out = append(out, view...); int64(len(out)) == count {
			return out, nil
		}
		first += int64(len(view))
	}
}

type reader struct {
	write.NoSums
	*Input
}

func (in *Input) Reader(*plan.Codes) write.Reader { return reader{Input: in} }

func (in reader) Begin(b *write.Block, _ *write.Result) (fill func(n, i int64) error, end func() error, err error) {
	it, slice := b.Item, b.Unit.Slice
	t, _ := in.gqf.Lookup(it.Src.Name)
	rows, err := t.Rows(0, slice)
	if err != nil {
		return nil, nil, err
	}
	zeros := rows.Header().ZeroKind != packing.ZeroNone && it.Zeros != packing.ZeroF32
	biases, bias := b.GrowBias(b.Rows()), rows.RowBias
	if rows.Header().Flags&packing.FlagBias == 0 {
		if bias, err = in.biasRows(it, t, slice); err != nil {
			return nil, nil, err
		}
	}
	row0 := int(b.Row0())
	return func(n, i int64) error {
		row := b.Row(i)
		var z []int8
		if zeros {
			z = b.Zeros[int(i)*b.Groups:][:b.Groups]
		}
		rows.Codes(row.Codes, row.Scales, z, row0+int(n))
		if it.Zeros == packing.ZeroF32 {
			rows.FloatZeros(b.RowFloatZeros(i), row0+int(n))
		}
		biases[n] = bias(row0 + int(n))
		if err := b.TooSmall(i); err != nil {
			return b.Fail(n, err)
		}
		return nil
	}, nil, nil
}

// biasRows gives the biases of a slice out of a tensor of their own; 0 where there is none.
func (in *Input) biasRows(it *plan.Quantized, t gqf.Tensor, slice int) (func(row int) float32, error) {
	b := plan.BiasIn(in.gqf, t)
	if b == nil {
		return func(int) float32 { return 0 }, nil
	}
	p, _ := b.Payload(0, 0, gqf.KindWeights)
	data, err := in.gqf.Data(p)
	if err != nil {
		return nil, err
	}
	all := make([]float32, it.Rows)
	n := it.Rows * int64(b.Dtype.Bits()/8)
	safetensors.Widen(all, data[int64(slice)*n:int64(slice+1)*n], b.Dtype)
	return func(row int) float32 { return all[row] }, nil
}
