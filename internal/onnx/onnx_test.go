package onnx

import (
	"bytes"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/encoding/protowire"
)

func smallModel() *Model {
	m := &Model{Producer: "gq", IR: 10, Opsets: []Opset{{"", 21}, {Microsoft, 1}}}
	m.Graph = Graph{
		Name: "small",
		Nodes: []Node{
			{Name: "a", Domain: Microsoft, Op: "MatMulNBits", Inputs: []string{"x", "w", "s", "", "", "b"}, Outputs: []string{"y", "", "z"}, Attributes: []Attribute{Integer("K", -1), Real("epsilon", 1e-5), Text("approximate", "tanh")}},
		},
		Initializers: []Tensor{
			{Name: "c", Type: Int64, Dims: []int64{1}, Raw: []byte{1, 0, 0, 0, 0, 0, 0, 0}},
			{Name: "w", Type: Uint8, Dims: []int64{300, 2, 16}},
		},
		Inputs:  []Value{NewValue("x", Float, "batch", 64)},
		Outputs: []Value{NewValue("y", Float, "batch", 300)},
	}
	m.Graph.Initializers[1].SetPlace("model.onnx_data", 4096)
	return m
}

func TestRoundTrip(t *testing.T) {
	m := smallModel()
	m.Graph.Initializers[1].SetPrepacked(1<<63+5, 16384, 9600)
	data := m.Encode()
	got, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if c := &got.Graph.Initializers[0]; !bytes.HasPrefix(data[c.RawAt:], c.Raw) || c.RawAt == 0 {
		t.Errorf("values at %d", c.RawAt)
	} else {
		c.RawAt = 0
	}
	if !reflect.DeepEqual(got, m) {
		t.Errorf("%+v\nwas %+v", got, m)
	}
	m.Graph.Initializers[1].SetPrepacked(7, 16384, 9600)
	if n := len(m.Encode()); n != len(data) {
		t.Errorf("another hash makes %d bytes of %d", n, len(data))
	}
	if location, off, err := got.Graph.Initializers[1].Place(); location != "model.onnx_data" || off != 4096 || err != nil {
		t.Errorf("%q, %d, %v", location, off, err)
	}
	if n := &got.Graph.Nodes[0]; n.Integer("K", 0) != -1 || n.Integer("N", 7) != 7 || n.Input(5) != "b" || n.Input(6) != "" {
		t.Errorf("%+v", n)
	}
}

// TestBytes holds the field numbers of onnx.proto.
func TestBytes(t *testing.T) {
	m := &Model{IR: 10, Graph: Graph{Nodes: []Node{{Op: "Add", Inputs: []string{"a", ""}, Outputs: []string{"c"}}}, Inputs: []Value{NewValue("a", Float, "n", 3)}}, Opsets: []Opset{{"", 21}}}
	want := "\x08\x0a" + // ir_version
		"\x3a\x25" + // graph
		// node: input, input, output, op_type
		"\x0a\x0d" + "\x0a\x01a" + "\x0a\x00" + "\x12\x01c" + "\x22\x03Add" +
		// input: name, type, shape
		"\x5a\x14" + "\x0a\x01a" + "\x12\x0f\x0a\x0d\x08\x01\x12\x09" + "\x0a\x03\x12\x01n" + "\x0a\x02\x08\x03" +
		"\x42\x02" + "\x10\x15" // opset_import
	if got := string(m.Encode()); got != want {
		t.Errorf("%q, not %q", got, want)
	}
}

func TestDecodeErrors(t *testing.T) {
	tensor := func(fields ...byte) []byte { // of a graph's initializer
		graph := protowire.AppendBytes([]byte{0x2a}, fields)
		return protowire.AppendBytes([]byte{0x3a}, graph)
	}
	for _, c := range []struct {
		data []byte
		want string
	}{
		{[]byte{0x3a, 5, 0}, "byte 2: a field of 5 bytes, 1 are left"},
		{[]byte{0x38, 5}, "byte 2: field 7 has the wire type 0: 2 was expected"},
		{[]byte{0x0a, 1, 7}, "byte 2: field 1 has the wire type 2: 0 was expected"},
		{tensor(0x0a, 2, 1, 0x80), "an integer is cut off"},
		{tensor(0x42), "a length is cut off"},
	} {
		if _, err := Decode(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%x: %v, not %q", c.data, err, c.want)
		}
	}
	// Lists that other programs pack, and fields that nobody here reads.
	m, err := Decode(tensor(0x0a, 3, 1, 0x80, 1, 0x3a, 1, 'x'))
	if err != nil || !reflect.DeepEqual(m.Graph.Initializers[0].Dims, []int64{1, 128}) {
		t.Errorf("%+v, %v", m, err)
	}
	bad := Tensor{Name: "w", Type: Uint8, Dims: []int64{4}, External: []Pair{{"location", "f"}, {"offset", "-1"}}}
	for value, want := range map[string]string{"-1": `"-1": a number`, "x": `"x": a number`} {
		bad.External[1].Value = value
		if _, _, err := bad.Place(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
	bad.External[1] = Pair{"length", "5"}
	if _, _, err := bad.Place(); err == nil || !strings.Contains(err.Error(), "have 5 bytes: 4 were expected") {
		t.Errorf("%v", err)
	}
}

func TestTensorBytes(t *testing.T) {
	for _, c := range []struct {
		dims []int64
		want int64
	}{
		{nil, 4}, {[]int64{3, 5}, 60}, {[]int64{3, 0}, 0},
		{[]int64{-1}, -1}, {[]int64{1 << 62}, -1}, {[]int64{1 << 32, 1 << 31}, -1}, {[]int64{3, 1 << 62, 1 << 62}, -1},
	} {
		w := Tensor{Name: "w", Type: Float, Dims: c.dims}
		if got := w.Bytes(); got != c.want {
			t.Errorf("%v has %d bytes, not %d", c.dims, got, c.want)
		}
		if _, _, err := w.Place(); (err != nil) != (c.want < 0) {
			t.Errorf("%v: %v", c.dims, err)
		}
	}
}

// TestHashPacked has the first two words of the published sum of a sentence, 2f1583c3 ecee2c67
// 5d7bf66c e5e91d2c. How many bytes a reader returns at a time does not matter.
func TestHashPacked(t *testing.T) {
	hash := func(r io.Reader) uint64 {
		h, err := HashPacked(r)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if h := hash(strings.NewReader("")); h != 0 {
		t.Errorf("%d of nothing", h)
	}
	const fox = "The quick brown fox jumps over the lazy dog"
	if got, want := hash(strings.NewReader(fox)), uint64(0x2f1583c3&^7)+uint64(0xecee2c67)<<32; got != want {
		t.Errorf("%x, not %x", got, want)
	}
	data := strings.Repeat(fox, 16)
	if a, b := hash(strings.NewReader(data)), hash(iotest.OneByteReader(strings.NewReader(data))); a != b || a == 0 || a&7 != 0 {
		t.Errorf("%d, one byte at a time %d", a, b)
	}
	if _, err := HashPacked(iotest.ErrReader(io.ErrClosedPipe)); err != io.ErrClosedPipe {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(smallModel().Encode())
	f.Add([]byte{0x3a, 5, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode(data)
		if err != nil {
			return
		}
		for i := range m.Graph.Initializers {
			_, _, _ = m.Graph.Initializers[i].Place()
		}
		// What is read can be written, and means the same when it is read again.
		again, err := Decode(m.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if a, b := again.Encode(), m.Encode(); !bytes.Equal(a, b) {
			t.Errorf("%x, then %x", b, a)
		}
	})
}
