// Package tocheckpoint stores the items of a plan in a checkpoint: in a format of another library,
// or dequantized. It compares the files with their source before they appear.
package tocheckpoint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Options are the options of a checkpoint in a format of another library.
type Options struct {
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

// Output makes a directory: safetensors files with the weights in a format, and the files
// beside them. Without a format all weights are dequantized.
type Output struct {
	*plan.Plan
	from  write.Model
	root  string // of the input
	opts  Options
	dtype packing.Dtype // of dequantized weights
	cfg   *arch.Config

	Specs   []safetensors.TensorSpec
	tensors [][]stored // by the items' index, one for each name that the item has in the checkpoint
	Layout  *safetensors.Layout
	// without the provenance, which is complete only when the files are written
	beside []write.SideFile
}

// stored is an item under one of its names: its parts are the specs first, first + 1, ...
type stored struct {
	first  int
	layout *hfquant.Layout // nil: unquantized, one part
}

// New returns the output of an input. dtype is the dtype of dequantized weights.
func New(from write.Model, opts Options, dtype packing.Dtype) *Output {
	opts.Split = cmp.Or(opts.Split, shardBytes)
	return &Output{from: from, root: from.Facts().Root, opts: opts, dtype: dtype}
}

func (o *Output) Noun() string { return "the checkpoint" }

// Begin wants a config.json, without which a quantized checkpoint is useless.
func (o *Output) Begin(pl *plan.Planner, _ func() ([]llamacpp.Source, error)) (err error) {
	o.Plan = pl.Plan
	if o.opts.Format == "" {
		return nil
	}
	if o.Config == nil {
		return fmt.Errorf("%s: there is no config.json, which says how a checkpoint is quantized: a checkpoint of format %s cannot be made without it", o.root, o.opts.Format)
	}
	o.cfg, err = arch.ParseConfig(o.Config)
	return err
}

// Store notes the format of a draft. FP8 scales are multiplied into unquantized weights too: the
// config.json of the new checkpoint says nothing of FP8.
func (o *Output) Store(pl *plan.Planner, d *plan.Draft) error {
	if d.Quantize {
		d.Line.Layouts = formatNames(o.opts.Format)
		return nil
	}
	err := pl.FindBlockScale(d)
	switch {
	case d.Absorbs() && d.Src.MXFP4(): // exact
		d.As = packing.BF16
	case d.Absorbs():
		d.As = packing.F32
	}
	return err
}

// formatNames is the format as a plan shows it in place of layouts.
func formatNames(f hfquant.Format) []string { return []string{string(f)} }

// Take keeps the codes of a file's tensor.
func (o *Output) Take(pl *plan.Planner, d *plan.Draft, from plan.FileTensor) error {
	err := o.hold(d, from)
	switch {
	case err == nil:
		d.Line.Layouts = formatNames(o.opts.Format)
		return nil
	case o.opts.Format == "":
		d.Leave("")
	case o.opts.Dequantize:
		d.Leave(fmt.Sprintf("dequantized: %v", err))
		pl.Unfit = append(pl.Unfit, d.Line)
	default:
		return quantizer.Requestf("%s: tensor %q (%s): %w: quantize the checkpoint again with --target %s, or write such tensors as float32 with --dequantize",
			from.Path, from.Name, d.Scheme, err, quantizer.CheckpointTarget(o.opts.Format).Name)
	}
	d.As = o.dtype
	return nil
}

// hold lays out a tensor of a .gqf file. The error says why the format cannot hold its codes.
func (o *Output) hold(d *plan.Draft, from plan.FileTensor) (err error) {
	if o.opts.Format == "" {
		return fmt.Errorf("all weights are dequantized")
	}
	if why := d.NoPlace(o.opts.Format); why != "" {
		return errors.New(why)
	}
	if err := d.TakeIntegerZeros(from, string(o.opts.Format)); err != nil {
		return err
	}
	d.Layout, d.Stored, err = quantizer.CheckpointLayout(o.opts.Format, from.Name, from.Shape, d.Scheme)
	return err
}

// DataBytes counts all parts, under one name.
func (o *Output) DataBytes(it plan.Item) (n int64, err error) {
	names := o.tensors[it.Common().Index]
	if len(names) == 0 { // a name that only the model's code knows
		return 0, nil
	}
	for i := range names[0].parts() {
		n += o.Layout.Places[names[0].first+i].Size
	}
	return n, nil
}

func (s stored) parts() int {
	if s.layout == nil {
		return 1
	}
	return len(s.layout.Parts)
}

// namesOf lists the names under which an item is stored: the names that the source has, but one
// alone if config.json says that they are tied.
func (o *Output) namesOf(e *plan.Entry) []string {
	names := o.from.StoredNames(e)
	if o.opts.Format == "" {
		return names
	}
	if len(names) == 0 { // an lm_head that only rules separate from the embedding
		names = []string{e.Name()}
	}
	if len(names) > 1 && o.cfg.TieWordEmbeddings {
		names = names[:1]
	}
	return names
}

// DequantizeReport describes a finished job.
type DequantizeReport struct {
	Output      string `json:"output"`
	Dequantized int    `json:"dequantized"` // names of tensors
	Unquantized int    `json:"unquantized"`
	Bytes       int64  `json:"bytes"`
	Files       int    `json:"assets"` // config and tokenizer files
}

// DequantizeReport describes the complete checkpoint in dir. It removes the items that are not
// compared with the files from the plan: the list of the written tensors needs the room.
func (o *Output) DequantizeReport(dir string) *DequantizeReport {
	r := &DequantizeReport{Output: dir, Files: len(o.beside)}
	for i, it := range o.Items {
		if it.(*plan.Unquantized).As == packing.DtypeNone {
			r.Unquantized += len(o.tensors[i])
		} else {
			r.Dequantized += len(o.tensors[i])
		}
	}
	for _, p := range o.Layout.Places {
		r.Bytes += p.Size
	}
	o.Tensors, o.Items = nil, slices.DeleteFunc(o.Items, func(it plan.Item) bool {
		return it.(*plan.Unquantized).As != packing.DtypeNone
	})
	return r
}

// modelWeights lists the tensors of the checkpoint. untied: an lm_head that config.json ties to the
// embedding is stored beside it.
func (o *Output) modelWeights() (weights []hfquant.ModelWeight, untied bool) {
	for _, it := range o.Items {
		e := it.Common()
		untied = untied || e.Role == gqf.RoleHead && o.cfg.TieWordEmbeddings
		w := hfquant.ModelWeight{Shape: e.Src.Shape}
		if q, ok := it.(*plan.Quantized); ok {
			w.Scheme = &q.Stored
		} else {
			w.Dtype = e.Src.Dtype
		}
		for _, w.Name = range o.namesOf(e) {
			w.Linear = isLinear(e, w.Name)
			weights = append(weights, w)
		}
	}
	return weights, untied
}

// quantizedConfig is config.json with the entry that says how the weights are quantized, and the
// metadata of the files with weights.
func (o *Output) quantizedConfig() (config []byte, metadata map[string]string, err error) {
	weights, untied := o.modelWeights()
	config = o.Config
	if untied {
		if config, err = hfquant.Untied(config); err != nil {
			return nil, nil, err
		}
	}
	if config, metadata, err = o.opts.Format.Config(config, weights); err != nil {
		return nil, nil, quantizer.Requestf("%s: %w", o.root, err)
	}
	return config, metadata, nil
}

// isLinear reports whether a tensor is the weight of a linear layer under one of its names. The
// second name of an embedding is the lm_head's.
func isLinear(e *plan.Entry, name string) bool {
	switch e.Role {
	case gqf.RoleEmbedding:
		return name != e.Name()
	case gqf.RoleNorm, gqf.RoleConv, gqf.RolePosition, gqf.RoleBias:
		return false
	}
	return len(e.Src.Shape) == 2
}

// LayOut lists the tensors of the files, and prepares the files beside them.
func (o *Output) LayOut(pl *plan.Planner) error {
	o.nameGroups()
	type place struct {
		name string
		it   plan.Item
	}
	var order []place
	for _, it := range pl.Items {
		for _, name := range o.namesOf(it.Common()) {
			order = append(order, place{name, it})
		}
	}
	slices.SortFunc(order, func(a, b place) int { return strings.Compare(a.name, b.name) })
	o.tensors, o.Specs = make([][]stored, len(pl.Items)), make([]safetensors.TensorSpec, 0, len(order))
	for _, p := range order {
		if err := o.add(p.it, p.name); err != nil {
			return err
		}
	}
	if n := len(pl.Unfit); n > 0 && o.opts.Format != "" && !slices.ContainsFunc(o.Items, isQuantized) {
		return quantizer.Requestf("no weight would be quantized: %q%s: %s", pl.Unfit[0].Name, plan.AndMore(n-1), pl.Unfit[0].Reason)
	}
	if o.opts.Format != "" { // others hold unquantized weights, which all programs load
		o.warnOfUse(pl)
	}
	metadata, err := o.files()
	if err != nil {
		return err
	}
	o.Layout, err = safetensors.NewLayout(o.Specs, safetensors.WriteOptions{MaxShardBytes: o.opts.Split, Metadata: metadata})
	return err
}

// nameGroups describes rows that are one group by the group that the other weights have, if it is
// as long: config.json then needs no exception for them. The bytes are the same.
func (o *Output) nameGroups() {
	groups := map[int64]bool{}
	for it := range o.Quantized() {
		groups[it.Stored.Group] = true
	}
	for it := range o.Quantized() {
		if it.Stored.Group != 0 || !groups[it.Cols] {
			continue
		}
		s := it.Stored
		s.Group = it.Cols
		if layout, err := o.opts.Format.NewLayout(it.Name(), it.Src.Shape, s); err == nil {
			own := *it.Form
			own.Stored = s
			it.Form, it.Layout = &own, layout
		}
	}
}

func isQuantized(it plan.Item) bool { _, ok := it.(*plan.Quantized); return ok }

func (o *Output) warnOfUse(pl *plan.Planner) {
	var first *plan.Quantized
	n := 0
	for it := range o.Quantized() {
		if it.Role == gqf.RoleHead && !o.opts.Format.QuantizesHead() {
			pl.Warn("%q is quantized: vLLM and Transformers expect an unquantized lm_head in %s, and may not load it", it.Name(), o.opts.Format)
		}
		if !o.opts.Format.Served(it.Stored.Bits, it.Stored.Group) {
			if n++; first == nil {
				first = it
			}
		}
	}
	weights, _ := o.modelWeights()
	if o.opts.Format.MergesLayers() {
		if uneven := hfquant.UnevenLayers(weights); len(uneven) > 0 {
			pl.Warn("%q%s: vLLM merges this weight with others, which have another scheme, and cannot load the model: give q, k and v, and gate and up, the same rules", uneven[0], plan.AndMore(len(uneven)-1))
		}
	}
	var odd []string
	if o.opts.Format == hfquant.GPTQ {
		odd = hfquant.OddKernels(weights)
	}
	switch {
	case len(odd) > 0: // weights without kernels are among them
		pl.Warn("%q%s: vLLM multiplies all weights with one kernel, which does not take this scheme, and cannot load the model: use 4 and 8 bits, groups of 32, 64 or 128, or per channel", odd[0], plan.AndMore(len(odd)-1))
	case n > 0:
		pl.Warn("%q%s: vLLM has no kernels for %s in %s (docs/CHECKPOINTS.md); other programs may load it", first.Name(), plan.AndMore(n-1), first.Stored, o.opts.Format)
	}
}

// add adds the parts of an item under one of its names.
func (o *Output) add(it plan.Item, name string) error {
	s := stored{first: len(o.Specs)}
	e := it.Common()
	switch it := it.(type) {
	case *plan.Quantized:
		s.layout = it.Layout
		if name != e.Name() { // the same bytes, with other names of parts
			var err error
			if s.layout, err = o.opts.Format.NewLayout(name, e.Src.Shape, it.Stored); err != nil {
				return fmt.Errorf("tensor %q: %w", name, err)
			}
		}
		for _, p := range s.layout.Parts {
			o.Specs = append(o.Specs, safetensors.TensorSpec{Name: p.Name, Dtype: p.Dtype, Shape: p.Shape})
		}
	case *plan.Unquantized:
		o.Specs = append(o.Specs, safetensors.TensorSpec{Name: name, Dtype: cmp.Or(it.As, e.Src.Dtype), Shape: e.Src.Shape})
	}
	o.tensors[e.Index] = append(o.tensors[e.Index], s)
	return nil
}
