package reference

import (
	"bytes"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// MaxGroup is the largest number of columns of a group: the sum over a group of a byte times the
// difference of two bytes fits an int32, 128 * 255 * 65536 < 2^31. TorchAO's layout with zero
// points multiplies two differences; above 33,000 columns its sums may exceed int32, which is
// unlikely. They wrap, here and in all kernels.
const MaxGroup = 1 << 16

// Operator is a matrix of packed weights. It is immutable; many goroutines may use it at once.
type Operator struct {
	h       packing.Header
	packer  packing.Packer
	data    []byte
	product product

	rows, cols int
	stride     int // codes of a quantized row of activations: cols rounded up to 32
	group      int // columns of a group; the last group may be short
	groups     int
}

// New prepares products with a payload: its packed header and the data after it, which the Operator
// retains. It fails as layouts.New does, for a layout without a product, for groups above MaxGroup
// and for data of the wrong size.
func New(h packing.Header, data []byte) (*Operator, error) {
	packer, err := layouts.New(h)
	if err != nil {
		return nil, err
	}
	o := &Operator{
		h: h, packer: packer, data: data, product: products[h.Layout],
		rows: int(h.Rows), cols: int(h.Cols), stride: (int(h.Cols) + 31) / 32 * 32, group: int(h.Cols), groups: packer.Groups(),
	}
	if o.groups > 1 {
		o.group = int(h.Group)
	}
	prefix := packer.Prefix()
	switch size := len(prefix) + packer.Panels()*packer.PanelBytes(); {
	case o.product == nil:
		return nil, fmt.Errorf("layout %s has no product", h.Layout)
	case o.group > MaxGroup:
		return nil, fmt.Errorf("groups of %d columns, want at most %d", o.group, MaxGroup)
	case len(data) != size:
		return nil, fmt.Errorf("%d bytes of data, the header needs %d", len(data), size)
	case !bytes.HasPrefix(data, prefix):
		return nil, fmt.Errorf("data of layout %s does not begin with the header of these weights", h.Layout)
	}
	return o, nil
}

// Rows is the number of outputs.
func (o *Operator) Rows() int { return o.rows }

// Cols is the number of inputs.
func (o *Operator) Cols() int { return o.cols }

// Multiply computes m rows of outputs, dst [m][Rows()], from m rows of activations, x [m][Cols()].
func (o *Operator) Multiply(dst, x []float32, m int) {
	o.MultiplyQuantized(dst, o.Quantize(x, m), m)
}

// MultiplyQuantized is Multiply for quantized rows.
func (o *Operator) MultiplyQuantized(dst []float32, a *Activations, m int) {
	if len(dst) != m*o.rows {
		panic(fmt.Sprintf("reference: %d outputs for %d x %d", len(dst), m, o.rows))
	}
	a.check(o, m)
	panel, w := o.packer.NewPanel(), &weights{}
	for p := range o.packer.Panels() {
		size := o.packer.PanelBytes()
		src := o.data[len(o.packer.Prefix())+p*size:][:size]
		o.packer.UnpackPanel(panel, src)
		for r := range o.packer.PanelRows(p) {
			row := p*int(o.h.Tile.NR) + r
			o.read(w, panel, src, row, r)
			for i := range m {
				out := nan
				if a.Bad == nil || !a.Bad[i] {
					out = o.product(o, w, a, i)
				}
				if out != out {
					out = nan
				}
				dst[i*o.rows+row] = out
			}
		}
	}
}

// nan is the only NaN in outputs.
var nan = math.Float32frombits(0x7fc00000)

// Clamp limits outputs to low .. high, which are not NaN: the maximum with low, then the minimum
// with high, where -0 is below +0. NaN stays.
func Clamp(dst []float32, low, high float32) {
	for i, v := range dst {
		if v == v {
			dst[i] = min(max(v, low), high)
		}
	}
}
