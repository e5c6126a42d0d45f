package fromcheckpoint

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Input is a checkpoint with weights, which become codes.
type Input struct {
	Ck         *safetensors.Checkpoint
	config     []byte // config.json; nil: none
	opts       Options
	scaleBlock [2]int     // of FP8 weights; see safetensors.WeightsOptions
	plan       *plan.Plan // set when it is made
}

// Options are the options of a checkpoint's plan.
type Options struct {
	// Context ends the plan with its error when it is cancelled: many rules take long to match with
	// many tensors. Default (nil): nothing ends it.
	Context context.Context
	// Recipe decides the scheme of each tensor; see Recipe for its defaults.
	Recipe quantizer.Recipe
	// Rules come before the recipe's own.
	Rules []quantizer.Rule
	// Threads is how many workers run. Default: GOMAXPROCS.
	Threads int
	// Origin is set if the checkpoint was folded from another one. Default: none.
	Origin *Origin
	// Sources are the files that the checkpoint was made of, if it is temporary. Default: its own
	// files.
	Sources []provenance.Source
	// Cache has the packed files of the checkpoint. Default (nil): each plan reads and packs them.
	Cache *AssetCache
	// Trial: the plan is one of many, for its sizes alone, so no weights are read for warnings.
	Trial bool
}

// New returns the input of a plan. config is the raw config.json, nil if there is none.
func New(ck *safetensors.Checkpoint, config []byte, opts Options) *Input {
	return &Input{Ck: ck, config: config, opts: opts}
}

func (in *Input) Facts() write.Facts {
	f := write.Facts{Root: in.Ck.Dir(), Weights: true, Remote: in.Ck.Remote()}
	if in.plan != nil {
		f.Bytes = in.plan.SourceBytes
	}
	list := []*safetensors.Checkpoint{in.Ck}
	if o := in.opts.Origin; o != nil {
		list = append(list, o.Checkpoint)
	}
	for i, ck := range list {
		for _, file := range ck.Files() {
			if i == 0 {
				f.Files = append(f.Files, file.Name)
			}
			f.Paths.Input("the checkpoint", filepath.Join(ck.Dir(), file.Name))
		}
	}
	for _, s := range in.opts.Sources {
		f.Paths.Input("the source", s.Path)
	}
	return f
}

func (in *Input) Guard(fn func() error) error { return in.Ck.Guard(fn) }

// Unchanged fails if the checkpoint, or the checkpoint that it was folded from, has changed.
func (in *Input) Unchanged() error {
	if o := in.opts.Origin; o != nil {
		if err := o.Checkpoint.Unchanged(); err != nil {
			return err
		}
	}
	return in.Ck.Unchanged()
}

func (in *Input) Bytes(e *plan.Entry, first, count int64, _ *[]byte) ([]byte, error) {
	view, err := in.Ck.Bytes(*e.Src)
	if err != nil {
		return nil, err
	}
	return view[first:][:count], nil
}

// Advice names a dtype that holds the scale, if the person who runs the job is free to choose it:
// targets and other families' layouts are not.
func (in *Input) Advice(_ *plan.Quantized, e *rounding.ScaleError) string {
	r := in.opts.Recipe
	own := func(f quantizer.LayoutRequest) bool {
		return f.Family == quantizer.FamilyLowbit || f.Family == quantizer.FamilyCodes
	}
	if e == nil || len(r.Targets) > 0 || slices.ContainsFunc(r.Layouts, func(f quantizer.LayoutRequest) bool { return !own(f) }) {
		return rounding.SkipAdvice
	}
	for _, d := range []packing.ScaleDtype{packing.ScaleBF16, packing.ScaleF32} {
		if d.IsScale(d.Round(e.Scale)) {
			return fmt.Sprintf("store %s scales, or %s", d, rounding.SkipAdvice)
		}
	}
	return rounding.SkipAdvice
}

func (in *Input) Asset(name string) ([]byte, error) {
	if name == assets.ConfigName && in.config != nil {
		return in.config, nil
	}
	data, err := assets.ReadAsset(in.Ck.Dir(), name)
	if err == nil && data == nil {
		err = fs.ErrNotExist
	}
	return data, err
}

func (in *Input) Assets() (list []write.SideFile, err error) {
	specs, err := assets.ReadAll(in.Ck.Dir(), in.config)
	if err != nil {
		return nil, err
	}
	for _, a := range specs {
		name, size := a.Name, int64(len(a.Data))
		list = append(list, write.SideFile{Name: name, Size: size, Write: func(w io.Writer) error {
			data, err := in.Asset(name)
			if err == nil && int64(len(data)) != size {
				err = fmt.Errorf("%s was changed while it was read: run the job again", filepath.Join(in.Ck.Dir(), name))
			}
			if err == nil {
				_, err = w.Write(data)
			}
			return err
		}})
	}
	return list, nil
}

func (in *Input) StoredNames(e *plan.Entry) (names []string) {
	if e.Name() == e.Src.Name {
		names = append(names, e.Name())
	}
	for _, n := range e.Aliases {
		if !n.Absent && !n.Absorbed {
			names = append(names, n.Src.Name)
		}
	}
	return names
}

func (in *Input) Absorbed() bool {
	return slices.ContainsFunc(in.plan.Items, func(it plan.Item) bool { return it.Common().Absorbs() })
}

func (in *Input) OpenModel(opts forward.Options) (*forward.Model, error) {
	return forward.OpenCheckpoint(in.Ck.Dir(), opts)
}

