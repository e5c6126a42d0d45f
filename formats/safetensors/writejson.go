package safetensors

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// makeHeader makes the JSON of a file's header without its padding, piece by piece. emit must not
// keep a piece.
func (l *Layout) makeHeader(shard int, emit func(piece []byte) error) error {
	b := append(make([]byte, 0, 1<<16), `{"__metadata__":{`...)
	var err error
	for i, k := range slices.Sorted(maps.Keys(l.metadata)) {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendString(b, k); err != nil {
			return err
		}
		b = append(b, ':')
		if b, err = appendString(b, l.metadata[k]); err != nil {
			return err
		}
	}
	b = append(b, '}')
	offset := int64(0)
	for _, i := range l.members[shard] {
		if len(b) > 1<<15 {
			if err := emit(b); err != nil {
				return err
			}
			b = b[:0]
		}
		t := l.specs[i]
		b = append(b, ',')
		if b, err = appendString(b, t.Name); err != nil {
			return err
		}
		b = fmt.Appendf(b, `:{"dtype":%q,"shape":[`, t.Dtype)
		for j, d := range t.Shape {
			if j > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, d, 10)
		}
		end := offset + l.Places[i].Size
		b = fmt.Appendf(b, `],"data_offsets":[%d,%d]}`, offset, end)
		offset = end
	}
	return emit(append(b, '}'))
}

// WriteHeader writes the first bytes of shard i: the header's length, and the JSON padded with
// spaces to a multiple of 8 bytes. The header of many tensors is as large as their names, so that
// no copy is kept.
func (l *Layout) WriteHeader(i int, w io.Writer) error {
	end := l.Shards[i].HeaderSize
	b := bufio.NewWriterSize(w, 1<<16) // Flush returns its first error
	b.Write(binary.LittleEndian.AppendUint64(nil, uint64(end-8)))
	n := int64(8)
	err := l.makeHeader(i, func(piece []byte) error {
		n += int64(len(piece))
		_, err := b.Write(piece)
		return err
	})
	if err != nil {
		return err
	}
	b.WriteString("       "[:end-n])
	return b.Flush()
}

// Index returns the content of [IndexName] for a checkpoint of several files, in the form of
// Transformers: indented, with sorted names. A single file has a nil Index.
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
		b, _ = appendString(b, name) // valid in makeHeader
		b = fmt.Appendf(b, ": %q", byName[name])
	}
	return append(b, "\n  }\n}\n"...)
}

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
