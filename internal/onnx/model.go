// Package onnx reads and writes models in ONNX files: a protocol buffer with a graph of operators,
// whose tensors may lie in other files (onnx.proto and ExternalData.md of github.com/onnx/onnx).
// It knows the fields that graphs of language models use; [Decode] ignores other fields.
package onnx

// Model is a ModelProto.
type Model struct {
	Producer, Version string // of the program that wrote the file
	IR                int64  // version of the format
	Opsets            []Opset
	Graph             Graph
}

// Opset is the version of the operators of a domain.
type Opset struct {
	Domain  string // "" for ONNX's own
	Version int64
}

// Microsoft is the domain of operators of ONNX Runtime alone.
const Microsoft = "com.microsoft"

// Graph is a GraphProto. Its nodes are in an order in which they can run.
type Graph struct {
	Name            string
	Nodes           []Node
	Initializers    []Tensor
	Inputs, Outputs []Value
}

// Node is an operator with the names of its tensors. An optional input or output that is left out
// has the name "".
type Node struct {
	Name, Domain, Op string
	Inputs, Outputs  []string
	Attributes       []Attribute
}

// Attribute is an argument of an operator.
type Attribute struct {
	Name   string
	Type   AttributeType
	Int    int64
	Float  float32
	String string
}

// AttributeType says which field of an [Attribute] holds the value.
type AttributeType uint8

const (
	FloatAttribute  AttributeType = 1
	IntAttribute    AttributeType = 2
	StringAttribute AttributeType = 3
)

// Integer, Real and Text return attributes.
func Integer(name string, v int64) Attribute {
	return Attribute{Name: name, Type: IntAttribute, Int: v}
}
func Real(name string, v float32) Attribute {
	return Attribute{Name: name, Type: FloatAttribute, Float: v}
}
func Text(name, v string) Attribute {
	return Attribute{Name: name, Type: StringAttribute, String: v}
}

// Integer returns the value of an integer attribute, or absent.
func (n *Node) Integer(name string, absent int64) int64 {
	for _, a := range n.Attributes {
		if a.Name == name && a.Type == IntAttribute {
			return a.Int
		}
	}
	return absent
}

// Input returns the name of input i, or "".
func (n *Node) Input(i int) string {
	if i >= len(n.Inputs) {
		return ""
	}
	return n.Inputs[i]
}

// DataType is the type of a tensor's elements.
type DataType int64

const (
	Float   DataType = 1
	Uint8   DataType = 2
	Int32   DataType = 6
	Int64   DataType = 7
	Float16 DataType = 10
)

// Size returns the bytes of an element; 0 for an unknown type.
func (t DataType) Size() int64 {
	switch t {
	case Float, Int32:
		return 4
	case Uint8:
		return 1
	case Int64:
		return 8
	case Float16:
		return 2
	}
	return 0
}

// Tensor is a tensor with values.
type Tensor struct {
	Name string
	Type DataType
	Dims []int64
	Raw  []byte // the values in the file itself; nil if they are external
	// External says where the values lie. Default (zero): in Raw.
	External External
	Doc      string // a comment
}

// External is a place in another file.
type External struct {
	Location       string // the file's path from the model's directory; "": no other file
	Offset, Length int64
	// Prepacked are further pairs, with which ONNX Runtime finds packed weights: see [Prepacked].
	Prepacked []Pair
}

// Pair is an entry of a tensor's external data.
type Pair struct{ Key, Value string }

// Value describes an input or output of a graph.
type Value struct {
	Name string
	Type DataType
	Dims []Dim
}

// Dim is a dimension: a number, or a name for sizes that vary.
type Dim struct {
	Name string
	Size int64
}
