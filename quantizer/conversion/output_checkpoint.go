package conversion

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/model/llamacpp"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// CheckpointOptions are the options of a checkpoint in a format of another library.
type CheckpointOptions struct {
	Format hfquant.Format
	// Split is the greatest size of the tensors in a file: a larger model is divided into shards.
	// Default (0): 5 GB, as Transformers.
	Split int64
	// Dequantize stores weights of a .gqf file that the format cannot hold as float32. Default: they
	// are refused.
	Dequantize bool
}

// shardBytes bounds the tensors of a file, as Transformers does.
const shardBytes = 5_000_000_000

// checkpointOutput makes a directory: safetensors files with the weights in a format, and the files
// beside them. Without a format all weights are dequantized.
type checkpointOutput struct {
	*Plan
	from  modelSource // the plan's input
	opts  CheckpointOptions
	dtype packing.Dtype // of dequantized weights
	cfg   *arch.Config

	specs   []safetensors.TensorSpec
	tensors [][]stored // by the items' index, one for each name that the item has in the checkpoint
	layout  *safetensors.Layout
	beside  []sideFile // without the provenance, which is complete only when the files are written
}

// stored is an item under one of its names: its parts are the specs first, first + 1, ...
type stored struct {
	first  int
	layout *hfquant.Layout // nil: unquantized, one part
}

func newCheckpointOutput(p *Plan, from modelSource, opts CheckpointOptions) *checkpointOutput {
	opts.Split = cmp.Or(opts.Split, shardBytes)
	return &checkpointOutput{Plan: p, from: from, opts: opts, dtype: packing.F32}
}

func (o *checkpointOutput) noun() string { return "the checkpoint" }

// paths refuses a directory that holds a checkpoint, or another model's files.
func (o *checkpointOutput) paths(dir string) ([]string, error) {
	t, err := o.target(&CalibratedCodes{}, nil)
	if err != nil {
		return nil, err
	}
	return t.paths(dir), o.checkDir(dir)
}

// home is the directory that holds the new one, or a directory above it.
func (o *checkpointOutput) home(dir string) string { return existing(dir) }

// begin wants a config.json, which a quantized checkpoint is useless without.
func (o *checkpointOutput) begin(pl *planner, _ []llamacpp.Source) error {
	if o.opts.Format == "" {
		return nil
	}
	if o.config == nil {
		return fmt.Errorf("%s: there is no config.json, which says how a checkpoint is quantized: a checkpoint of format %s cannot be made without it", o.from.root(), o.opts.Format)
	}
	if pl.ck != nil && pl.opts.Recipe.CheckpointFormat() != o.opts.Format {
		return quantizer.Requestf("a checkpoint of format %s holds schemes of its own target only: state the target", o.opts.Format)
	}
	var err error
	o.cfg, err = arch.ParseConfig(o.config)
	return err
}

// store notes the format of a draft. FP8 scales are multiplied into unquantized weights too: the
// config.json of the new checkpoint says nothing of FP8.
func (o *checkpointOutput) store(pl *planner, d *draft) error {
	if d.quantize {
		d.line.Layouts = formatNames(o.opts.Format)
		return nil
	}
	err := pl.findBlockScale(d)
	if d.absorbs() {
		d.as = packing.F32
	}
	return err
}

// formatNames is the format as a plan shows it in place of layouts.
func formatNames(f hfquant.Format) []string { return []string{string(f)} }

// take keeps the codes of a file's tensor.
func (o *checkpointOutput) take(pl *planner, in *fileInput, d *draft, t gqf.Tensor, h packing.Header) error {
	err := o.hold(in, d, t, h)
	switch {
	case err == nil:
		d.line.Layouts = formatNames(o.opts.Format)
		return nil
	case o.opts.Format == "":
		d.leave("")
	case o.opts.Dequantize:
		d.leave(fmt.Sprintf("dequantized: %v", err))
		pl.unfit = append(pl.unfit, d.line)
	default:
		return quantizer.Requestf("%s: tensor %q (%s): %w: quantize the checkpoint again with --target %s, or write such tensors as float32 with --dequantize",
			in.path, t.Name, d.scheme, err, quantizer.CheckpointTargetName(o.opts.Format))
	}
	d.as = o.dtype
	return nil
}

