package quantizer

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
)

// RepackOptions of a job: either Formats or Targets.
type RepackOptions struct {
	// Formats are the layouts that quantized tensors get, each in all of them. A
	// tensor that one cannot hold stays lowbit. Default: lowbit.
	Formats []Format
	// Targets choose layouts and tiles for consumers. Default: none.
	Targets []Target
	// Tile of formats that state none. Default (zero): each layout's own.
	Tile packing.Tile
	// Threads is how many workers run. Default: GOMAXPROCS.
	Threads int
	// Progress is called, from any worker, with bytes that were done since the last call. Default: none.
	Progress func(n int64)
}

// origin is where an item of a repack comes from.
type origin struct {
	tensor gqf.Tensor
	names  []gqf.Name
	first  int // index of names[0] in the image; the others follow
}

// NewRepack lays out the job of putting the tensors of f into other layouts,
// without the checkpoint and without changing a code, scale, zero point or bias.
// Scales may be stored wider (BF16 as F32, exactly), never narrower.
func NewRepack(f *gqf.File, path string, opts RepackOptions) (*Plan, error) {
	recipe := Recipe{Formats: opts.Formats, Targets: opts.Targets, Tile: opts.Tile}
	if err := recipe.Validate(); err != nil {
		return nil, &RequestError{err}
	}
	p := &Plan{file: f, filePath: path, opts: Options{Recipe: recipe, Threads: opts.Threads, Progress: opts.Progress}, Warnings: []string{}}
	pl := &planner{Plan: p}
	names := make([][]gqf.Name, f.Len())
	for n := range f.AllNames() {
		names[n.Tensor] = append(names[n.Tensor], n)
	}
	for i := range f.Len() {
		it, err := pl.fromFile(f.Tensor(i), names[i])
		if err != nil {
			return nil, err
		}
		p.items = append(p.items, it)
	}
	return p, pl.layOut()
}

// fromFile makes the item of a tensor that is quantized, or kept, already.
func (pl *planner) fromFile(t gqf.Tensor, names []gqf.Name) (*item, error) {
	v, ok := t.Payload(0, 0, gqf.KindWeights)
	if !ok {
		return nil, fmt.Errorf("%s: tensor %q has no payload", pl.filePath, t.Name)
	}
	h := v.Header
	it := &item{
		src:  &safetensors.Tensor{Name: t.Name, Dtype: t.Dtype, DtypeName: t.Dtype.String(), Shape: t.Shape, Size: v.Length - packing.HeaderSize},
		role: t.Role, slices: t.Experts, transposed: t.Transposed, from: &origin{tensor: t, names: names},
		rows: int64(h.Rows), cols: int64(h.Cols),
	}
	it.line = &PlanTensor{Name: t.Name, Role: t.Role, Shape: t.Shape, Dtype: it.src.DtypeName, Action: ActionKeep}
	pl.SourceBytes += int64(t.Experts) * it.src.Size
	if h.Layout == packing.LayoutPlain {
		it.variants = []variant{{header: h}}
		return it, nil
	}
	if h.Grid != packing.GridInteger {
		return nil, fmt.Errorf("%s: tensor %q: codes of the half-step grid cannot be repacked", pl.filePath, t.Name)
	}
	it.quantize = true
	it.src.Size = int64(t.Experts) * it.rows * it.cols // as the codes that are read
	it.shared = slices.ContainsFunc(names, func(n gqf.Name) bool { return n.Name != t.Name && !n.Folded })
	it.scheme = Scheme{
		Bits: int(h.Bits), Group: int(h.Group), Mapping: t.Mapping, ScaleDtype: h.ScaleDtype,
		PositiveScales: h.Flags&packing.FlagPositiveScales != 0,
	}
	if err := pl.chooseLayouts(it); err != nil {
		return nil, err
	}
	for i := range it.variants {
		wide := it.variants[i].header
		if wide.Flags |= h.Flags & packing.FlagBias; wide.Validate() == nil {
			it.variants[i].header = wide
		}
	}
	for _, n := range names {
		if n.Name != t.Name && !n.Folded {
			pl.Tensors = append(pl.Tensors, &PlanTensor{Name: n.Name, Role: gqf.RoleHead, Action: ActionShare, Shape: t.Shape, Dtype: it.src.DtypeName, SharedWith: t.Name})
		}
	}
	l := it.line
	l.Action, l.Bits, l.Group, l.Mapping, l.ScaleDtype = ActionQuantize, it.scheme.Bits, it.scheme.Group, t.Mapping, it.scheme.ScaleDtype
	return it, nil
}

// codesOf gives a reader of the codes of a slice that is quantized already.
func (w *worker) codesOf(it *item, slice int, row0 int64) (func(n, i int64), error) {
	rows, err := it.from.tensor.Rows(0, slice)
	if err != nil {
		return nil, err
	}
	zeros := rows.Header().ZeroKind != packing.ZeroNone
	return func(n, i int64) {
		at, g := int(i)*w.stride, int(i)*w.groups
		var z []int8
		if zeros {
			z = w.zeros[g : g+w.groups]
		}
		rows.Codes(w.codes[at:at+int(it.cols)], w.scales[g:g+w.groups], z, int(row0+n))
		w.bias[n] = rows.RowBias(int(row0 + n))
	}, nil
}

// data is the view of a kept tensor's bytes in the file it comes from.
func (o *origin) data(f *gqf.File) ([]byte, error) {
	p, _ := o.tensor.Payload(0, 0, gqf.KindWeights)
	return f.Data(p)
}

// addNames takes over the tensor's names.
func (o *origin) addNames(b *gqf.Builder, tensor int) {
	for i, n := range o.names {
		index := b.AddName(gqf.NameSpec{Name: n.Name, Tensor: tensor, InCheckpoint: n.InCheckpoint, Folded: n.Folded, SourceFile: n.SourceFile, SourceBytes: n.SourceBytes})
		if i == 0 {
			o.first = index
		}
	}
}

// copyAssets takes over all assets of the file; the recipe's layout is what the new file has.
func (p *Plan) copyAssets(b *gqf.Builder) error {
	for _, a := range p.file.Assets() {
		data, err := p.file.Asset(a.Name)
		if err != nil {
			return err
		}
		if a.Kind == gqf.AssetRecipe {
			r, err := ParseRecipe(a.Name, data)
			if err != nil {
				return err
			}
			r.Formats, r.Targets, r.Tile = p.opts.Recipe.Formats, p.opts.Recipe.Targets, p.opts.Recipe.Tile
			if data, err = r.JSON(nil); err != nil {
				return err
			}
		}
		b.AddAsset(gqf.AssetSpec{Kind: a.Kind, Name: a.Name, Data: data})
	}
	return nil
}
