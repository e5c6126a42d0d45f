package safetensors

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// makeHeader returns the header of a file with these tensors in this order: its length, and the
// JSON padded with spaces to a multiple of 8 bytes. It sets the tensors' offsets relative to the
// end of the header.
func makeHeader(tensors []*target, metadata map[string]string) ([]byte, error) {
	b := make([]byte, 8)
	b = append(b, `{"__metadata__":{`...)
	var err error
	for i, k := range slices.Sorted(maps.Keys(metadata)) {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendString(b, k); err != nil {
			return nil, err
		}
		b = append(b, ':')
		if b, err = appendString(b, metadata[k]); err != nil {
			return nil, err
		}
	}
	b = append(b, '}')
	offset := int64(0)
	for _, t := range tensors {
		b = append(b, ',')
		if b, err = appendString(b, t.Name); err != nil {
			return nil, err
		}
		b = fmt.Appendf(b, `:{"dtype":%q,"shape":[`, t.Dtype)
		for j, d := range t.Shape {
			if j > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, d, 10)
		}
		b = fmt.Appendf(b, `],"data_offsets":[%d,%d]}`, offset, offset+t.size)
		t.offset = offset
		offset += t.size
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	if limit := (Options{}).withDefaults().MaxHeaderBytes; int64(len(b)) > limit {
		return nil, fmt.Errorf("safetensors: a header of %d bytes exceeds the limit of readers, %d; use more shards", len(b), limit)
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	return b, nil
}

// index returns the index of a checkpoint of several files in the form of Transformers: indented,
// with sorted names.
func (w *Writer) index() []byte {
	total := int64(0)
	for _, s := range w.shards {
		total += s.bytes
	}
	b := fmt.Appendf(nil, "{\n  \"metadata\": {\n    \"total_size\": %d\n  },\n  \"weight_map\": {", total)
	byName := make(map[string]*shard, len(w.tensors))
	for i := range w.tensors {
		byName[w.tensors[i].Name] = w.tensors[i].shard
	}
	for i, name := range slices.Sorted(maps.Keys(byName)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n    "...)
		b, _ = appendString(b, name) // valid: makeHeader accepted it
		b = fmt.Appendf(b, ": %q", byName[name].name)
	}
	return append(b, "\n  }\n}\n"...)
}

// appendString appends s as a JSON string.
func appendString(b []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("safetensors: %s is not valid UTF-8", quote(s))
	}
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"'), nil
}
