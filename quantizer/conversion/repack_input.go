package conversion

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
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// fileInput is the .gqf file that a plan repacks. Its tensors are the plan's items, in the same order.
type fileInput struct {
	gqf    *gqf.File
	path   string
	recipe quantizer.Recipe // its layouts
	stored [][]string       // see storedNames
}

func (in *fileInput) listFiles(set *files.Set)    { set.Input("the .gqf file", in.path) }
func (in *fileInput) size() int64                 { return in.gqf.Size() }
func (in *fileInput) guard(fn func() error) error { return in.gqf.Guard(fn) }
func (in *fileInput) unchanged() error            { return nil } // the checksums are checked
func (in *fileInput) names(e *entry) []string     { return in.gqf.Tensor(e.index).Names() }
func (in *fileInput) bias(e *entry) int           { return in.gqf.Tensor(e.index).Bias + 1 }
func (in *fileInput) strided(*quantized) bool     { return false }
func (in *fileInput) measured() bool              { return false }
func (in *fileInput) file(*entry) string          { return in.path }

func (in *fileInput) algorithm(it item, _ *CalibratedCodes) gqf.Algorithm {
	return in.gqf.Tensor(it.common().index).Algorithm
}

func (in *fileInput) scaleAdvice(*quantized, *rounding.ScaleError) string {
	return "repack to another layout, or quantize the checkpoint again"
}

func (in *fileInput) root() string { return in.path }

func (in *fileInput) asset(name string) ([]byte, error) {
	data, err := in.gqf.Asset(name)
	if _, ok := errors.AsType[*gqf.NoAssetError](err); ok {
		return nil, fs.ErrNotExist
	}
	return data, err
}

func (in *fileInput) files() (list []sideFile, err error) {
	for _, a := range in.gqf.Assets() {
		if a.Kind != gqf.AssetConfig && a.Kind != gqf.AssetFile {
			continue
		}
		if a.Name == configName && a.RawBytes > files.MaxModelFile {
			return nil, fmt.Errorf("%s: asset %q has %d bytes, more than the %d of a config.json", in.path, a.Name, a.RawBytes, files.MaxModelFile)
		}
		list = append(list, sideFile{name: a.Name, size: a.RawBytes, write: func(w io.Writer) error {
			_, err := in.gqf.CopyAsset(w, a.Name)
			return err
		}})
	}
	return list, nil
}

// storedNames reads all names of the file at the first call.
func (in *fileInput) storedNames(e *entry) []string {
	if in.stored == nil {
		in.stored = make([][]string, in.gqf.Len())
		for n := range in.gqf.AllNames() {
			if n.InCheckpoint && !n.Absorbed {
				in.stored[n.Tensor] = append(in.stored[n.Tensor], n.Name)
			}
		}
		for i, list := range in.stored { // the canonical name first
			canonical := in.gqf.Tensor(i).Name
			slices.SortStableFunc(list, func(a, b string) int { return boolOrder(a != canonical, b != canonical) })
		}
	}
	return in.stored[e.index]
}

// boolOrder is less than 0 if only b is true.
func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (in *fileInput) absorbed() bool {
	for n := range in.gqf.AllNames() {
		if n.Absorbed {
			return true
		}
	}
	return false
}

