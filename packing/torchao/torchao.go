package torchao

import "github.com/lowbit-go/gq/packing"

// New prepares packing and reading of a payload in the TorchAO layout that h names: see NewLinear,
// NewEmbedding and NewKleidiAI.
func New(h packing.Header) (packing.Packer, error) {
	var p packing.Packer
	var err error
	switch h.Layout {
	case packing.LayoutTorchAOEmbedding:
		p, err = NewEmbedding(h)
	case packing.LayoutTorchAOKleidiAI:
		p, err = NewKleidiAI(h)
	default:
		p, err = NewLinear(h)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}
