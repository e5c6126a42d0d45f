package llamacpp

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lowbit-go/gq/formats/gguf"
)

// A KeyError reports a key of a GGUF file's metadata that does not describe a model, or that asks
// for something that a Hugging Face checkpoint or this program cannot express.
type KeyError struct {
	Key string // "llama.block_count"; "" for the whole metadata
	Msg string
}

func (e *KeyError) Error() string {
	if e.Key == "" {
		return e.Msg
	}
	return e.Key + " " + e.Msg
}

// keyReader reads metadata and keeps the first error; later values are meaningless.
type keyReader struct {
	file *gguf.File
	arch string          // replaces ARCH in keys
	used map[string]bool // keys that were read, unless nil
	err  error
}

func (k *keyReader) name(key string) string {
	if rest, ok := strings.CutPrefix(key, "ARCH."); ok {
		return k.arch + "." + rest
	}
	return key
}

func (k *keyReader) fail(key, format string, args ...any) {
	if k.err == nil {
		k.err = k.error(key, format, args...)
	}
}

func (k *keyReader) error(key, format string, args ...any) error {
	return &KeyError{k.name(key), fmt.Sprintf(format, args...)}
}

func (k *keyReader) has(key string) bool {
	if k.used != nil {
		k.used[k.name(key)] = true
	}
	_, ok := k.file.Metadata[k.name(key)]
	return ok
}

// readKey reads a key with get, or returns absent.
func readKey[T any](k *keyReader, key string, absent T, want string, get func(key string) (T, bool)) T {
	if !k.has(key) {
		return absent
	}
	v, ok := get(k.name(key))
	if !ok {
		k.fail(key, "is %s: %s was expected", k.describe(key), want)
	}
	return v
}

func (k *keyReader) text(key string) string {
	s := readKey(k, key, "", "a string", k.file.Text)
	if !utf8.ValidString(s) {
		k.fail(key, "is not valid UTF-8")
	}
	return s
}

func (k *keyReader) boolean(key string, absent bool) bool {
	return readKey(k, key, absent, "true or false", k.file.Bool)
}

// count reads an integer from 0 to 2^31-1. absent < 0: the key is required.
func (k *keyReader) count(key string, absent int) int {
	if !k.has(key) {
		if absent < 0 {
			k.fail(key, "is missing")
			return 0
		}
		return absent
	}
	n, ok := k.file.Int(k.name(key))
	if !ok || n < 0 || n > math.MaxInt32 {
		k.fail(key, "is %s: an integer from 0 to %d was expected", k.describe(key), math.MaxInt32)
		return 0
	}
	return int(n)
}

// size is count, but not 0.
func (k *keyReader) size(key string, absent int) int {
	n := k.count(key, absent)
	if n == 0 {
		k.fail(key, "is 0: a positive integer was expected")
	}
	return n
}

// positive reads a finite number above 0; absent 0: the key is required.
func (k *keyReader) positive(key string, absent float64) float64 {
	if !k.has(key) {
		if absent == 0 {
			k.fail(key, "is missing")
		}
		return absent
	}
	f := k.number(key)
	if !(f > 0) {
		k.fail(key, "is %s: a positive number was expected", k.describe(key))
		return 1
	}
	return f
}

// number reads a finite number. A float32 becomes the shortest decimal that rounds to the same
// float32: a file has the float32 next to 1e-6, and a config.json has 1e-6.
func (k *keyReader) number(key string) float64 {
	f, ok := k.file.Float(k.name(key))
	if !ok || math.IsInf(f, 0) || math.IsNaN(f) {
		k.fail(key, "is %s: a finite number was expected", k.describe(key))
		return 0
	}
	if v, ok := k.file.Metadata[k.name(key)].(float32); ok {
		f = shortest(v)
	}
	return f
}

// shortest returns the number with the fewest decimal digits among those that round to f.
func shortest(f float32) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
	return v
}

func (k *keyReader) strings(key string) []string {
	list := readArray(k, key, "strings", gguf.Array.Strings)
	for i, s := range list {
		if !utf8.ValidString(s) {
			k.fail(key, "has %.40q as element %d, which is not valid UTF-8", s, i)
			return nil
		}
	}
	return list
}

// integers reads an array of at most n integers.
func (k *keyReader) integers(key string, n int) []int64 {
	if a, ok := k.array(key); ok && a.Len > n {
		k.fail(key, "has %d elements: at most %d were expected", a.Len, n)
		return nil
	}
	return readArray(k, key, "integers", gguf.Array.Ints)
}

func (k *keyReader) floats(key string) []float32 {
	return readArray(k, key, "numbers", func(a gguf.Array) (list []float32, ok bool) {
		if list, ok = a.Floats(); ok {
			return list, true
		}
		integers, ok := a.Ints() // older files have such scores
		for _, n := range integers {
			list = append(list, float32(n))
		}
		return list, ok
	})
}

func readArray[T any](k *keyReader, key, elements string, get func(gguf.Array) ([]T, bool)) []T {
	a, ok := k.array(key)
	if !ok {
		return nil
	}
	list, ok := get(a)
	if !ok {
		k.fail(key, "is %s: an array of %s was expected", k.describe(key), elements)
	}
	return list
}

// maxElements bounds arrays before the copy: empty strings in a sparse file cost nothing. Gemma 3
// has 262,144 tokens and 514,906 merges.
const maxElements = 4 << 20

func (k *keyReader) array(key string) (gguf.Array, bool) {
	if !k.has(key) {
		return gguf.Array{}, false
	}
	a, ok := k.file.Array(k.name(key))
	if !ok {
		k.fail(key, "is %s: an array was expected", k.describe(key))
	} else if a.Len > maxElements {
		k.fail(key, "has %d elements: at most %d were expected", a.Len, maxElements)
		return a, false
	}
	return a, ok
}

func (k *keyReader) describe(key string) string {
	switch v := k.file.Metadata[k.name(key)].(type) {
	case string:
		return fmt.Sprintf("%.40q", v)
	case gguf.Array:
		return fmt.Sprintf("an array of %d values of type %s", v.Len, v.Type)
	default:
		return fmt.Sprint(v)
	}
}
