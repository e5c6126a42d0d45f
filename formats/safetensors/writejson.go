package safetensors

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// makeHeader returns the header of a file with these tensors, by their indices, in this order: its
// length, and the JSON padded with spaces to a multiple of 8 bytes. It sets the tensors' offsets
// relative to the end of the header.
func (l *Layout) makeHeader(tensors []int, metadata map[string]string) ([]byte, error) {
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
	for _, i := range tensors {
		t, place := l.specs[i], &l.Places[i]
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
		b = fmt.Appendf(b, `],"data_offsets":[%d,%d]}`, offset, offset+place.Size)
		place.Offset = offset
		offset += place.Size
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

// Index returns the content of [IndexName], which a checkpoint of several files has, in the form of
// Transformers: indented, with sorted names. It is nil for a single file.
func (l *Layout) Index() []byte {
	if len(l.Shards) == 1 {
		return nil
	}
	total := int64(0)
	byName := make(map[string]string, len(l.specs))
	for i, p := range l.Places {
		total += p.Size
		byName[l.specs[i].Name] = l.Shards[p.Shard].Name
	}
	b := fmt.Appendf(nil, "{\n  \"metadata\": {\n    \"total_size\": %d\n  },\n  \"weight_map\": {", total)
	for i, name := range slices.Sorted(maps.Keys(byName)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n    "...)
		b, _ = appendString(b, name) // valid: makeHeader accepted it
		b = fmt.Appendf(b, ": %q", byName[name])
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
