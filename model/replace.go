package model

// Table looks up rows of the table of tokens; an embedding.Table is one.
type Table interface {
	Lookup(dst []float32, row int) error
}

// Table is the model's table of tokens.
func (m *Model) Table() Table { return m.embed }

// SetTable puts another table in the place of the model's table of tokens, and tells how to undo it. Where the table is
// the head too, [Model.SetLinear] replaces that. It must not run while a Session computes.
func (m *Model) SetTable(t Table) (undo func()) {
	before := m.embed
	m.embed = t
	return func() { m.embed = before }
}
