package gguf

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// allTypes returns the types that ok accepts.
func allTypes(ok func(TensorType) bool) (list []TensorType) {
	for t := range TensorType(len(typeTable)) {
		if ok(t) {
			list = append(list, t)
		}
	}
	return list
}

// randomBlocks returns n blocks of random bytes. Their F16 scales are finite, as Unpack demands.
func randomBlocks(t TensorType, n int, r *rand.Rand) []byte {
	src := make([]byte, n*t.BlockBytes())
	for i := range n {
		b := src[i*t.BlockBytes():][:t.BlockBytes()]
		for f := (&Fields{}); ; {
			for j := range b {
				b[j] = byte(r.Uint32())
			}
			if t.Unpack(f, b) == nil {
				break
			}
		}
	}
	return src
}

func TestEncodeUnpack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	list := allTypes(TensorType.Encodable)
	if len(list) != 12 {
		t.Errorf("%v can be written, want 12 types", list)
	}
	for _, kind := range list {
		src := randomBlocks(kind, 200, r)
		var f Fields
		if err := kind.Unpack(&f, src); err != nil {
			t.Fatal(kind, err)
		}
		dst := make([]byte, len(src))
		if err := kind.Encode(dst, f); err != nil || !bytes.Equal(dst, src) {
			t.Errorf("%s: error %v; the bytes change: %v", kind, err, !bytes.Equal(dst, src))
		}
	}
}
