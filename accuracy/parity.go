package accuracy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// Parity says whether a kernel gives the bits of the portable reference for a payload.
type Parity struct {
	Tensor  string `json:"tensor"` // canonical name
	Slice   int    `json:"slice"`
	Variant int    `json:"variant"`
	Layout  string `json:"layout"`
	Tile    string `json:"tile,omitempty"`
	Bits    int    `json:"bits"`
	Group   int    `json:"group"`
	Rows    int64  `json:"rows"`
	Cols    int64  `json:"cols"`
	// Panels are the panels that were multiplied, out of PanelsOf. A panel of a plain payload is 8
	// rows.
	Panels   []int `json:"panels"`
	PanelsOf int   `json:"panels_of"`
	// Machine names the other machine; "" is this one.
	Machine string `json:"machine,omitempty"`
	Kernel  string `json:"kernel"`
	CPU     string `json:"cpu"` // the instruction set that kernels were limited to
	// M lists the numbers of rows of activations that the kernel was run on.
	M     []int `json:"m"`
	Equal bool  `json:"equal"`
	// FirstDifference says where outputs differ.
	FirstDifference string `json:"first_difference,omitempty"`
	// NoKernel says why there is nothing to compare. Equal is then true.
	NoKernel string `json:"no_kernel,omitempty"`
}

// ParityOptions are the options of CheckParity and ParityDigest. The zero value is good.
type ParityOptions struct {
	// Threads is how many goroutines work. Default: GOMAXPROCS. Results do not depend on it.
	Threads int
	// Match chooses tensors by any of their names. Default: all.
	Match func(name string) bool
	// All checks every payload. Default: among payloads that differ only in rows and bytes, which
	// the same kernels read in the same way, the first, the last and two between are checked.
	All bool
}

const (
	parityPayloads = 4 // of a sort
	parityPanels   = 4 // of a payload
	parityRows     = 24
)

// parityM are the numbers of rows of activations per run: one, as in decoding, and several that
// fill the steps of kernels or do not. The last is all rows.
var parityM = []int{1, 4, 7, parityRows}

// Digests are the outputs of one machine's kernels for a file, hashed, for another machine to
// compare.
type Digests struct {
	Version  int             `json:"version"` // of this format, and of the activations
	OS       string          `json:"os"`
	Arch     string          `json:"arch"`
	CPU      []string        `json:"cpu"` // instruction sets, as kernels.Features lists them
	Size     int64           `json:"file_bytes"`
	Payloads []PayloadDigest `json:"payloads"`
}

// digestsVersion is the version of Digests. 1: the first one.
const digestsVersion = 1

// PayloadDigest holds the hashes of the kernels' outputs for a payload.
type PayloadDigest struct {
	// Payload is the Parity without the fields about kernels.
	Payload Parity `json:"payload"`
	// Reference is the SHA-256 of the outputs of the portable reference.
	Reference string         `json:"reference_sha256,omitempty"`
	Kernels   []KernelDigest `json:"kernels,omitempty"`
}

// KernelDigest is the hash of a kernel's outputs for a payload.
type KernelDigest struct {
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	M      []int  `json:"m"`
	// SHA256 hashes the outputs. If any differ from the reference, it hashes the first ones that
	// do.
	SHA256          string `json:"sha256"`
	FirstDifference string `json:"first_difference,omitempty"`
}

// CheckParity compares every kernel that this machine has for a payload with the portable
// reference, bit for bit: for each instruction set, the kernels selected for 1, 4, 7 and 24 rows of
// activations. The activations include zeros, subnormal and huge numbers, NaN, infinities, and rows
// of equal signs. Payloads and panels are sampled: see ParityOptions and Parity.Panels.
//
// Plain F32, F16 and BF16 payloads that are multiplied are compared with the portable kernel.
func CheckParity(ctx context.Context, f *gqf.File, o ParityOptions) ([]Parity, error) {
	d, err := ParityDigest(ctx, f, o)
	if err != nil {
		return nil, err
	}
	return d.compare(d, ""), nil
}

// compare compares the kernels of d with the references of want, which is of the same file.
func (d *Digests) compare(want *Digests, machine string) []Parity {
	var list []Parity
	for i, p := range d.Payloads {
		result := p.Payload
		result.Machine = machine
		if result.NoKernel != "" {
			result.Equal = true
			list = append(list, result)
		}
		reference := want.Payloads[i].Reference
		for _, k := range p.Kernels {
			result.Kernel, result.CPU, result.M = k.Kernel, k.CPU, k.M
			result.Equal, result.FirstDifference = k.SHA256 == reference && k.FirstDifference == "", k.FirstDifference
			if !result.Equal && result.FirstDifference == "" {
				result.FirstDifference = "this kernel and the reference of its machine agree, but that reference gives other bits than the one here"
			}
			list = append(list, result)
		}
	}
	return list
}

