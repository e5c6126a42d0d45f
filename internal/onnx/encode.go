package onnx

import (
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is a message that is being written.
type message []byte

func (m *message) integer(n protowire.Number, v int64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, n, protowire.VarintType), uint64(v))
}

func (m *message) bytes(n protowire.Number, v []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, n, protowire.BytesType), v)
}

// text writes a string that is not empty.
func (m *message) text(n protowire.Number, v string) {
	if v != "" {
		m.bytes(n, []byte(v))
	}
}

// Encode returns the bytes of a model. Equal models give equal bytes.
func (m *Model) Encode() []byte {
	var b message
	b.integer(1, m.IR)
	b.text(2, m.Producer)
	b.text(3, m.Version)
	b.bytes(7, m.Graph.encode())
	for _, o := range m.Opsets {
		var s message
		s.bytes(1, []byte(o.Domain))
		s.integer(2, o.Version)
		b.bytes(8, s)
	}
	return b
}

func (g *Graph) encode() (b message) {
	for i := range g.Nodes {
		b.bytes(1, g.Nodes[i].encode())
	}
	b.text(2, g.Name)
	for i := range g.Initializers {
		b.bytes(5, g.Initializers[i].encode())
	}
	for i := range g.Inputs {
		b.bytes(11, g.Inputs[i].encode())
	}
	for i := range g.Outputs {
		b.bytes(12, g.Outputs[i].encode())
	}
	return b
}

func (n *Node) encode() (b message) {
	for _, name := range n.Inputs {
		b.bytes(1, []byte(name))
	}
	for _, name := range n.Outputs {
		b.bytes(2, []byte(name))
	}
	b.text(3, n.Name)
	b.text(4, n.Op)
	for _, a := range n.Attributes {
		var s message
		s.text(1, a.Name)
		switch a.Type {
		case FloatAttribute:
			s = protowire.AppendFixed32(protowire.AppendTag(s, 2, protowire.Fixed32Type), math.Float32bits(a.Float))
		case IntAttribute:
			s.integer(3, a.Int)
		case StringAttribute:
			s.bytes(4, []byte(a.String))
		}
		s.integer(20, int64(a.Type))
		b.bytes(5, s)
	}
	b.text(7, n.Domain)
	return b
}

func (t *Tensor) encode() (b message) {
	for _, d := range t.Dims {
		b.integer(1, d)
	}
	b.integer(2, int64(t.Type))
	b.text(8, t.Name)
	if t.External.Location == "" {
		b.bytes(9, t.Raw)
		return b
	}
	b.text(12, t.Doc)
	pairs := []Pair{
		{"location", t.External.Location},
		{"offset", strconv.FormatInt(t.External.Offset, 10)},
		{"length", strconv.FormatInt(t.External.Length, 10)},
	}
	for _, p := range append(pairs, t.External.Prepacked...) {
		var s message
		s.text(1, p.Key)
		s.text(2, p.Value)
		b.bytes(13, s)
	}
	b.integer(14, 1) // EXTERNAL
	return b
}

func (v *Value) encode() (b message) {
	var shape message
	for _, d := range v.Dims {
		var s message
		if d.Name != "" {
			s.text(2, d.Name)
		} else {
			s.integer(1, d.Size)
		}
		shape.bytes(1, s)
	}
	var tensor, kind message
	tensor.integer(1, int64(v.Type))
	tensor.bytes(2, shape)
	kind.bytes(1, tensor)
	b.text(1, v.Name)
	b.bytes(2, kind)
	return b
}
