package conversion

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// input is where the tensors of a plan come from: a checkpoint, whose weights become codes, or a .gqf file, whose codes are
// taken over.
type input interface {
	// listFiles adds the files that an output must not overwrite.
	listFiles(set *files.Set)
	// size is the number of bytes that the report says were read.
	size() int64
	// guard runs fn, which reads views of the input.
	guard(fn func() error) error
	// unchanged fails if the input has changed since the plan was made.
	unchanged() error

	// assets are all assets of the output but the provenance of a checkpoint, which is complete only when the file is
	// written.
	assets(pl *planner) ([]gqf.PackedAsset, error)
	// addOrigin adds the names of all tensors and the file's record of its origin.
	addOrigin(b *gqf.Builder, c *CalibratedCodes, hashes []string) error
	// names lists the names of an item in the output, the canonical one first.
	names(e *entry) []string
	// bias is 1 + the index of the item that the input links as an item's bias; 0: none.
	bias(e *entry) int
	// algorithm is the algorithm that chose an item's codes, as the file records it.
	algorithm(it item, c *CalibratedCodes) gqf.Algorithm

	// strided tells whether an item's rows are strided in the input: they are gathered, and its bytes are summed apart.
	strided(it *quantized) bool
	// measured tells whether the results of units are needed.
	measured() bool
	// piece is a range of the bytes of an unquantized item, in the input's memory or in buf, which it may replace.
	piece(e *entry, first, count int64, buf *[]byte) ([]byte, error)
	// filler gives the function that puts row n of a unit into row i of the worker's block.
	filler(w *worker, it *quantized, u unit, r *unitResult) (func(n, i int64) error, error)
	// file is the name of the file with an item.
	file(e *entry) string
	// scaleAdvice says what to do about a scale, or a sum (nil), that an item's layouts cannot hold.
	scaleAdvice(it *quantized, e *rounding.ScaleError) string
}

// checkpointInput is the checkpoint of a plan.
type checkpointInput struct{ *Plan }

func (p checkpointInput) listFiles(set *files.Set) {
	list := []*safetensors.Checkpoint{p.ck}
	if o := p.opts.Origin; o != nil {
		list = append(list, o.Checkpoint)
	}
	for _, ck := range list {
		for _, f := range ck.Files() {
			set.Input("the checkpoint", filepath.Join(ck.Dir(), f.Name))
		}
	}
	for _, s := range p.opts.Sources {
		set.Input("the source", s.path)
	}
}

func (p checkpointInput) size() int64                    { return p.SourceBytes }
func (p checkpointInput) guard(fn func() error) error    { return p.ck.Guard(fn) }
func (p checkpointInput) bytes(e *entry) ([]byte, error) { return p.ck.Bytes(*e.src) }
func (p checkpointInput) piece(e *entry, first, count int64, _ *[]byte) ([]byte, error) {
	view, err := p.bytes(e)
	if err != nil {
		return nil, err
	}
	return view[first:][:count], nil
}

func (p checkpointInput) bias(*entry) int            { return 0 }
func (p checkpointInput) strided(it *quantized) bool { return it.transposed }
func (p checkpointInput) measured() bool             { return true }
func (p checkpointInput) file(e *entry) string       { return p.ck.Files()[e.src.File].Name }

func (p checkpointInput) root() string { return p.ck.Dir() }

func (p checkpointInput) asset(name string) ([]byte, error) {
	if name == "config.json" && p.config != nil {
		return p.config, nil
	}
	data, err := ReadAsset(p.ck.Dir(), name)
	if err == nil && data == nil {
		err = fs.ErrNotExist
	}
	return data, err
}

// files are the files that an asset of a .gqf file would hold.
func (p checkpointInput) files() ([]sideFile, error) {
	specs, err := p.modelFiles()
	if err != nil {
		return nil, err
	}
	var list []sideFile
	for _, a := range specs {
		name, size := a.Name, int64(len(a.Data))
		list = append(list, sideFile{name: name, size: size, write: func(w io.Writer) error {
			data, err := p.asset(name)
			if err == nil && int64(len(data)) != size {
				err = fmt.Errorf("%s was changed while it was read: run the job again", filepath.Join(p.ck.Dir(), name))
			}
			if err == nil {
				_, err = w.Write(data)
			}
			return err
		}})
	}
	return list, nil
}

func (p checkpointInput) storedNames(e *entry) (names []string) {
	if e.name() == e.src.Name {
		names = append(names, e.name())
	}
	for _, n := range e.aliases {
		if !n.absent && !n.absorbed {
			names = append(names, n.src.Name)
		}
	}
	return names
}

func (p checkpointInput) absorbed() bool {
	return slices.ContainsFunc(p.items, func(it item) bool { return it.common().absorbs() })
}

func (p checkpointInput) provenance(c *CalibratedCodes, hashes []string) (recipe, origin []byte, err error) {
	if recipe, err = p.opts.Recipe.JSON(p.opts.Rules); err != nil {
		return nil, nil, err
	}
	origin, err = p.provenanceJSON(c, hashes)
	return recipe, origin, err
}