// ParityDigest hashes the outputs that CheckParity compares.
func ParityDigest(ctx context.Context, f *gqf.File, o ParityOptions) (*Digests, error) {
	return digests(ctx, f, o, kernels.Features())
}

func digests(ctx context.Context, f *gqf.File, o ParityOptions, features []string) (*Digests, error) {
	f.CheckSums()
	d := &Digests{Version: digestsVersion, OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: kernels.Features(), Size: f.Size()}
	payloads := parityPayloadsOf(f, o)
	d.Payloads = make([]PayloadDigest, len(payloads))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range cpu.Threads(o.Threads) {
		wg.Go(func() {
			w := kernels.NewWorkspace(nil)
			for ctx.Err() == nil {
				i := int(next.Add(1) - 1)
				if i >= len(payloads) {
					return
				}
				p := payloads[i]
				data, err := f.Data(p)
				if err == nil {
					err = f.Guard(func() (err error) {
						d.Payloads[i], err = digest(w, f.Tensor(p.Tensor), p, data, features)
						return err
					})
				}
				if err != nil {
					stop(fmt.Errorf("tensor %q: %w", f.Tensor(p.Tensor).Name, err))
					return
				}
			}
		})
	}
	wg.Wait()
	return d, context.Cause(ctx)
}

// parityPayloadsOf chooses payloads, in the file's order.
func parityPayloadsOf(f *gqf.File, o ParityOptions) []gqf.Payload {
	var chosen []gqf.Payload
	sorts := map[packing.Header][]gqf.Payload{}
	for i := range f.Len() {
		t := f.Tensor(i)
		if !matches(t, o.Match) {
			continue
		}
		for _, p := range t.Payloads() {
			if p.Kind != gqf.KindWeights || p.Header.Layout == packing.LayoutPlain && !plainMatrix(t, p.Header) {
				continue
			}
			if o.All {
				chosen = append(chosen, p)
				continue
			}
			sort := p.Header
			sort.Rows = 0
			sorts[sort] = append(sorts[sort], p)
		}
	}
	for _, list := range sorts {
		for _, i := range spread(len(list), parityPayloads) {
			chosen = append(chosen, list[i])
		}
	}
	slices.SortFunc(chosen, func(a, b gqf.Payload) int { return a.Index - b.Index })
	return chosen
}

// plainMatrix reports whether a plain payload is the matrix of a linear layer.
func plainMatrix(t gqf.Tensor, h packing.Header) bool {
	switch t.Role {
	case gqf.RoleProjection, gqf.RoleHead, gqf.RoleRouter:
	case gqf.RoleEmbedding:
		if len(t.Names()) == 1 {
			return false
		}
	default:
		return false
	}
	return len(t.Shape) == 2 && h.Rows > 0 && h.Cols > 0 && slices.Contains([]packing.Dtype{packing.F32, packing.F16, packing.BF16}, h.Dtype)
}

// spread chooses at most n numbers below all: the first, the last, and others evenly between.
func spread(all, n int) []int {
	var list []int
	for i := range min(all, n) {
		if all <= n {
			list = append(list, i)
		} else {
			list = append(list, i*(all-1)/(n-1))
		}
	}
	return list
}

// somePanels copies some panels of a payload into a payload of their own.
func somePanels(h packing.Header, data []byte, panels []int) (packing.Header, []byte, error) {
	if h.Layout == packing.LayoutPlain {
		size := int(h.Cols) * h.Dtype.Bits() / 8
		var part []byte
		for _, i := range panels {
			part = append(part, data[i*panelRows*size:min((i+1)*panelRows, int(h.Rows))*size]...)
		}
		h.Rows = uint64(len(part) / size)
		return h, part, nil
	}
	whole, err := layouts.New(h)
	if err != nil {
		return h, nil, err
	}
	h.Rows = 0
	for _, i := range panels {
		h.Rows += uint64(whole.PanelRows(i))
	}
	h = h.Canonical()
	p, err := layouts.New(h)
	if err != nil {
		return h, nil, err
	}
	prefix, size := len(whole.Prefix()), whole.PanelBytes()
	part := slices.Clone(p.Prefix())
	for _, i := range panels {
		part = append(part, data[prefix+i*size:][:size]...)
	}
	return h, part, nil
}

