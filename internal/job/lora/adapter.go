package lora

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// Merged is a checkpoint with adapters. Several goroutines may read it at once.
type Merged struct {
	base     *safetensors.Checkpoint
	block    [2]int // of FP8 scales
	tied     bool   // config.json ties the lm_head to the embedding
	changes  map[string]*change
	adapters []*safetensors.Checkpoint
	records  []provenance.Adapter
}

// change is what adapters do to a tensor: from holds its weights, the sum of which with the deltas
// is the merged tensor.
type change struct {
	from     *safetensors.Weights
	replaced string // the adapter that replaces the checkpoint's weights; "": none
	deltas   []delta
}

// delta is scale * B A, of rows that the tensor stores as outputs, or as inputs if swapped is set.
type delta struct {
	a, b      *safetensors.Weights // rank x inputs, outputs x rank
	scale     float32
	swapped   bool
	magnitude []float32 // of DoRA, the length of each row; nil: none

	guard func(read func() error) error // for bytes of the adapter
}

// Open reads adapters that --lora names, in order, and finds the tensors of the checkpoint that
// they change. The caller keeps base open until it has closed the result.
func Open(ctx context.Context, base *safetensors.Checkpoint, names []string) (_ *Merged, err error) {
	m := &Merged{base: base, changes: map[string]*change{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	raw, err := assets.ReadConfig(base)
	if err != nil {
		return nil, err
	}
	if raw != nil {
		c, err := arch.ParseConfig(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(base.Dir(), assets.ConfigName), err)
		}
		m.block, m.tied = c.WeightBlockSize, c.TieWordEmbeddings
	}
	for _, name := range names {
		if err := m.add(ctx, name); err != nil {
			return nil, err
		}
	}
	return m, m.tie()
}

// Close closes the adapters, not the checkpoint.
func (m *Merged) Close() error {
	var errs []error
	for _, ck := range m.adapters {
		errs = append(errs, ck.Close())
	}
	return errors.Join(errs...)
}

type adapter struct {
	*Merged
	ck      *safetensors.Checkpoint
	path    string // of the weights
	config  *config
	scale   float64
	factors map[string]*factors // by module
}

type factors struct {
	a, b, magnitude string // names in the adapter; "": none
	embedding       bool
}

func (m *Merged) add(ctx context.Context, name string) error {
	dir, scale, err := Split(name)
	if err != nil {
		return err
	}
	ad := &adapter{Merged: m, path: filepath.Join(dir, weightsName), scale: scale, factors: map[string]*factors{}}
	raw := []byte(nil)
	if ad.config, raw, err = readConfig(dir); err != nil {
		return err
	}
	if ad.ck, err = safetensors.Open(ad.path, safetensors.Options{Context: ctx}); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			if _, e := os.Stat(filepath.Join(dir, "adapter_model.bin")); e == nil {
				return fmt.Errorf("%s has adapter_model.bin, a pickle file that gq does not read: save the adapter as %s", dir, weightsName)
			}
		}
		return err
	}
	m.adapters = append(m.adapters, ad.ck)
	_, sum, err := workdir.SHA256(ctx, ad.path)
	if err != nil {
		return err
	}
	m.records = append(m.records, provenance.Adapter{Name: filepath.Base(filepath.Clean(dir)), SHA256: sum, ConfigSHA256: fmt.Sprintf("%x", sha256.Sum256(raw)), Scale: scale})
	if len(ad.ck.Tensors()) == 0 {
		return fmt.Errorf("%s has no tensors: expected an adapter", ad.path)
	}
	for _, t := range ad.ck.Tensors() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := ad.sort(t); err != nil {
			return err
		}
	}
	for _, module := range slices.Sorted(maps.Keys(ad.factors)) {
		if err := ad.merge(module, ad.factors[module]); err != nil {
			return err
		}
	}
	return nil
}

func (ad *adapter) errorf(tensor, format string, args ...any) error {
	return fmt.Errorf("%s: tensor %q: %w", ad.path, tensor, fmt.Errorf(format, args...))
}

// outer is how PEFT names the model in its own.
const outer = "base_model.model."

var ends = []struct {
	suffix    string
	at        func(f *factors) *string
	embedding bool
}{
	{".lora_A.weight", func(f *factors) *string { return &f.a }, false},
	{".lora_B.weight", func(f *factors) *string { return &f.b }, false},
	{".lora_embedding_A", func(f *factors) *string { return &f.a }, true},
	{".lora_embedding_B", func(f *factors) *string { return &f.b }, true},
	{".lora_magnitude_vector", func(f *factors) *string { return &f.magnitude }, false},
	{".lora_magnitude_vector.weight", func(f *factors) *string { return &f.magnitude }, false},
}