// provenance is the file's own.
func (in *fileInput) provenance(*CalibratedCodes, []string) (recipe, origin []byte, err error) {
	for name, to := range map[string]*[]byte{gqf.RecipeName: &recipe, gqf.ProvenanceName: &origin} {
		if *to, err = in.asset(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
	}
	return recipe, origin, nil
}

func (in *fileInput) reader(it *unquantized) (func(dst []float32, slice int, row, n int64), error) {
	if it.as != packing.DtypeNone {
		return in.dequantized(it)
	}
	view, err := in.bytes(&it.entry)
	size := it.cols * int64(it.src.Dtype.Bits()/8)
	return func(dst []float32, slice int, row, n int64) {
		row += int64(slice) * it.rows
		safetensors.Widen(dst, view[row*size:(row+n)*size], it.src.Dtype)
	}, err
}

// dequantized reads rows of codes.
func (in *fileInput) dequantized(it *unquantized) (func(dst []float32, slice int, row, n int64), error) {
	t := in.gqf.Tensor(it.index)
	slices := make([]*gqf.Rows, t.Experts)
	for s := range slices {
		var err error
		if slices[s], err = t.Rows(0, s); err != nil {
			return nil, err
		}
	}
	return func(dst []float32, slice int, row, n int64) {
		for i := range n {
			slices[slice].Dequantize(dst[i*it.cols:][:it.cols], int(row+i))
		}
	}, nil
}

func (in *fileInput) addOrigin(b *gqf.Builder, _ *CalibratedCodes, _ []string) error {
	b.CopyNames(in.gqf)
	return nil
}

func (in *fileInput) bytes(e *entry) ([]byte, error) {
	payload, _ := in.gqf.Tensor(e.index).Payload(0, 0, gqf.KindWeights)
	return in.gqf.Data(payload)
}

func (in *fileInput) piece(e *entry, first, count int64, _ *[]byte) ([]byte, error) {
	view, err := in.bytes(e)
	if err != nil {
		return nil, err
	}
	return view[first:][:count], nil
}

// assets takes over all assets; the recipe states the layout of the new file.
func (in *fileInput) assets(pl *planner) (list []gqf.PackedAsset, err error) {
	for _, a := range in.gqf.Assets() {
		if !a.Kind.Known() {
			pl.warn("asset %q is of a kind that this version does not know, and is left out: use a newer gq", a.Name)
			continue
		}
		get := in.gqf.PackedAsset
		switch a.Kind {
		case gqf.AssetRecipe:
			get = func(name string) (gqf.PackedAsset, error) { return in.repackedRecipe(pl, name) }
		case gqf.AssetProvenance:
			get = in.repackedProvenance
		}
		packed, err := get(a.Name)
		if err != nil {
			return nil, err
		}
		list = append(list, packed)
	}
	return list, nil
}

// filler reads the codes of rows.
func (in *fileInput) filler(w *worker, it *quantized, u unit, _ *unitResult) (func(n, i int64) error, error) {
	row0, rows := u.first*blockRows, u.rows(it)
	buffer.Grow(&w.bias, int((rows+blockRows-1)/blockRows*blockRows))
	read, err := in.codes(w, it, u.slice, row0)
	return func(n, i int64) error {
		read(n, i)
		if err := w.tooSmall(i); err != nil {
			return w.rowError(it, u.slice, row0+n, err)
		}
		return nil
	}, err
}

// tooSmall finds a scale in row i of the block, of a file that is repacked, that a layout
// cannot hold.
func (w *worker) tooSmall(i int64) error {
	for g, s := range w.scales[int(i)*w.groups : (int(i)+1)*w.groups] {
		if floats.Abs(s) < w.smallest && !(s == 0 && holdsZeroScales(w.item.variants)) {
			return &rounding.ScaleError{Group: g, Scale: s, Dtype: w.item.scheme.ScaleDtype, Smallest: w.smallest}
		}
	}
	return nil
}

// codes gives a reader of the codes of a slice that is quantized already.
func (in *fileInput) codes(w *worker, it *quantized, slice int, row0 int64) (func(n, i int64), error) {
	t, _ := in.gqf.Lookup(it.src.Name)
	rows, err := t.Rows(0, slice)
	if err != nil {
		return nil, err
	}
	zeros := rows.Header().ZeroKind != packing.ZeroNone && it.zeros != packing.ZeroF32
	bias := rows.RowBias
	if rows.Header().Flags&packing.FlagBias == 0 {
		if bias, err = in.biasRows(it, t, slice); err != nil {
			return nil, err
		}
	}
	return func(n, i int64) {
		at, g := int(i)*w.stride, int(i)*w.groups
		var z []int8
		if zeros {
			z = w.zeros[g : g+w.groups]
		}
		rows.Codes(w.codes[at:at+int(it.cols)], w.scales[g:g+w.groups], z, int(row0+n))
		if it.zeros == packing.ZeroF32 {
			rows.FloatZeros(w.floatZeros[g:g+w.groups], int(row0+n))
		}
		w.bias[n] = bias(int(row0 + n))
	}, nil
}

// biasIn finds the unquantized tensor with the biases of t in a file, under the names that
// findBias knows; nil if there is none.
func biasIn(f *gqf.File, t gqf.Tensor) *gqf.Tensor {
	rows, _ := t.Payload(0, 0, gqf.KindWeights)
	for _, name := range t.Names() {
		b, ok := f.Lookup(biasName(name))
		if ok && b.Dtype.IsFloat() && b.Elements() == int64(t.Experts)*int64(rows.Header.Rows) {
			return &b
		}
	}
	return nil
}

// biasRows gives the biases of a slice out of a tensor of their own; 0 where there is none.
func (in *fileInput) biasRows(it *quantized, t gqf.Tensor, slice int) (func(row int) float32, error) {
	b := biasIn(in.gqf, t)
	if b == nil {
		return func(int) float32 { return 0 }, nil
	}
	p, _ := b.Payload(0, 0, gqf.KindWeights)
	data, err := in.gqf.Data(p)
	if err != nil {
		return nil, err
	}
	all := make([]float32, it.rows)
	n := it.rows * int64(b.Dtype.Bits()/8)
	safetensors.Widen(all, data[int64(slice)*n:int64(slice+1)*n], b.Dtype)
	return func(row int) float32 { return all[row] }, nil
}