// operators makes the reference and the operator of each instruction set.
func operators(h packing.Header, data []byte, features []string) (ref kernels.Operator, ops []kernels.Operator, err error) {
	float := h.Layout == packing.LayoutPlain
	if float {
		ref, err = kernels.NewFloat(h, data, kernels.Options{CPU: "generic"})
	} else {
		ref, err = kernels.NewReference(h, data)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, feature := range features {
		var op kernels.Operator
		if o := (kernels.Options{CPU: feature}); float {
			op, err = kernels.NewFloat(h, data, o)
		} else {
			op, err = kernels.NewLinear(h, data, o)
		}
		if err != nil {
			return nil, nil, err
		}
		ops = append(ops, op)
	}
	return ref, ops, nil
}

// digest hashes the kernels' outputs for a payload.
func digest(w *kernels.Workspace, t gqf.Tensor, p gqf.Payload, data []byte, features []string) (PayloadDigest, error) {
	h := p.Header
	nr := panelRows
	if h.Layout != packing.LayoutPlain {
		nr = max(int(h.Tile.NR), 1)
	}
	panels := int((h.Rows + uint64(nr) - 1) / uint64(nr))
	d := PayloadDigest{Payload: Parity{
		Tensor: t.Name, Slice: p.Slice, Variant: p.Variant, Layout: h.Layout.String(), Tile: h.Tile.String(),
		Bits: int(h.Bits), Group: int(h.Group), Rows: int64(h.Rows), Cols: int64(h.Cols), PanelsOf: panels,
	}}
	if h.Layout == packing.LayoutPlain {
		d.Payload.Bits = h.Dtype.Bits()
	}
	d.Payload.Panels = spread(panels, parityPanels)
	part, data, err := somePanels(h, data, d.Payload.Panels)
	if err != nil {
		return d, err
	}
	ref, ops, err := operators(part, data, features)
	var unsupported *kernels.UnsupportedError
	if errors.As(err, &unsupported) {
		d.Payload.NoKernel, d.Payload.Panels = unsupported.Error(), []int{}
		return d, nil
	}
	if err != nil {
		return d, err
	}
	x := parityInputs(int(h.Cols))
	want, got := make([]float32, parityRows*part.Rows), make([]float32, parityRows*part.Rows)
	if err := ref.Forward(w, want, x, parityRows); err != nil {
		return d, err
	}
	d.Reference = hashOf(want)
	for i, op := range ops {
		if err := d.run(w, op, features[i], x, want, got); err != nil {
			return d, err
		}
	}
	return d, nil
}

// run runs the kernel that op selects, and adds it unless it has run on as many rows before.
func (d *PayloadDigest) run(w *kernels.Workspace, op kernels.Operator, feature string, x, want, got []float32) error {
	for _, m := range parityM {
		name := op.Kernel(m)
		if slices.ContainsFunc(d.Kernels, func(k KernelDigest) bool { return k.Kernel == name && slices.Contains(k.M, m) }) {
			continue
		}
		rows, cols := op.Rows(), op.Cols()
		for from := 0; from < parityRows; from += m {
			n := min(m, parityRows-from)
			if err := op.Forward(w, got[from*rows:][:n*rows], x[from*cols:][:n*cols], n); err != nil {
				return err
			}
		}
		at := slices.IndexFunc(d.Kernels, func(k KernelDigest) bool { return k.Kernel == name })
		if at < 0 {
			at = len(d.Kernels)
			d.Kernels = append(d.Kernels, KernelDigest{Kernel: name, CPU: feature, SHA256: d.Reference})
		}
		k := &d.Kernels[at]
		k.M = append(k.M, m)
		if diff := d.difference(want, got, rows, m); diff != "" && k.FirstDifference == "" {
			k.FirstDifference, k.SHA256 = diff, hashOf(got)
		}
	}
	return nil
}

// difference describes the first output that differs.
func (d *PayloadDigest) difference(want, got []float32, rows, m int) string {
	for i := range want {
		if a, b := math.Float32bits(want[i]), math.Float32bits(got[i]); a != b {
			nr := (rows + len(d.Payload.Panels) - 1) / len(d.Payload.Panels)
			row := i % rows
			return fmt.Sprintf("m %d: output %d of panel %d for activations %d is %g (%#08x), the reference has %g (%#08x)",
				m, row%nr, d.Payload.Panels[row/nr], i/rows, got[i], b, want[i], a)
		}
	}
	return ""
}

func hashOf(x []float32) string {
	h := sha256.New()
	var b [4]byte
	for _, v := range x {
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(v))
		h.Write(b[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}
