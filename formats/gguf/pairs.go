package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
)

type encodedPairs struct {
	bytes     []byte
	n         int
	alignment int64 // of the data
}

func encodePairs(pairs []Pair) (encodedPairs, error) {
	p := encodedPairs{alignment: defaultAlignment}
	seen := make(map[string]bool, len(pairs))
	for _, pair := range pairs {
		switch key := pair.Key; {
		case key == "" || len(key) > maxKey || strings.ContainsRune(key, 0):
			return p, fmt.Errorf("key %.64q has %d bytes: GGUF takes 1 to %d, none of them zero", key, len(key), maxKey)
		case seen[key]:
			return p, fmt.Errorf("key %q is given twice", key)
		case key == keySplitNo || key == keySplitCount || key == keySplitTensors || key == keySplitSet:
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

// shard returns the metadata of a shard: only the first shard has the model's metadata.
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
	s.must(Pair{keySplitSet, strings.Repeat("0", setDigits)}) // last: see Layout.NameSet
	return s
}

// must adds a pair with a valid value.
func (p *encodedPairs) must(pair Pair) {
	if err := p.add(pair); err != nil {
		panic(err)
	}
}

func (p *encodedPairs) add(pair Pair) error {
	b, err := appendValue(appendString(p.bytes, pair.Key), pair.Value)
	p.bytes = b
	p.n++
	return err
}

func appendString(b []byte, s string) []byte {
	return append(le.AppendUint64(b, uint64(len(s))), s...)
}

// kindTypes has the types of metadata values by kind of Go type.
var kindTypes = map[reflect.Kind]ValueType{
	reflect.Uint8: typeUint8, reflect.Int8: typeInt8, reflect.Uint16: typeUint16, reflect.Int16: typeInt16, reflect.Uint32: typeUint32, reflect.Int32: typeInt32,
	reflect.Uint64: typeUint64, reflect.Int64: typeInt64, reflect.Float32: typeFloat32, reflect.Float64: typeFloat64, reflect.Bool: typeBool, reflect.String: typeString,
}

// typeOf returns the type of a metadata value, and of the elements if it is a slice or an Array.
func typeOf(v any) (t, element ValueType) {
	if a, ok := v.(Array); ok {
		return typeArray, a.Type
	}
	kind := reflect.TypeOf(v)
	array := kind != nil && kind.Kind() == reflect.Slice
	if array {
		kind = kind.Elem()
	}
	// Named types have methods that the value would lose.
	if kind == nil || kind.PkgPath() != "" {
		return noType, 0
	}
	t, ok := kindTypes[kind.Kind()]
	switch {
	case !ok:
		return noType, 0
	case array:
		return typeArray, t
	}
	return t, 0
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
	if t == typeArray {
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
	if t == typeArray {
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