// sources are the tensors of the drafts, for llama.cpp's description of the model.
func sourcesOf(drafts []*plan.Draft) (list []llamacpp.Source) {
	for _, d := range drafts {
		list = append(list, llamacpp.Source{Name: d.Name(), Shape: plan.LogicalShape(d.Src.Shape, d.Transposed)})
		for _, n := range d.Aliases {
			if !n.Absorbed {
				list = append(list, llamacpp.Source{Name: n.Src.Name, Shape: d.Src.Shape, Same: d.Name()})
			}
		}
	}
	return list
}

// AssetCache keeps the packed files of a checkpoint, so that only the first plan of a job reads
// and compresses them. It belongs to one job: it does not notice later changes of these files. The
// zero value is empty. Plans may use it concurrently.
type AssetCache struct {
	mu     sync.Mutex // held while files are packed, so that concurrent plans do not pack them twice
	packed map[assetKey][]gqf.PackedAsset
}

// assetKey is everything that decides the bytes of shared assets. It holds the open checkpoint, not
// its directory: another fold may have the same directory.
type assetKey struct {
	ck     *safetensors.Checkpoint
	origin *Origin
	config string
}

// Origin is the checkpoint that a plan's checkpoint was folded from. The file then names it as its
// source.
type Origin struct {
	Checkpoint *safetensors.Checkpoint
	// Record is the asset gq/fold.json, Fold its summary in the provenance.
	Record []byte
	Fold   provenance.Fold
	// Untied tells that folding separated the lm_head from the embedding. The lm_head then gets the
	// embedding's scheme, unless a rule has a scheme for it.
	Untied bool
}

// Weights opens an item's tensor.
func (in *Input) Weights(src *safetensors.Tensor, transposed bool) (*safetensors.Weights, error) {
	return in.Ck.Weights(*src, safetensors.WeightsOptions{Block: in.scaleBlock, Transposed: transposed})
}

func (in *Input) Rows(it plan.Item) (func(dst []float32, slice int, row, n int64), error) {
	src, rows, transposed, elements := it.Common().Src, int64(0), false, false
	switch it := it.(type) {
	case *plan.Unquantized:
		rows, transposed, elements = it.Rows, it.Transposed, it.Cols == 1 && !it.Transposed
	case *plan.Quantized:
		rows, transposed = it.Rows, it.Transposed
	}
	if len(src.Shape) < 2 || elements { // the rows are elements
		view, err := in.Ck.Bytes(*src)
		size := src.Size / max(src.Numel(), 1)
		return func(dst []float32, _ int, row, n int64) {
			safetensors.Widen(dst, view[row*size:(row+n)*size], src.Dtype)
		}, err
	}
	w, err := in.Weights(src, transposed)
	return func(dst []float32, slice int, row, n int64) { w.Widen(dst, slice*int(rows)+int(row), int(n)) }, err
}

// ReadBias reads the biases of the block's unit, if its item has a bias.
func ReadBias(ck *safetensors.Checkpoint, b *write.Block) error {
	t := b.Item.Bias
	if t == nil {
		return nil
	}
	view, err := ck.Bytes(*t)
	if err != nil {
		return err
	}
	rows, first := b.Rows(), int64(b.Unit.Slice)*b.Item.Rows+b.Row0()
	bias, size := b.GrowBias(rows), t.Size/t.Numel()
	safetensors.Widen(bias[:rows], view[first*size:(first+rows)*size], t.Dtype)
	for i, v := range bias[:rows] {
		if !floats.Finite(v) {
			return fmt.Errorf("%s: tensor %q: element %d is %v: a bias has to be finite", ck.Files()[t.File].Name, t.Name, first+int64(i), v)
		}
	}
	b.PadBias(rows)
	return nil
}

// sumScales sums the bytes of block scales that are multiplied into the item, in the item's first
// unit.
func (in *Input) sumScales(e *plan.Entry, u write.Unit, found *write.Result) error {
	if u.Slice != 0 || u.First != 0 || u.Sum {
		return nil
	}
	for _, n := range e.Aliases {
		if !n.Absorbed {
			continue
		}
		view, err := in.Ck.Bytes(n.Src)
		if err != nil {
			return err
		}
		found.ScaleCRC = crc32c.Checksum(view)
	}
	return nil
}

// ranges appends the ranges of the checkpoint that a unit of a .gqf file reads.
func (in *Input) ranges(list []safetensors.Range, u write.Unit) []safetensors.Range {
	it, ok := u.Item.(*plan.Quantized)
	src := u.Item.Common().Src
	switch {
	case !ok || u.Sum:
		return append(list, src.Range(u.First, u.Count))
	case it.Transposed: // gathered from all of the slice
		n := src.Size / int64(it.Slices)
		list = append(list, src.Range(int64(u.Slice)*n, n))
	default:
		row := int64(u.Slice)*it.Rows + u.First*write.BlockRows
		list = append(list, src.Range(row*it.RowBytes(), u.Rows(it)*it.RowBytes()))
	}
	for _, n := range it.Aliases {
		if n.Absorbed {
			list = append(list, n.Src.Range(0, n.Src.Size))
		}
	}
	if b := it.Bias; b != nil {
		size := b.Size / b.Numel()
		list = append(list, b.Range((int64(u.Slice)*it.Rows+u.First*write.BlockRows)*size, u.Rows(it)*size))
	}
	return list
}
