// Package layouts makes the packer of a payload of any layout. No other package knows the layouts
// of packing, packing/kleidiai and packing/torchao together.
package layouts

import (
	"fmt"

	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/kleidiai"
	"github.com/lowbit-go/gq/packing/torchao"
)

// New prepares packing and reading of a payload of codes with header h. It fails like h.Validate.
// LayoutPlain, without codes, and a payload that this machine cannot address are a
// *packing.UnsupportedError.
//
// LayoutTorchAOEmbedding and LayoutCodes store scales and zero points in companions. Their packers
// need the companions to read weights, see WithCompanions.
func New(h packing.Header) (packing.Packer, error) {
	switch {
	case h.Layout == packing.LayoutLowbit:
		return made(packing.NewLowbit(h))
	case h.Layout == packing.LayoutCodes:
		return made(packing.NewCodes(h))
	case h.Layout.IsKleidiAI():
		return made(kleidiai.NewPacker(h))
	case h.Layout.IsTorchAO():
		return torchao.New(h)
	}
	if err := h.Validate(); err != nil {
		return nil, err
	}
	return nil, &packing.UnsupportedError{Field: "layout", Offset: 6, Msg: fmt.Sprintf("a payload of layout %s holds no packed codes", h.Layout)}
}

// WithCompanions returns a Packer that also reads scales and zero points from these companions, or
// p itself if its layout has no companions. A companion of the wrong size is an error.
func WithCompanions(p packing.Packer, scales, zeros []byte) (packing.Packer, error) {
	switch c := p.(type) {
	case *packing.Codes:
		return made(c.WithCompanions(scales, zeros))
	case *torchao.Embedding:
		return made(c.WithCompanions(scales, zeros))
	}
	return p, nil
}

// made returns a nil Packer rather than a Packer that holds a nil pointer.
func made[P packing.Packer](p P, err error) (packing.Packer, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}
