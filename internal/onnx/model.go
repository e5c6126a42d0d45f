// Package onnx reads and writes models in ONNX files: a protocol buffer with a graph of operators.
// The tensors' values may lie in other files (onnx.proto and ExternalData.md of
// github.com/onnx/onnx). The package knows the fields that graphs of language models use, and
// ignores other fields.
package onnx

import (
	"fmt"
	"math"
	"strconv"
)

// Model is a ModelProto.
type Model struct {
	Producer string // the program that wrote the file
	IR       int64  // version of the format
	Opsets   []Opset
	Graph    Graph
}

// Opset is the version of the operators of a domain.
type Opset struct {
	Domain  string // "" for ONNX's own
	Version int64
}

// Microsoft is the domain of operators that only ONNX Runtime has.
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
	Type   AttributeType // says which of the next fields holds the value
	Int    int64
	Float  float32
	String string
}

type AttributeType int64

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
func Text(name, v string) Attribute { return Attribute{Name: name, Type: StringAttribute, String: v} }

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
	Float DataType = 1
	Uint8 DataType = 2
	Int32 DataType = 6
	Int64 DataType = 7

	Float16  DataType = 10
	BFloat16 DataType = 16
)

// Size returns the bytes of an element; 0 for an unknown type.
func (t DataType) Size() int64 {
	return map[DataType]int64{Float: 4, Uint8: 1, Int32: 4, Int64: 8, Float16: 2, BFloat16: 2}[t]
}

// Tensor is a tensor with values: in the file itself (Raw), or in another file (External).
type Tensor struct {
	Name     string
	Type     DataType
	Dims     []int64
	Raw      []byte
	RawAt    int64 // offset of Raw in the file that was read
	External []Pair
	Doc      string // a comment
}

// Pair is an entry of a tensor's external data.
type Pair struct{ Key, Value string }

// Bytes is the size of the values, or -1 if no tensor can have the dimensions.
func (t *Tensor) Bytes() int64 {
	n := t.Type.Size()
	for _, d := range t.Dims {
		if d < 0 || d > 0 && n > math.MaxInt64/d {
			return -1
		}
		n *= d
	}
	return n
}

// SetPlace says that the values lie at an offset of another file.
func (t *Tensor) SetPlace(location string, offset int64) {
	t.External = []Pair{{"location", location}, {"offset", fmt.Sprint(offset)}, {"length", fmt.Sprint(t.Bytes())}}
}

// Place returns the other file's path from the model's directory, and where the values lie in it. A
// tensor with its values in the model's file has the location "".
func (t *Tensor) Place() (location string, offset int64, err error) {
	if t.Bytes() < 0 {
		return "", 0, fmt.Errorf("tensor %q has the dimensions %v: positive numbers of a possible size were expected", t.Name, t.Dims)
	}
	for _, p := range t.External {
		switch v, e := strconv.ParseInt(p.Value, 10, 64); {
		case p.Key == "location":
			location = p.Value
		case p.Key != "offset" && p.Key != "length":
		case e != nil || v < 0:
			return "", 0, fmt.Errorf("tensor %q: the %s of its external data is %q: a number was expected", t.Name, p.Key, p.Value)
		case p.Key == "offset":
			offset = v
		case v != t.Bytes():
			return "", 0, fmt.Errorf("tensor %q: its external data have %d bytes: %d were expected for %v", t.Name, v, t.Bytes(), t.Dims)
		}
	}
	return location, offset, nil
}

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
