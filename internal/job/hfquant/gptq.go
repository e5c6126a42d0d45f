package hfquant

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
)

// GPTQ stores a linear layer M of shape [N, K] transposed, in groups of consecutive columns:
//
// 	M.qweight I32 [K*bits/32, N], each column a stream of unsigned codes
// 	M.qzeros  I32 [groups, N*bits/32], each row a stream of unsigned zero points
// 	M.scales  F16 [groups, N]
// 	M.g_idx   I32 [K], the group of each column of the weight; some checkpoints have none
//
// checkpoint_format "gptq" (v1, the default) stores zero points less 1, "gptq_v2" stores them
// unchanged.
//
// Source: PackableQuantLinear in gptqmodel/nn_modules/qlinear/__init__.py of GPTQModel.

// gptqBits are the bits that GPTQModel reads. AutoRound writes 5, 6 and 7 bits in the same way.
var gptqBits = []int{2, 3, 4, 8}

// gptqConfig is the entry of config.json.
type gptqConfig struct {
	Bits         int                        `json:"bits"`
	GroupSize    int64                      `json:"group_size"`
	Sym          bool                       `json:"sym"`
	Checkpoint   string                     `json:"checkpoint_format"`
	Format       string                     `json:"format"` // the same, of GPTQModel
	MarlinFormat bool                       `json:"is_marlin_format"`
	Rotation     string                     `json:"rotation"`
	Dynamic      map[string]json.RawMessage `json:"dynamic"` // rules by regular expressions
}

func findGPTQ(f *finder) error {
	c := gptqConfig{}
	if err := f.readEntry(&c); err != nil {
		return err
	}
	c.Checkpoint = cmp.Or(c.Checkpoint, c.Format)
	subtracted := 1
	switch {
	case c.MarlinFormat:
		return f.unsupported("", "is_marlin_format: codes are in the order of a GPU kernel; only checkpoint_format gptq and gptq_v2 are read")
	case c.Rotation != "":
		return f.unsupported("", "rotation %s: weights that are multiplied with rotated activations are not read", quote(c.Rotation))
	case c.Checkpoint == "gptq_v2":
		subtracted = 0
	case c.Checkpoint != "" && c.Checkpoint != "gptq":
		return f.unsupported("", "checkpoint_format %s is not read: only gptq and gptq_v2 are", quote(c.Checkpoint))
	}
	return f.addAllGPTQ(&c, subtracted)
}

// addAllGPTQ adds the weights of a checkpoint in which stored zero points are less by subtracted.
func (f *finder) addAllGPTQ(c *gptqConfig, subtracted int) error {
	for _, t := range f.ck.Tensors() {
		if module, last := splitName(t.Name); last == "qweight" {
			if err := f.addGPTQ(c, module, t, subtracted); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *finder) addGPTQ(c *gptqConfig, module string, t safetensors.Tensor, subtracted int) error {
	name := module + "weight"
	w := &gptqWeight{subtracted: subtracted}
	n, groups, err := f.transposedScales(&w.transposed, name, module)
	if err != nil {
		return err
	}
	if w.bits, err = f.gptqBits(c, name, module+"qzeros", n, groups); err != nil {
		return err
	}
	words, _, err := f.dimensions(name, t.Name)
	if err != nil {
		return err
	}
	if words*32%int64(w.bits) != 0 {
		return f.formatError(t.Name, "%d rows hold no whole number of codes of %d bits", words, w.bits)
	}
	if w.codes, err = f.part(name, t.Name, []packing.Dtype{packing.I32}, []int64{words, n}); err != nil {
		return err
	}
	if w.zeros, err = f.part(name, module+"qzeros", []packing.Dtype{packing.I32}, []int64{groups, n * int64(w.bits) / 32}); err != nil {
		return err
	}
	k := words * 32 / int64(w.bits)
	scheme := Scheme{Bits: w.bits, Scales: w.scales.dtype}
	if scheme.Group, err = f.transposedGroup(name, c.GroupSize, k, groups, c.Dynamic != nil); err != nil {
		return err
	}
	parts := []string{t.Name, module + "qzeros", module + "scales"}
	if _, ok := f.ck.Lookup(module + "g_idx"); ok {
		if w.order, err = f.groupOrder(name, module+"g_idx", k, &scheme); err != nil {
			return err
		}
		parts = append(parts, module+"g_idx")
	}
	if scheme.Zeros, err = f.gptqZeros(c, w); err != nil {
		return err
	}
	f.q.Format = GPTQ
	return f.add(Weight{Name: name, Shape: []int64{n, k}, Scheme: scheme, codec: w}, parts...)
}

// gptqBits returns the bits of a weight from the shape of its zero points. The rules for modules,
// regular expressions in another dialect than Go's, are not needed.
func (f *finder) gptqBits(c *gptqConfig, weight, name string, n, groups int64) (int, error) {
	rows, words, err := f.dimensions(weight, name)
	if err != nil {
		return 0, err
	}
	for bits := 2; bits <= 8; bits++ {
		if rows != groups || n*int64(bits)%32 != 0 || words != n*int64(bits)/32 {
			continue
		}
		if bits != c.Bits && c.Dynamic == nil {
			return 0, f.formatError(name, "shape [%d, %d] is of %d bits, but quantization_config says %d", rows, words, bits, c.Bits)
		}
		return bits, nil
	}
	return 0, f.formatError(name, "shape [%d, %d], expected [%d, %d*bits/32] with 2 to 8 bits", rows, words, groups, n)
}

// gptqZeros tells whether the weight has zero points. Some checkpoints of symmetric weights store
// zero points as "gptq_v2" does and say "gptq"; kernels for symmetric weights ignore zero points.
func (f *finder) gptqZeros(c *gptqConfig, w *gptqWeight) (Zeros, error) {
	switch {
	case w.storesZeros(-w.subtracted), c.Sym && (w.storesZeros(0) || w.storesZeros(-1)):
		return NoZeros, nil
	case c.Sym && c.Dynamic == nil:
		return 0, f.formatError(w.zeros.name, "quantization_config says sym, but not all zero points are in the middle of the codes")
	}
	return IntZeros, nil
}

type gptqWeight struct {
	transposed
	bits       int
	subtracted int // from the stored zero points
	order      []int32
}

// storesZeros reports whether all stored zero points are z plus 2^(bits-1).
func (w *gptqWeight) storesZeros(z int) bool {
	row := make([]byte, w.zeros.width)
	packCodes(row, slices.Repeat([]int8{int8(z)}, int(w.zeros.width)*8/w.bits), w.bits)
	for g := range int64(len(w.zeros.view)) / w.zeros.width {
		if !bytes.Equal(w.zeros.row(g), row) {
			return false
		}
	}
	return true
}

func (w *gptqWeight) readCodes(row *Row, n int64) error {
	unpackCodes(row.Codes, row.tile.column(w.codes, n), w.bits)
	return nil
}

func (w *gptqWeight) readGroups(row *Row, n int64) error {
	if err := w.readScales(row, n); err != nil {
		return err
	}
	reorder(row.Scales, w.order)
	for g := range min(len(row.Zeros), w.groups()) {
		z := unsignedAt(w.zeros.row(int64(g)), n, w.bits) + w.subtracted
		if z >= 1<<w.bits {
			return fmt.Errorf("tensor %s: row %d: the zero point of group %d is stored as %d: libraries read %d or 0; expected at most %d",
				quote(w.zeros.name), n, g, z-1, z, z-2)
		}
		row.Zeros[g] = int8(z - 1<<(w.bits-1))
	}
	reorder(row.Zeros, w.order)
	return nil
}