// sort adds a tensor to its module's factors, or takes it over if it replaces a tensor.
func (ad *adapter) sort(t safetensors.Tensor) error {
	name, ok := strings.CutPrefix(t.Name, outer)
	if !ok {
		return ad.errorf(t.Name, "expected a name of PEFT, with the beginning %s", outer)
	}
	for _, e := range ends {
		module, ok := strings.CutSuffix(name, e.suffix)
		if !ok {
			continue
		}
		f := ad.factors[module]
		if f == nil {
			f = &factors{}
			ad.factors[module] = f
		}
		if *e.at(f) != "" {
			return ad.errorf(t.Name, "%q has the same part of the adapter", *e.at(f))
		}
		*e.at(f), f.embedding = t.Name, f.embedding || e.embedding
		return nil
	}
	if strings.Contains(name, ".lora_") {
		return ad.errorf(t.Name, "gq does not merge such a part of an adapter: merge it in Python (merge_and_unload of peft)")
	}
	return ad.replace(t, strings.ReplaceAll(strings.ReplaceAll(name, ".base_layer.", "."), ".modules_to_save.", "."))
}

// weights opens a tensor of the adapter, and refuses NaN and infinities.
func (ad *adapter) weights(name string) (*safetensors.Weights, error) {
	t, _ := ad.ck.Lookup(name)
	w, err := ad.ck.Weights(t, safetensors.WeightsOptions{})
	if err != nil {
		return nil, err
	}
	row := make([]float32, w.Cols)
	for r := range w.Slices * w.Rows {
		if err := w.Read(row, r, 1); err != nil {
			return nil, err
		}
		if k := slices.IndexFunc(row, func(v float32) bool { return !floats.Finite(v) }); k >= 0 {
			return nil, ad.errorf(name, "row %d, column %d is %v: expected a finite number", r, k, row[k])
		}
	}
	return w, nil
}

// change finds the tensor of the checkpoint with a name of the adapter's model.
func (ad *adapter) change(name, from string) (*change, error) {
	short, long := arch.Names(func(name string) bool { _, ok := ad.base.Lookup(name); return ok })
	_, bare, _ := strings.Cut(name, ".") // a checkpoint of the model without its lm_head
	for _, n := range []string{name, long(name), short(name), bare} {
		t, ok := ad.base.Lookup(n)
		if !ok {
			continue
		}
		if c := ad.changes[t.Name]; c != nil {
			return c, nil
		}
		w, err := ad.base.Weights(t, safetensors.WeightsOptions{Block: ad.block})
		if err != nil {
			return nil, err
		}
		c := &change{from: w}
		ad.changes[t.Name] = c
		return c, nil
	}
	tied := ""
	if ad.tied && strings.HasSuffix(name, "lm_head.weight") {
		tied = ", because its lm_head is tied to the embedding"
	}
	return nil, ad.errorf(from, "%s has no tensor %q%s: does the adapter belong to another model?", ad.base.Dir(), name, tied)
}

// replace has a tensor of modules_to_save, a bias or an embedding replace the checkpoint's tensor.
func (ad *adapter) replace(t safetensors.Tensor, name string) error {
	w, err := ad.weights(t.Name)
	if err != nil {
		return err
	}
	c, err := ad.change(name, t.Name)
	if err != nil {
		return err
	}
	if !slices.Equal(c.from.Tensor.Shape, t.Shape) {
		return ad.errorf(t.Name, "its shape is %v, and the checkpoint's %q has %v", t.Shape, name, c.from.Tensor.Shape)
	}
	same, err := equal(w, c.from)
	switch {
	case err != nil:
		return err
	case same: // PEFT stores embeddings, whether they changed or not
		if c.replaced == "" && len(c.deltas) == 0 {
			delete(ad.changes, c.from.Tensor.Name)
		}
		return nil
	case c.replaced != "" || len(c.deltas) > 0:
		return ad.errorf(t.Name, "it replaces a tensor that an adapter before it changes: leave out one of the two")
	case ad.scale != 1:
		return ad.errorf(t.Name, "it replaces a tensor of the checkpoint, which the scale %v cannot change: leave the scale out", ad.scale)
	}
	name = c.from.Tensor.Name
	c.from, c.replaced = w, ad.path
	c.from.Tensor.Name = name
	return nil
}

