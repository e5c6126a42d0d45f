package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
)

// encodedPairs are metadata as the file has them.
type encodedPairs struct {
	bytes     []byte
	n         int
	alignment int64 // of the data
}

// encodePairs checks and encodes metadata.
func encodePairs(pairs []Pair) (encodedPairs, error) {
	p := encodedPairs{alignment: defaultAlignment}
	seen := make(map[string]bool, len(pairs))
	for _, pair := range pairs {
		switch key := pair.Key; {
		case key == "" || len(key) > maxKey || strings.ContainsRune(key, 0):
			return p, fmt.Errorf("key %.64q has %d bytes: GGUF takes 1 to %d, none of them zero", key, len(key), maxKey)
		case seen[key]:
			return p, fmt.Errorf("key %q is given twice", key)
		case key == keySplitNo || key == keySplitCount || key == keySplitTensors:
			return p, fmt.Errorf("key %q belongs to shards: leave it out", key)
		case key == keyAlignment:
			a, ok := alignmentOf(pair.Value)
			if !ok {
				return p, fmt.Errorf("%s %v: %s", key, pair.Value, wantAlignment)
			}
			p.alignment = a
		}
		seen[pair.Key] = true
		if err := p.add(pair); err != nil {
			return p, fmt.Errorf("key %q: %w", pair.Key, err)
		}
	}
	if p.n > maxPairs {
		return p, fmt.Errorf("%d keys: a GGUF file has at most %d", p.n, maxPairs)
	}
	return p, nil
}

// shard returns the metadata of a shard: only the first one has the model's metadata.
func (p encodedPairs) shard(no, count, tensors int) encodedPairs {
	s := encodedPairs{alignment: p.alignment}
	switch {
	case no == 0:
		s.bytes, s.n = p.bytes[:len(p.bytes):len(p.bytes)], p.n
	case p.alignment != defaultAlignment:
		s.must(Pair{keyAlignment, uint32(p.alignment)})
	}
	s.must(Pair{keySplitNo, uint16(no)})
	s.must(Pair{keySplitCount, uint16(count)})
	s.must(Pair{keySplitTensors, int32(tensors)})
	return s
}

// must adds a pair whose value cannot be wrong.
func (p *encodedPairs) must(pair Pair) {
	if err := p.add(pair); err != nil {
		panic(err)
	}
}

// add appends a pair.
func (p *encodedPairs) add(pair Pair) error {
	b, err := appendValue(appendString(p.bytes, pair.Key), pair.Value)
	p.bytes = b
	p.n++
	return err
}

func appendString(b []byte, s string) []byte {
	return append(le.AppendUint64(b, uint64(len(s))), s...)
}

// typeOf returns the type of a metadata value, and of the elements if it is a slice.
func typeOf(v any) (t, element ValueType) {
	switch v := v.(type) {
	case uint8:
		return TypeUint8, 0
	case int8:
		return TypeInt8, 0
	case uint16:
		return TypeUint16, 0
	case int16:
		return TypeInt16, 0
	case uint32:
		return TypeUint32, 0
	case int32:
		return TypeInt32, 0
	case float32:
		return TypeFloat32, 0
	case bool:
		return TypeBool, 0
	case string:
		return TypeString, 0
	case uint64:
		return TypeUint64, 0
	case int64:
		return TypeInt64, 0
	case float64:
		return TypeFloat64, 0
	case Array:
		return TypeArray, v.Type
	case []uint8:
		return TypeArray, TypeUint8
	case []int8:
		return TypeArray, TypeInt8
	case []uint16:
		return TypeArray, TypeUint16
	case []int16:
		return TypeArray, TypeInt16
	case []uint32:
		return TypeArray, TypeUint32
	case []int32:
		return TypeArray, TypeInt32
	case []float32:
		return TypeArray, TypeFloat32
	case []bool:
		return TypeArray, TypeBool
	case []string:
		return TypeArray, TypeString
	case []uint64:
		return TypeArray, TypeUint64
	case []int64:
		return TypeArray, TypeInt64
	case []float64:
		return TypeArray, TypeFloat64
	}
	return noType, 0
}

// noType stands for Go types that are no metadata values.
const noType ValueType = math.MaxUint32

// appendValue encodes a value behind its type.
func appendValue(b []byte, v any) ([]byte, error) {
	t, element := typeOf(v)
	if t == noType {
		return b, fmt.Errorf("a value of Go type %T: want an integer type with a size, float32, float64, bool, string, or a slice of them", v)
	}
	b = le.AppendUint32(b, uint32(t))
	start := len(b)
	if t == TypeArray {
		b = le.AppendUint32(b, uint32(element))
	}
	var err error
	switch v := v.(type) {
	case string:
		return appendString(b, v), checkString(v)
	case []string:
		b = le.AppendUint64(b, uint64(len(v)))
		for _, s := range v {
			b, err = appendString(b, s), errors.Join(err, checkString(s))
		}
		return b, err
	case Array:
		b = append(le.AppendUint64(b, uint64(v.Len)), v.Data...)
		r := &reader{data: b, at: start}
		if r.array("an array"); r.err == nil && r.at != len(b) {
			r.fail(r.at, "%d bytes behind the values", len(b)-r.at)
		}
		return b, r.err
	}
	if t == TypeArray {
		b = le.AppendUint64(b, uint64(reflect.ValueOf(v).Len()))
	}
	return binary.Append(b, le, v)
}

func checkString(s string) error {
	if len(s) > maxString {
		return fmt.Errorf("a string of %d bytes: llama.cpp takes at most %d", len(s), maxString)
	}
	return nil
}
