package ggml

import (
	"encoding/binary"
	"unsafe"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/cpu"
)

// UnpackArgs are the arguments of an Unpack: where a row of weights lies, and where its numbers go
// in a panel of package tile.
type UnpackArgs struct {
	Data   *byte // the row
	Blocks int   // at least 1
	Ahead  int   // bytes from a block to the memory that may be prefetched with the block

	// Codes of 8 columns, plus Offset, go to each Codes + i*Stride.
	Codes  *byte
	Stride int
	Offset uint8

	// Numbers go to each pointer + i*Step bytes: a scale and a minimum for each term of the sum (see
	// Format.Terms), a sub-scale and a sub-minimum for each group. Numbers that the type does not have
	// are not written.
	Scales, Mins  *float32
	Subs, SubMins *int32
	Step          int
}

// Unpack unpacks a row of blocks.
type Unpack func(a *UnpackArgs)

// unpacks are the implementations for each type that has some besides the portable function.
var unpacks = map[gguf.TensorType]*cpu.Family[Unpack]{}

func registerUnpack(feature string, list map[string]Unpack) {
	for name, u := range list {
		t := typeOf(name)
		if unpacks[t] == nil {
			unpacks[t] = cpu.NewFamily[Unpack]("ggml: unpacking", For(t).unpack)
		}
		unpacks[t].Register(feature, u)
	}
}

// UnpackFor returns the Unpack of the best of some instruction sets.
func (f *Format) UnpackFor(features []string) Unpack {
	if u := unpacks[f.Type]; u != nil {
		return u.For(features).Code
	}
	return f.unpack
}

// unpack is the portable Unpack, and defines the results.
func (f *Format) unpack(a *UnpackArgs) {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	more := uint64(a.Offset) * ones
	var b gguf.Block
	data := unsafe.Slice(a.Data, a.Blocks*f.Bytes)
	groups, group, several := f.Groups(), 0, f.Type.GroupWeights() < f.Activations.Block()
	for i := range a.Blocks {
		f.Type.ReadBlock(&b, data[i*f.Bytes:][:f.Bytes])
		at := i * f.Block / 8 * a.Stride
		for codes := buffer.Bytes(b.Codes[:f.Block]); len(codes) > 0; codes = codes[8:] {
			// Sums of the low 7 bits stay in their bytes.
			x := binary.LittleEndian.Uint64(codes)
			x = (x&^high + more&^high) ^ (x^more)&high
			binary.LittleEndian.PutUint64((*[8]byte)(unsafe.Add(unsafe.Pointer(a.Codes), at))[:], x)
			at += a.Stride
		}
		for g := range groups {
			switch {
			case f.Subs:
				put(a.Subs, group, a.Step, int32(b.Subs[g]))
				if f.Minima {
					put(a.SubMins, group, a.Step, int32(b.SubMins[g]))
				}
			case several: // NVFP4
				put(a.Scales, group, a.Step, b.Scales[g])
			default:
				put(a.Scales, group, a.Step, b.Scales[0])
				if f.Minima {
					put(a.Mins, group, a.Step, b.Min)
				}
			}
			group++
		}
		if f.Subs {
			put(a.Scales, i, a.Step, b.Scales[0])
			if f.Minima {
				put(a.Mins, i, a.Step, b.Min)
			}
		}
	}
}

func put[T int32 | float32](p *T, i, step int, v T) { *(*T)(unsafe.Add(unsafe.Pointer(p), i*step)) = v }
