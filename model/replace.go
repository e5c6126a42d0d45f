package model

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
