package conversion

import (
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/quantizer"
)

// modelWeights lists the tensors of the checkpoint. untied: an lm_head that config.json ties to the
// embedding is stored beside it.
func (o *checkpointOutput) modelWeights() (weights []hfquant.ModelWeight, untied bool) {
	for _, it := range o.items {
		e := it.common()
		untied = untied || e.role == gqf.RoleHead && o.cfg.TieWordEmbeddings
		w := hfquant.ModelWeight{Shape: e.src.Shape}
		if q, ok := it.(*quantized); ok {
			w.Scheme = &q.stored
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
func (o *checkpointOutput) quantizedConfig() (config []byte, metadata map[string]string, err error) {
	weights, untied := o.modelWeights()
	config = o.config
	if untied {
		if config, err = hfquant.Untied(config); err != nil {
			return nil, nil, err
		}
	}
	if config, metadata, err = o.opts.Format.Config(config, weights); err != nil {
		return nil, nil, quantizer.Requestf("%s: %w", o.from.root(), err)
	}
	return config, metadata, nil
}

// isLinear reports whether a tensor is the weight of a linear layer under one of its names. The second
// name of an embedding is the lm_head's.
func isLinear(e *entry, name string) bool {
	switch e.role {
	case gqf.RoleEmbedding:
		return name != e.name()
	case gqf.RoleNorm, gqf.RoleConv, gqf.RolePosition, gqf.RoleBias:
		return false
	}
	return len(e.src.Shape) == 2
}
