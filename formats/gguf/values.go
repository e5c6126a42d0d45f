package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"strings"
)

// Pair is a key and its value, to be written. A value has a type that File.Metadata has, or is a
// slice of such values ([]string, []float32, []int32 ...).
type Pair struct {
	Key   string
	Value any
}

// Text returns the string of a key; ok is false if there is none.
func (f *File) Text(key string) (s string, ok bool) { return as[string](f.Metadata[key]) }

// Int returns the integer of a key, whatever its type; ok is false without an int64.
func (f *File) Int(key string) (n int64, ok bool) { return toInt(f.Metadata[key]) }

// Float returns the number of a key, whatever its type; ok is false if there is none.
func (f *File) Float(key string) (x float64, ok bool) {
	switch v := f.Metadata[key].(type) {
	case float32:
		return float64(v), true
	case float64:
		return v, true
	}
	n, ok := f.Int(key)
	return float64(n), ok
}

// Bool returns the boolean of a key; ok is false if there is none.
func (f *File) Bool(key string) (b, ok bool) { return as[bool](f.Metadata[key]) }

// Array returns the array of a key; ok is false if there is none.
func (f *File) Array(key string) (a Array, ok bool) { return as[Array](f.Metadata[key]) }

func as[T any](v any) (x T, ok bool) {
	x, ok = v.(T)
	return x, ok
}

func toInt(v any) (n int64, ok bool) {
	switch x := reflect.ValueOf(v); {
	case x.CanInt():
		return x.Int(), true
	case x.CanUint():
		return int64(x.Uint()), x.Uint() <= math.MaxInt64
	}
	return 0, false
}

// All yields the values of the array.
func (a Array) All() iter.Seq[any] {
	return func(yield func(any) bool) {
		r := &reader{data: a.Data}
		for range a.Len {
			if !yield(r.value(a.Type, "an array's value")) {
				return
			}
		}
	}
}

// Strings returns copies of the values of an array of strings; ok is false for another type.
func (a Array) Strings() (list []string, ok bool) {
	if a.Type != typeString {
		return nil, false
	}
	// All values share a string, so that the garbage collector has one object to visit.
	r, text := &reader{data: a.Data}, string(a.Data)
	list = make([]string, 0, a.Len)
	for range a.Len {
		n := len(r.take(r.length("a string"), "a string"))
		list = append(list, text[r.at-n:r.at])
	}
	return list, r.err == nil
}

// Ints returns the values of an array of integers, or of booleans as 0 and 1; ok is false for
// another type.
func (a Array) Ints() (list []int64, ok bool) {
	if a.Type == typeBool { // of a byte each
		a.Type = typeUint8
	}
	if a.Type == typeString {
		return nil, false
	}
	list = make([]int64, 0, a.Len)
	for v := range a.All() {
		n, ok := toInt(v)
		if !ok {
			return nil, false
		}
		list = append(list, n)
	}
	return list, true
}

// Floats returns the values of an array of float32; ok is false for another type.
func (a Array) Floats() (list []float32, ok bool) {
	if a.Type != typeFloat32 || len(a.Data) < 4*a.Len {
		return nil, false
	}
	list = make([]float32, a.Len)
	for i := range list {
		list[i] = math.Float32frombits(le.Uint32(a.Data[4*i:]))
	}
	return list, true
}

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

func (p *encodedPairs) must(pair Pair) {
	if err := p.add(pair); err != nil {
		panic(err)
	}
}

func (p *encodedPairs) add(pair Pair) error {
	b, err := appendValue(appendString(p.bytes, pair.Key), pair.Value)
	p.bytes, p.n = b, p.n+1
	return err
}

func appendString(b []byte, s string) []byte {
	return append(le.AppendUint64(b, uint64(len(s))), s...)
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
	i := 0
	for i < len(valueTypes) && valueTypes[i].kind != kind.Kind() {
		i++
	}
	switch {
	case i == len(valueTypes) || i == int(typeArray):
		return noType, 0
	case array:
		return typeArray, ValueType(i)
	}
	return ValueType(i), 0
}

// noType stands for Go types that are no metadata values.
const noType ValueType = math.MaxUint32

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