func (p checkpointInput) reader(it *unquantized) (func(dst []float32, slice int, row, n int64), error) {
	if len(it.src.Shape) < 2 { // a vector, whose rows are its elements
		view, err := p.ck.Bytes(*it.src)
		size := it.src.Size / max(it.src.Numel(), 1)
		return func(dst []float32, _ int, row, n int64) {
			safetensors.Widen(dst, view[row*size:(row+n)*size], it.src.Dtype)
		}, err
	}
	w, err := p.ck.Weights(*it.src, safetensors.WeightsOptions{Block: p.scaleBlock, Transposed: it.transposed})
	return func(dst []float32, slice int, row, n int64) { w.Widen(dst, slice*int(it.rows)+int(row), int(n)) }, err
}

func (p checkpointInput) unchanged() error {
	if o := p.opts.Origin; o != nil {
		if err := o.Checkpoint.Unchanged(); err != nil {
			return err
		}
	}
	return p.ck.Unchanged()
}

func (p checkpointInput) assets(*planner) ([]gqf.PackedAsset, error) {
	shared, err := p.sharedAssets()
	if err != nil {
		return nil, err
	}
	js, err := p.opts.Recipe.JSON(p.opts.Rules)
	if err != nil {
		return nil, err
	}
	recipe, err := gqf.PackAsset(gqf.AssetSpec{Kind: gqf.AssetRecipe, Name: gqf.RecipeName, Data: js})
	return append(slices.Clip(shared), recipe), err
}

func (p checkpointInput) names(e *entry) []string { return e.names() }

// algorithm is the scheme's, or search where calibration has nothing for it.
func (p checkpointInput) algorithm(it item, c *CalibratedCodes) gqf.Algorithm {
	q, ok := it.(*quantized)
	if !ok {
		return gqf.AlgorithmNone
	}
	if q.scheme.Algorithm.Calibrated() && !c.complete(q) {
		return gqf.AlgorithmSearch
	}
	return q.scheme.Algorithm
}

func (p checkpointInput) addOrigin(b *gqf.Builder, c *CalibratedCodes, hashes []string) error {
	names := 0
	for _, it := range p.items {
		names += 1 + len(it.common().aliases)
	}
	b.Grow(0, 0, names)
	for _, it := range p.items {
		e := it.common()
		spec := p.nameSpec(e.index, *e.src)
		if name := e.name(); name != e.src.Name {
			spec = gqf.NameSpec{Name: name, Tensor: e.index, SourceFile: -1}
		}
		b.AddName(spec)
		for _, n := range e.aliases {
			spec := gqf.NameSpec{Name: n.src.Name, Tensor: e.index, SourceFile: -1}
			if !n.absent {
				spec = p.nameSpec(e.index, n.src)
				spec.Absorbed = n.absorbed
			}
			b.AddName(spec)
		}
	}
	js, err := p.provenanceJSON(c, hashes)
	if err != nil {
		return err
	}
	b.AddAsset(gqf.AssetSpec{Kind: gqf.AssetProvenance, Name: gqf.ProvenanceName, Data: js})
	return nil
}

// nameSpec is the record of a name that the checkpoint has.
func (p *Plan) nameSpec(tensor int, src safetensors.Tensor) gqf.NameSpec {
	file := src.File
	if p.opts.Sources != nil {
		file = -1
	} else if o := p.opts.Origin; o != nil {
		file = -1
		if t, ok := o.Checkpoint.Lookup(src.Name); ok {
			file = t.File
		}
	}
	return gqf.NameSpec{Name: src.Name, Tensor: tensor, InCheckpoint: true, SourceFile: file, SourceBytes: src.Size}
}

// filler quantizes rows, or reads the codes that calibration chose.
func (p checkpointInput) filler(w *worker, it *quantized, u unit, r *unitResult) (func(n, i int64) error, error) {
	row0, rows := u.first*blockRows, u.rows(it)
	if w.opened != it {
		var err error
		if w.weights, err = p.weights(it); err != nil {
			return nil, err
		}
		w.opened = it
	}
	if err := p.sumScales(it, u, r); err != nil {
		return nil, err
	}
	src := w.rows(it, u.slice, row0, rows, r)
	if err := w.readBias(it, int64(u.slice)*it.rows+row0, rows); err != nil {
		return nil, err
	}
	m := it.matrix(u.slice)
	chosen := w.calibrated.Tuned.rows(m)
	if chosen == nil {
		chosen = w.calibrated.rows(m)
	}
	if chosen != nil {
		return func(n, i int64) error { return w.chosenRow(it, chosen, u.slice, row0, n, i, src) }, nil
	}
	importance := w.calibrated.importance(m)
	return func(n, i int64) error {
		w.rq.Weigh(importance.Row(int(row0+n)), false)
		return w.row(it, u.slice, row0, n, i, src)
	}, nil
}

// scaleAdvice: a scale that another dtype holds may be stored in it, if the person who runs the job is free to choose it:
// targets and other families' layouts are not.
func (p checkpointInput) scaleAdvice(_ *quantized, e *rounding.ScaleError) string {
	r := p.opts.Recipe
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
