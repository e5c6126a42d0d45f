package onnx

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strconv"

	"github.com/lowbit-go/gq/internal/protobuf"
	"google.golang.org/protobuf/encoding/protowire"
)

// Decode reads the bytes of a model. The tensors' Raw are parts of data. An error has the offset of
// what is wrong.
func Decode(data []byte) (*Model, error) {
	m := &Model{}
	return m, decode(data, 0, reflect.ValueOf(m).Elem())
}

// Encode returns the bytes of a model. Equal models give equal bytes.
func (m *Model) Encode() []byte { return encode(nil, reflect.ValueOf(m).Elem()) }

// A message is a struct. Its fields have their numbers in the tag pb, and are written in order. A
// field with At behind its name gets the offset of the value in the file. Zeros and empty values
// are not written, except as elements of lists.

// number is the number of field i of a message, 0 for fields that are not stored.
func number(t reflect.Type, i int) protowire.Number {
	n, _ := strconv.Atoi(t.Field(i).Tag.Get("pb"))
	return protowire.Number(n)
}

func isList(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8
}

func wireType(t reflect.Type) protowire.Type {
	switch t.Kind() {
	case reflect.Int64:
		return protowire.VarintType
	case reflect.Float32:
		return protowire.Fixed32Type
	}
	return protowire.BytesType
}

// decode reads a message that begins at byte at of the file. It ignores unknown fields.
func decode(data []byte, at int, v reflect.Value) error {
	return protobuf.Fields(data, at, func(f protobuf.Field) error {
		for i := range v.NumField() {
			if number(v.Type(), i) != f.Number {
				continue
			}
			if offset := v.FieldByName(v.Type().Field(i).Name + "At"); offset.IsValid() {
				offset.SetInt(int64(f.At))
			}
			return set(v.Field(i), &f)
		}
		return nil
	})
}

// set puts a field into v. A list gets another element, or the integers that other programs have
// packed into one field.
func set(v reflect.Value, f *protobuf.Field) error {
	t := v.Type()
	if isList(t) {
		if wireType(t.Elem()) == protowire.VarintType && f.Type == protowire.BytesType {
			for b := f.Value; len(b) > 0; {
				n, size := protowire.ConsumeVarint(b)
				if size < 0 {
					return fmt.Errorf("byte %d: an integer is cut off", f.At+len(f.Value)-len(b))
				}
				v.Set(reflect.Append(v, reflect.ValueOf(int64(n))))
				b = b[size:]
			}
			return nil
		}
		v.Set(reflect.Append(v, reflect.Zero(t.Elem())))
		return set(v.Index(v.Len()-1), f)
	}
	if want := wireType(t); f.Type != want {
		return fmt.Errorf("byte %d: field %d has the wire type %d: %d was expected", f.At, f.Number, f.Type, want)
	}
	switch t.Kind() {
	case reflect.Struct:
		return decode(f.Value, f.At, v)
	case reflect.String:
		v.SetString(string(f.Value))
	case reflect.Slice:
		v.SetBytes(f.Value)
	case reflect.Float32:
		v.SetFloat(float64(math.Float32frombits(binary.LittleEndian.Uint32(f.Value))))
	default:
		v.SetInt(int64(f.Int))
	}
	return nil
}

// encode appends the fields of a message.
func encode(b []byte, v reflect.Value) []byte {
	for i := range v.NumField() {
		n, field := number(v.Type(), i), v.Field(i)
		switch {
		case n == 0:
		case isList(field.Type()):
			for j := range field.Len() {
				b = appendField(b, n, field.Index(j))
			}
		case !field.IsZero():
			b = appendField(b, n, field)
		}
	}
	return b
}

func appendField(b []byte, n protowire.Number, v reflect.Value) []byte {
	b = protowire.AppendTag(b, n, wireType(v.Type()))
	switch v.Kind() {
	case reflect.Struct:
		return protowire.AppendBytes(b, encode(nil, v))
	case reflect.String:
		return protowire.AppendString(b, v.String())
	case reflect.Slice:
		return protowire.AppendBytes(b, v.Bytes())
	case reflect.Float32:
		return protowire.AppendFixed32(b, math.Float32bits(float32(v.Float())))
	}
	return protowire.AppendVarint(b, uint64(v.Int()))
}