// hold lays out a tensor of a .gqf file. The error says why the format cannot hold its codes.
func (o *checkpointOutput) hold(in *fileInput, d *draft, t gqf.Tensor, h packing.Header) (err error) {
	if o.opts.Format == "" {
		return fmt.Errorf("all weights are dequantized")
	}
	if why := d.noPlace(o.opts.Format); why != "" {
		return errors.New(why)
	}
	switch h.ZeroKind {
	case packing.ZeroNone:
	case packing.ZeroFraction:
		return fmt.Errorf("it has fractional zero points, %s has none", o.opts.Format)
	default:
		d.scheme.Mapping, d.zeros, d.line.ZeroPoints = gqf.MappingAsymmetric, packing.ZeroInt8, rounding.IntegerZeros
		rows, err := t.Rows(0, 0)
		if err != nil {
			return err
		}
		nonInteger := false
		if err := in.guard(func() error { nonInteger = rows.HasNonIntegerZeros(); return nil }); err != nil {
			return err
		}
		if nonInteger {
			return fmt.Errorf("it has floating-point zero points, %s has none", o.opts.Format)
		}
	}
	d.layout, d.stored, err = quantizer.CheckpointLayout(o.opts.Format, t.Name, t.Shape, d.scheme)
	return err
}

// dataBytes counts all parts, under one name.
func (o *checkpointOutput) dataBytes(it item) (n int64, err error) {
	names := o.tensors[it.common().index]
	if len(names) == 0 { // a name that only the model's code knows
		return 0, nil
	}
	for i := range names[0].parts() {
		n += o.layout.Places[names[0].first+i].Size
	}
	return n, nil
}

func (s stored) parts() int {
	if s.layout == nil {
		return 1
	}
	return len(s.layout.Parts)
}

// layOut lists the tensors of the files, and prepares the files beside them.
func (o *checkpointOutput) layOut(pl *planner) error {
	o.nameGroups()
	type place struct {
		name string
		it   item
	}
	var order []place
	for _, it := range pl.items {
		for _, name := range o.namesOf(it.common()) {
			order = append(order, place{name, it})
		}
	}
	slices.SortFunc(order, func(a, b place) int { return strings.Compare(a.name, b.name) })
	o.tensors = make([][]stored, len(pl.items))
	for _, p := range order {
		if err := o.add(p.it, p.name); err != nil {
			return err
		}
	}
	if n := len(pl.unfit); n > 0 && o.opts.Format != "" && o.noneQuantized() {
		return quantizer.Requestf("no weight would be quantized: %q%s: %s", pl.unfit[0].Name, andMore(n-1), pl.unfit[0].Reason)
	}
	if o.opts.Format != "" { // others hold unquantized weights, which all programs load
		o.warnOfUse(pl)
	}
	metadata, err := o.files()
	if err != nil {
		return err
	}
	o.layout, err = safetensors.NewLayout(o.specs, safetensors.WriteOptions{MaxShardBytes: o.opts.Split, Metadata: metadata})
	return err
}

// nameGroups describes rows that are one group by the group that the other weights have, if it is as
// long: config.json then needs no exception for them. The bytes are the same.
func (o *checkpointOutput) nameGroups() {
	groups := map[int64]bool{}
	for it := range o.quantized() {
		groups[it.stored.Group] = true
	}
	for it := range o.quantized() {
		if it.stored.Group != 0 || !groups[it.cols] {
			continue
		}
		s := it.stored
		s.Group = it.cols
		if layout, err := o.opts.Format.NewLayout(it.name(), it.src.Shape, s); err == nil {
			it.stored, it.layout = s, layout
		}
	}
}

func (o *checkpointOutput) noneQuantized() bool {
	for range o.quantized() {
		return false
	}
	return true
}