func (ad *adapter) merge(module string, f *factors) error {
	first := cmp.Or(f.a, f.b, f.magnitude)
	if f.a == "" || f.b == "" {
		return ad.errorf(first, "the adapter has no other factor of %s: expected lora_A and lora_B", module)
	}
	d := delta{guard: ad.ck.Guard}
	var err error
	if d.a, err = ad.weights(f.a); err != nil {
		return err
	}
	if d.b, err = ad.weights(f.b); err != nil {
		return err
	}
	c, err := ad.change(module+".weight", f.a)
	if err != nil {
		return err
	}
	a, b, w := d.a.Tensor.Shape, d.b.Tensor.Shape, c.from.Tensor.Shape
	if len(a) != 2 || len(b) != 2 || len(w) != 2 {
		return ad.errorf(f.a, "shapes %v and %v for weights of shape %v: gq merges adapters of matrices", a, b, w)
	}
	rank, scale := ad.config.rank(module)
	if int64(rank) != a[0] || int64(rank) != b[1] || rank < 1 {
		return ad.errorf(f.a, "its rank is %d, lora_B's is %d, and %s states %d", a[0], b[1], configName, rank)
	}
	plain, swapped := b[0] == w[0] && a[1] == w[1], b[0] == w[1] && a[1] == w[0]
	if !plain && !swapped {
		return ad.errorf(f.a, "lora_A of shape %v and lora_B of shape %v do not fit weights of shape %v", a, b, w)
	}
	d.swapped = swapped && (!plain || f.embedding || ad.config.FanInFanOut)
	if f.embedding && !d.swapped {
		return ad.errorf(f.a, "lora_embedding_A of shape %v and lora_embedding_B of shape %v do not fit an embedding of shape %v", a, b, w)
	}
	d.scale = float32(float64(ad.scale) * scale)
	if !floats.Finite(d.scale) {
		return ad.errorf(f.a, "its factor is %v: lora_alpha or the scale is too large", d.scale)
	}
	if err := ad.magnitude(&d, c, f); err != nil {
		return err
	}
	c.deltas = append(c.deltas, d)
	return nil
}

// magnitude reads the lengths of rows that DoRA has trained.
func (ad *adapter) magnitude(d *delta, c *change, f *factors) error {
	switch {
	case ad.config.DoRA != (f.magnitude != ""):
		return ad.errorf(f.a, "use_dora in %s is %v, and the module's lora_magnitude_vector is %q", configName, ad.config.DoRA, f.magnitude)
	case f.magnitude == "":
		return nil
	case d.swapped:
		return ad.errorf(f.magnitude, "gq merges DoRA into linear layers only: merge it in Python (merge_and_unload of peft)")
	case ad.scale != 1:
		return ad.errorf(f.magnitude, "DoRA has no scale: leave =%v out", ad.scale)
	case len(c.deltas) > 0:
		return ad.errorf(f.magnitude, "an adapter before it changes %q: DoRA was trained on the checkpoint's weights", c.from.Tensor.Name)
	}
	w, err := ad.weights(f.magnitude)
	if err != nil {
		return err
	}
	d.magnitude = make([]float32, w.Slices*w.Rows*w.Cols)
	if len(d.magnitude) != c.from.Rows {
		return ad.errorf(f.magnitude, "it has %d values: expected one for each of %d rows", len(d.magnitude), c.from.Rows)
	}
	return w.Read(d.magnitude, 0, w.Slices*w.Rows)
}

// tie has an adapter of the embedding change an lm_head that the checkpoint stores although it is
// tied, as PEFT's merge does.
func (m *Merged) tie() error {
	if !m.tied {
		return nil
	}
	_, long := arch.Names(func(name string) bool { _, ok := m.base.Lookup(name); return ok })
	embedding, head := long("model.embed_tokens.weight"), long("lm_head.weight")
	t, stored := m.base.Lookup(head)
	e, h := m.changes[embedding], m.changes[head]
	switch {
	case !stored:
	case h != nil && (e == nil || e.replaced != h.replaced || len(e.deltas) > 0 || len(h.deltas) > 0):
		return fmt.Errorf("%s: tensor %q is tied to the embedding, and an adapter changes it by itself: save the model untied", m.base.Dir(), head)
	case h == nil && e != nil:
		w, err := m.base.Weights(t, safetensors.WeightsOptions{Block: m.block})
		if err != nil {
			return err
		}
		if !slices.Equal(t.Shape, e.from.Tensor.Shape) {
			return nil
		}
		other := *e
		if e.replaced == "" {
			other.from = w
		}
		m.changes[head] = &other
	}
	return nil
}

func equal(a, b *safetensors.Weights) (bool, error) {
	x, y := make([]float32, a.Cols), make([]float32, a.Cols)
	for r := range a.Slices * a.Rows {
		if err := errors.Join(a.Read(x, r, 1), b.Read(y, r, 1)); err != nil {
			return false, err
		}
		if !slices.Equal(x, y) {
			return false, nil
		}
	}
	return true, nil
}
