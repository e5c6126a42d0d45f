package gguf

import (
	"iter"
	"math"
)

// Pair is a key and its value, to be written. A value has a type that File.Metadata has, or is a
// slice of such values ([]string, []float32, []int32 ...).
type Pair struct {
	Key   string
	Value any
}

// Text returns the string of a key; ok is false if there is none.
func (f *File) Text(key string) (s string, ok bool) {
	s, ok = f.Metadata[key].(string)
	return s, ok
}

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
func (f *File) Bool(key string) (b, ok bool) {
	b, ok = f.Metadata[key].(bool)
	return b, ok
}

// Array returns the array of a key; ok is false if there is none.
func (f *File) Array(key string) (a Array, ok bool) {
	a, ok = f.Metadata[key].(Array)
	return a, ok
}

func toInt(v any) (n int64, ok bool) {
	switch v := v.(type) {
	case uint8:
		return int64(v), true
	case int8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int32:
		return int64(v), true
	case int64:
		return v, true
	case uint64:
		return int64(v), v <= math.MaxInt64
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
	return collect(a, a.Type == typeString, func(v any) (string, bool) { s, ok := v.(string); return s, ok })
}

// Ints returns the values of an array of integers; ok is false for another type.
func (a Array) Ints() (list []int64, ok bool) {
	return collect(a, a.Type != typeString, toInt)
}

// Floats returns the values of an array of float32; ok is false for another type.
func (a Array) Floats() (list []float32, ok bool) {
	return collect(a, a.Type == typeFloat32, func(v any) (float32, bool) { x, ok := v.(float32); return x, ok })
}

func collect[T any](a Array, ok bool, convert func(any) (T, bool)) ([]T, bool) {
	if !ok {
		return nil, false
	}
	list := make([]T, 0, a.Len)
	for v := range a.All() {
		x, ok := convert(v)
		if !ok {
			return nil, false
		}
		list = append(list, x)
	}
	return list, true
}