// warnOfUse names properties that the usual programs do not expect.
func (o *checkpointOutput) warnOfUse(pl *planner) {
	var first *quantized
	n := 0
	for it := range o.quantized() {
		if it.role == gqf.RoleHead && !quantizer.QuantizesHead(o.opts.Format) {
			pl.warn("%q is quantized: vLLM and Transformers expect an unquantized lm_head in %s, and may not load it", it.name(), o.opts.Format)
		}
		if !quantizer.Served(o.opts.Format, it.stored.Bits, it.stored.Group) {
			if n++; first == nil {
				first = it
			}
		}
	}
	weights, _ := o.modelWeights()
	if quantizer.MergesLayers(o.opts.Format) {
		if uneven := hfquant.UnevenLayers(weights); len(uneven) > 0 {
			pl.warn("%q%s: vLLM merges this weight with others, which have another scheme, and cannot load the model: give q, k and v, and gate and up, the same rules", uneven[0], andMore(len(uneven)-1))
		}
	}
	var odd []string
	if o.opts.Format == hfquant.GPTQ {
		odd = hfquant.OddKernels(weights)
	}
	switch {
	case len(odd) > 0: // weights without kernels are among them
		pl.warn("%q%s: vLLM multiplies all weights with one kernel, which does not take this scheme, and cannot load the model: use 4 and 8 bits, groups of 32, 64 or 128, or per channel", odd[0], andMore(len(odd)-1))
	case n > 0:
		pl.warn("%q%s: vLLM has no kernels for %s in %s (docs/CHECKPOINTS.md); other programs may load it", first.name(), andMore(n-1), first.stored, o.opts.Format)
	}
}

// andMore counts further tensors in a message.
func andMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more tensors", n)
}

// add adds the parts of an item under one of its names.
func (o *checkpointOutput) add(it item, name string) error {
	s := stored{first: len(o.specs)}
	e := it.common()
	switch it := it.(type) {
	case *quantized:
		s.layout = it.layout
		if name != e.name() { // the same bytes, with other names of parts
			var err error
			if s.layout, err = o.opts.Format.NewLayout(name, e.src.Shape, it.stored); err != nil {
				return fmt.Errorf("tensor %q: %w", name, err)
			}
		}
		for _, p := range s.layout.Parts {
			o.specs = append(o.specs, safetensors.TensorSpec{Name: p.Name, Dtype: p.Dtype, Shape: p.Shape})
		}
	case *unquantized:
		o.specs = append(o.specs, safetensors.TensorSpec{Name: name, Dtype: cmp.Or(it.as, e.src.Dtype), Shape: e.src.Shape})
	}
	o.tensors[e.index] = append(o.tensors[e.index], s)
	return nil
}

// namesOf lists the names under which an item is stored: the names that the source has, but one alone
// if config.json says that they are tied.
func (o *checkpointOutput) namesOf(e *entry) []string {
	names := o.from.storedNames(e)
	if o.opts.Format == "" {
		return names
	}
	if len(names) == 0 { // an lm_head that only rules separate from the embedding
		names = []string{e.name()}
	}
	if len(names) > 1 && o.cfg.TieWordEmbeddings {
		names = names[:1]
	}
	return names
}

// copyUnits cuts an unquantized item into bytes, or into whole rows if they are converted.
func (o *checkpointOutput) copyUnits(list *unitList, it *unquantized) {
	if it.as == packing.DtypeNone {
		list.cut(unit{item: it}, it.src.Size, unitBytes)
		return
	}
	rowBytes := it.src.Size / (int64(it.slices) * it.rows)
	step := max(1, unitBytes/rowBytes)
	if it.transposed {
		step = scatterRows
	}
	for s := range it.slices {
		list.cut(unit{item: it, slice: s}, it.rows*rowBytes, step*rowBytes)
	}
}

// check reads the files back, and looks at the directory again: another job may have finished in it.
func (o *checkpointOutput) check(j *job, temps *temporaries, path string) error {
	if err := o.checkDir(path); err != nil {
		return err
	}
	start := time.Now()
	err := o.readBack(j.target.(*checkpointTarget), temps, j.calibrated)
	j.seconds += time.Since(start)
	if err != nil {
		return fmt.Errorf("%s was not written: read back, %w", path, err)
	}
	return nil
}
