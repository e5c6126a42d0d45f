package llamacpp

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
)

// exactFacts is the entry of a model card that was made of a GGUF file: the file's own keys, from
// which Card makes the same keys again.
const exactFacts = "gguf"

// QuantizePrefix begins the keys that describe how a GGUF file was quantized, such as the
// importance matrix.
const QuantizePrefix = "quantize."

// ownKeys are keys that each writer of a GGUF file computes.
var ownKeys = []string{
	keyType, gguf.KeyArchitecture, "general.file_type", "general.quantization_version", "general.alignment",
}

const keySizeLabel = "general.size_label"

func exactKey(key string) bool {
	return (strings.HasPrefix(key, "general.") || strings.HasPrefix(key, QuantizePrefix)) && !slices.Contains(ownKeys, key)
}

// maxFact bounds a value that a card carries, in bytes.
const maxFact = 64 << 10

// readCard returns a model card with the facts of a GGUF file: those that the Hugging Face Hub
// knows, and all of them under exactFacts. A file without facts has no card (nil).
func readCard(f *gguf.File) ([]byte, error) {
	exact := map[string]any{}
	for key := range f.Metadata {
		if v := exactValue(f, key); v != nil && exactKey(key) {
			exact[key] = v
		}
	}
	if _, sized := exact[keySizeLabel]; len(exact) == 0 || sized && len(exact) == 1 {
		return nil, nil
	}
	card, err := []byte("---\n"), error(nil)
	line := func(indent, key string, v any) {
		b, e := encode(v)
		if x, ok := v.(float32); ok { // with a point, unlike an integer
			if b = strconv.AppendFloat(nil, float64(x), 'f', -1, 32); !bytes.ContainsRune(b, '.') {
				b = append(b, ".0"...)
			}
		}
		if err == nil {
			err = e
		}
		card = append(append(append(card, indent+key+": "...), b...), '\n')
	}
	for _, known := range [][2]string{
		{"license", "general.license"}, {"license_name", "general.license.name"}, {"license_link", "general.license.link"},
		{"model_name", "general.name"}, {"language", "general.languages"}, {"tags", "general.tags"},
	} {
		if v, ok := exact[known[1]]; ok {
			line("", known[0], v)
		}
	}
	card = append(card, exactFacts+":\n"...)
	for _, key := range slices.Sorted(maps.Keys(exact)) {
		line("  ", strconv.Quote(key), exact[key])
	}
	return append(card, "---\n"...), err
}

func exactValue(f *gguf.File, key string) any {
	switch v := f.Metadata[key].(type) {
	case string:
		if len(v) <= maxFact {
			return strings.ToValidUTF8(v, "\ufffd")
		}
	case float32:
		if !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) {
			return v
		}
	case bool:
		return v
	case gguf.Array:
		list, ok := v.Strings()
		if ok && v.Len <= 1000 && !slices.ContainsFunc(list, func(s string) bool { return len(s) > maxFact/1000 }) {
			return list
		}
	default:
		if n, ok := f.Int(key); ok {
			return n
		}
	}
	return nil
}

// exactPairs is the inverse of readCard.
func exactPairs(facts map[string]any) (pairs []gguf.Pair) {
	for _, key := range slices.Sorted(maps.Keys(facts)) {
		if !exactKey(key) {
			continue
		}
		value := facts[key]
		switch v := value.(type) {
		case string, bool, int64:
		case float64:
			value = float32(v)
		case uint64:
			if v <= math.MaxUint32 {
				value = uint32(v)
			}
		case []any:
			list := []string{}
			for _, s := range v {
				if s, ok := s.(string); ok {
					list = append(list, s)
				}
			}
			value = list
		default:
			continue
		}
		pairs = append(pairs, gguf.Pair{Key: key, Value: value})
	}
	return pairs
}
