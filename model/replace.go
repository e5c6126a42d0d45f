package model

import (
	"fmt"
	"slices"
)

// Embedding looks up rows of the token embedding; an embedding.Table is one.
type Embedding interface {
	Lookup(dst []float32, row int) error
}

// Embedding returns the model's token embedding.
func (m *Model) Embedding() Embedding { return m.embed }

// SetEmbedding replaces the model's token embedding and returns a function that undoes it. It does
// not replace the lm_head of a tied model: [Model.SetLinear] does. It must not run while a Session
// computes.
func (m *Model) SetEmbedding(t Embedding) (undo func()) {
	before := m.embed
	m.embed = t
	return func() { m.embed = before }
}

// Norms describes the norms: the norm before the lm_head, then the norms of each layer.
func (m *Model) Norms() []Norm {
	list := make([]Norm, len(m.norms))
	for i, n := range m.norms {
		list[i] = n.Norm
	}
	return list
}

// NormGains reads the gains of a norm as the checkpoint stores them. They do not follow
// [Model.SetNorm].
func (m *Model) NormGains(tensor string) (gains []float32, err error) {
	n, err := m.findNorm(tensor)
	if err != nil {
		return nil, err
	}
	return gains, m.source.guard(func() (err error) {
		gains, err = m.source.vector(tensor, n.Width)
		return err
	})
}

// SetNorm replaces the gains of a norm and returns a function that undoes it. If the norm is
// PlusOne, it multiplies by 1 + gain. SetNorm copies the gains. It must not run while a Session
// computes.
func (m *Model) SetNorm(tensor string, gains []float32) (undo func(), err error) {
	n, err := m.findNorm(tensor)
	if err != nil {
		return nil, err
	}
	if len(gains) != n.Width {
		return nil, fmt.Errorf("norm %q has %d gains, not %d", tensor, n.Width, len(gains))
	}
	before := slices.Clone(n.weights)
	n.set(gains)
	return func() { copy(n.weights, before) }, nil
}

func (m *Model) findNorm(tensor string) (*norm, error) {
	for _, n := range m.norms {
		if n.Tensor == tensor {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no norm %q in this model", tensor)
}
