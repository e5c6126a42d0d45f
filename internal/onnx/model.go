// Package onnx reads and writes models in ONNX files: a protocol buffer with a graph of operators.
// The tensors' values may lie in other files (onnx.proto and ExternalData.md of
// github.com/onnx/onnx). The package knows the fields that graphs of language models use, and
// ignores other fields.
package onnx

import (
	"fmt"
	"math"
	"strconv"

	"github.com/lowbit-go/gq/packing"
)

// Model is a ModelProto.
type Model struct {
	IR       int64   `pb:"1"` // version of the format
	Producer string  `pb:"2"` // the program that wrote the file
	Graph    Graph   `pb:"7"`
	Opsets   []Opset `pb:"8"`
}

// Opset is the version of the operators of a domain.
type Opset struct {
	Domain  string `pb:"1"` // "" for ONNX's own
	Version int64  `pb:"2"`
}

// Microsoft is the domain of operators that only ONNX Runtime has.
const Microsoft = "com.microsoft"

// Graph is a GraphProto. Its nodes are in an order in which they can run.
type Graph struct {
	Nodes        []Node   `pb:"1"`
	Name         string   `pb:"2"`
	Initializers []Tensor `pb:"5"`
	Inputs       []Value  `pb:"11"`
	Outputs      []Value  `pb:"12"`
}

// Node is an operator with the names of its tensors. An optional input or output that is left out
// has the name "".
type Node struct {
	Inputs     []string    `pb:"1"`
	Outputs    []string    `pb:"2"`
	Name       string      `pb:"3"`
	Op         string      `pb:"4"`
	Attributes []Attribute `pb:"5"`
	Domain     string      `pb:"7"`
}

// Attribute is an argument of an operator. Type says which field holds the value: 1, 2 or 3 for
// Float, Int and String.
type Attribute struct {
	Name   string  `pb:"1"`
	Float  float32 `pb:"2"`
	Int    []int64 `pb:"3"` // of one element, so that 0 is written
	String string  `pb:"4"`
	Type   int64   `pb:"20"`
}

// Integer, Real and Text return attributes.
func Integer(name string, v int64) Attribute { return Attribute{Name: name, Type: 2, Int: []int64{v}} }
func Real(name string, v float32) Attribute  { return Attribute{Name: name, Type: 1, Float: v} }
func Text(name, v string) Attribute          { return Attribute{Name: name, Type: 3, String: v} }

// Integer returns the value of an integer attribute, or absent.
func (n *Node) Integer(name string, absent int64) int64 {
	for _, a := range n.Attributes {
		if a.Name == name && a.Type == 2 {
			return append(a.Int, 0)[0] // some programs do not write 0
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

var dtypes = map[DataType]packing.Dtype{Float: packing.F32, Uint8: packing.U8, Int32: packing.I32, Int64: packing.I64, Float16: packing.F16, BFloat16: packing.BF16}

// Dtype is the type by its name in checkpoints, DtypeNone for an unknown type.
func (t DataType) Dtype() packing.Dtype { return dtypes[t] }

// Size returns the bytes of an element; 0 for an unknown type.
func (t DataType) Size() int64 { return int64(t.Dtype().Bits() / 8) }

// Tensor is a tensor with values: in the file itself (Raw), or in another file (External).
type Tensor struct {
	Dims     []int64  `pb:"1"`
	Type     DataType `pb:"2"`
	Name     string   `pb:"8"`
	Raw      []byte   `pb:"9"`
	RawAt    int64
	Doc      string `pb:"12"` // a comment
	External []Pair `pb:"13"`
	Location int64  `pb:"14"` // 1: in another file
}

// Pair is an entry of a tensor's external data.
type Pair struct {
	Key   string `pb:"1"`
	Value string `pb:"2"`
}

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
	t.Location, t.External = 1, []Pair{{"location", location}, {"offset", fmt.Sprint(offset)}, {"length", fmt.Sprint(t.Bytes())}}
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
	Name string    `pb:"1"`
	Type ValueType `pb:"2"`
}

// ValueType is a TypeProto of a tensor.
type ValueType struct {
	Tensor struct {
		Type  DataType `pb:"1"`
		Shape struct {
			Dims []Dim `pb:"1"`
		} `pb:"2"`
	} `pb:"1"`
}

// NewValue returns a value with these dimensions: numbers, or names for sizes that vary.
func NewValue(name string, t DataType, dims ...any) Value {
	v := Value{Name: name}
	v.Type.Tensor.Type = t
	list := make([]Dim, len(dims))
	for i, d := range dims {
		list[i].Name, _ = d.(string)
		size, _ := d.(int)
		list[i].Size = int64(size)
	}
	v.Type.Tensor.Shape.Dims = list
	return v
}

// Dim is a dimension: a number or a name.
type Dim struct {
	Size int64  `pb:"1"`
	Name string `pb:"2"`
}
