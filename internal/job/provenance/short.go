package provenance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Short writes a provenance of AddTo in fewer bytes, for the metadata of a .gguf file:
//
//   - Tensors of successive layers share an entry. "layers.#0.mlp.up_proj.weight" has the checksums
//     of layers 0, 1, 2 and so on, 8 digits each.
//   - Parameters of a calibration are left out if there is a version, and the hash of its sequences
//     if there is a hash of its text. They follow from these.
//
// The length does not depend on the checksums.
func Short(provenance []byte) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(provenance, &all); err != nil {
		return nil, err
	}
	err := edit(all, "calibration", func(c map[string]json.RawMessage) map[string]json.RawMessage {
		if c["version"] != nil {
			delete(c, "parameters")
		}
		if c["source_sha256"] != nil {
			delete(c, "sequences_sha256")
		}
		return c
	})
	if err == nil {
		err = edit(all, "tensors", SourceSums.join)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// edit replaces the object of a key, if there is one.
func edit[T any](all map[string]json.RawMessage, key string, change func(T) T) (err error) {
	if all[key] == nil {
		return nil
	}
	var v T
	if err = json.Unmarshal(all[key], &v); err == nil {
		all[key], err = json.Marshal(change(v))
	}
	return err
}

const sumDigits = 8

// join gives tensors of successive layers one entry.
func (s SourceSums) join() SourceSums {
	layers := map[string]map[int]string{} // checksums by name around the number, and number
	joined := SourceSums{}
	for name, sum := range s {
		parts := strings.Split(name, ".")
		at := slices.IndexFunc(parts, func(p string) bool { n, err := strconv.Atoi(p); return err == nil && strconv.Itoa(n) == p && n >= 0 })
		if at < 0 || len(sum) != sumDigits || strings.Contains(name, "#") {
			joined[name] = sum
			continue
		}
		n, _ := strconv.Atoi(parts[at])
		parts[at] = "#"
		around := strings.Join(parts, ".")
		if layers[around] == nil {
			layers[around] = map[int]string{}
		}
		layers[around][n] = sum
	}
	for around, of := range layers {
		list := slices.Sorted(maps.Keys(of))
		for len(list) > 0 {
			first, sums := list[0], ""
			for len(list) > 0 && list[0] == first+len(sums)/sumDigits {
				sums += of[list[0]]
				list = list[1:]
			}
			number := strconv.Itoa(first)
			if len(sums) > sumDigits {
				number = "#" + number
			}
			joined[strings.Replace(around, "#", number, 1)] = sums
		}
	}
	return joined
}

// UnmarshalJSON reads checksums, also joined.
func (s *SourceSums) UnmarshalJSON(b []byte) error {
	var joined map[string]string
	if err := json.Unmarshal(b, &joined); err != nil {
		return err
	}
	*s = SourceSums{}
	for name, sums := range joined {
		before, after, found := strings.Cut(name, "#")
		digits, after, _ := strings.Cut(after, ".")
		first, err := strconv.Atoi(digits)
		if !found || err != nil {
			(*s)[name] = sums
			continue
		}
		if first < 0 || len(sums)%sumDigits != 0 {
			return fmt.Errorf("checksums of %q: expected %d digits a layer, found %d", name, sumDigits, len(sums))
		}
		for i := 0; i*sumDigits < len(sums); i++ {
			(*s)[fmt.Sprintf("%s%d.%s", before, first+i, after)] = sums[i*sumDigits:][:sumDigits]
		}
	}
	return nil
}

// Compact returns JSON without white space.
func Compact(text []byte) ([]byte, error) {
	var b bytes.Buffer
	err := json.Compact(&b, text)
	return b.Bytes(), err
}
