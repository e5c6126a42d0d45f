package hfquant

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/jsonscan"
	"github.com/lowbit-go/gq/packing"
)

// entry is the part of config.json that describes quantization.
type entry struct {
	file string   // "" for config.json
	path []string // its keys, from the outermost
	raw  []byte   // JSON
	// Method is quant_method; "" for MLX, where there is none.
	Method string `json:"quant_method"`
}

// entryPaths lists where libraries put the entry, in the order in which vLLM and mlx-lm look. A
// model of text and images (Kimi-K2.5) has the entry in text_config. MLX writes the same content to
// "quantization" and "quantization_config".
var entryPaths = [][]string{
	{"quantization_config"},
	{"quantization"},
	{"compression_config"},
	{"text_config", "quantization_config"},
	{"text_config", "quantization"},
}

// findEntry returns the entry of config, or nil without an entry. "quantization_config" without a
// quant_method is only a last resort, because MLX writes that in addition to "quantization".
func findEntry(config []byte) (*entry, error) {
	if config == nil {
		return nil, nil
	}
	text := jsonscan.Finite(config)
	var first *entry
	for _, path := range entryPaths {
		raw, err := member(text, path)
		if err != nil {
			return nil, err
		}
		if raw == nil || raw[0] != '{' {
			continue
		}
		e := &entry{path: path, raw: raw}
		if err := json.Unmarshal(raw, e); err != nil {
			return nil, fmt.Errorf("%s: %w", quote(path[len(path)-1]), err)
		}
		if e.Method != "" || path[len(path)-1] == "quantization" {
			return e, nil
		}
		if first == nil {
			first = e
		}
	}
	return first, nil
}

// oldFiles are where AutoGPTQ and AutoAWQ wrote the entry before config.json had an entry.
var oldFiles = []struct{ file, method string }{
	{"quantize_config.json", "gptq"},
	{"quant_config.json", "awq"},
}

// ConfigFiles lists the files, apart from config.json, that say how a checkpoint was quantized.
func ConfigFiles() (names []string) {
	for _, old := range oldFiles {
		names = append(names, old.file)
	}
	return names
}

// oldEntry sets the entry from an old file, if the checkpoint has tensors of GPTQ or AWQ.
func (f *finder) oldEntry() error {
	if !slices.ContainsFunc(f.ck.Tensors(), func(t safetensors.Tensor) bool { return strings.HasSuffix(t.Name, ".qweight") }) {
		return nil
	}
	for _, old := range oldFiles {
		raw, err := files.Read(filepath.Join(f.ck.Dir(), old.file), files.MaxModelFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		f.entry = &entry{file: old.file, raw: jsonscan.Finite(raw)}
		if err := f.readEntry(f.entry); err != nil {
			return err
		}
		f.entry.Method = cmp.Or(f.entry.Method, old.method)
		return nil
	}
	return nil
}

// member returns the value at the path of keys in the JSON text, or nil if there is none.
func member(text []byte, path []string) (json.RawMessage, error) {
	for _, key := range path {
		var m map[string]json.RawMessage
		if err := json.Unmarshal(text, &m); err != nil {
			return nil, err
		}
		if text = m[key]; text == nil {
			return nil, nil
		}
		if text = bytes.TrimSpace(text); len(path) > 1 && text[0] != '{' {
			return nil, nil
		}
	}
	return text, nil
}

// WithoutQuantization removes only the entries that describe quantization from config.json.
func WithoutQuantization(config []byte) ([]byte, error) {
	out := config
	for _, path := range entryPaths {
		var err error
		if out, err = remove(out, path); err != nil {
			return nil, fmt.Errorf("config.json: %w", err)
		}
	}
	return out, nil
}

func remove(config []byte, path []string) ([]byte, error) {
	text := jsonscan.Finite(config) // has the same offsets
	if err := checkObject(text); err != nil {
		return nil, err
	}
	last := len(path) - 1
	start, end, ok := objectAt(text, path[:last])
	if !ok {
		return config, nil
	}
	return cut(config, text, start, end, path[last]), nil
}

// objectAt returns where the object at the path of keys begins and ends in the JSON text, if any.
func objectAt(text []byte, path []string) (start, end int, ok bool) {
	start = jsonscan.SkipSpace(text, 0)
	for _, key := range path {
		at := -1
		for k, v := range jsonscan.Elements(text, start, jsonscan.End(text, start), nil) {
			if name, _ := jsonscan.AppendString(nil, text, k); string(name) == key {
				at = v
			}
		}
		if at < 0 || text[at] != '{' {
			return 0, 0, false
		}
		start = at
	}
	return start, jsonscan.End(text, start), true
}

// Untied returns config.json with tie_word_embeddings false: the lm_head is not the embedding.
// Other spellings and the statement in text_config become false too. The keys are sorted, except in
// a config with Python's Infinity or NaN. encoding/json cannot write those, so other bytes stay.
func Untied(config []byte) ([]byte, error) {
	text := jsonscan.Finite(config)
	if err := checkObject(text); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	const key = "tie_word_embeddings"
	out := replace(config, text, []string{key, "tie_embedding"}, "false")
	var top map[string]json.RawMessage
	if err := json.Unmarshal(text, &top); err != nil {
		return nil, err
	}
	if _, stated := top[key]; !stated {
		var err error
		if out, err = appendMember(out, key, false); err != nil {
			return nil, err
		}
	}
	var sorted map[string]json.RawMessage
	if err := json.Unmarshal(out, &sorted); err != nil {
		return out, nil
	}
	return json.MarshalIndent(sorted, "", "  ")
}

// replace returns config, as JSON in text, with another value for keys here or in text_config.
func replace(config, text []byte, keys []string, value string) (out []byte) {
	var values []int // offsets of the values
	for _, path := range [][]string{nil, {"text_config"}} {
		start, end, ok := objectAt(text, path)
		if !ok {
			continue
		}
		for k, v := range jsonscan.Elements(text, start, end, nil) {
			if name, _ := jsonscan.AppendString(nil, text, k); slices.Contains(keys, string(name)) {
				values = append(values, v)
			}
		}
	}
	slices.Sort(values)
	from := 0
	for _, v := range values {
		out = append(append(out, config[from:v]...), value...)
		from = jsonscan.End(text, v)
	}
	return append(out, config[from:]...)
}

// cut returns config without the members called key of the object text[start:end].
func cut(config, text []byte, start, end int, key string) []byte {
	out := bytes.Clone(config[:start+1])
	from, comma, found := start+1, "", false
	for k, v := range jsonscan.Elements(text, start, end, nil) {
		name, _ := jsonscan.AppendString(nil, text, k)
		stop := jsonscan.End(text, v)
		if string(name) == key {
			found = true
		} else {
			out = append(append(out, comma...), config[from:stop]...)
			comma = ","
		}
		from = stop
		if next := jsonscan.SkipSpace(text, stop); text[next] == ',' {
			from = next + 1
		}
	}
	if !found {
		return config
	}
	return append(out, config[from:]...)
}

func checkObject(text []byte) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	if m == nil {
		return errors.New("it is null, expected an object")
	}
	return nil
}

// WithEntry returns config with value as its last member, called key, in place of a former member
// and of the entries that describe quantization.
func WithEntry(config []byte, key string, value any) ([]byte, error) {
	config, err := WithoutQuantization(config)
	if err == nil {
		config, err = remove(config, []string{key})
	}
	if err != nil {
		return nil, err
	}
	return appendMember(config, key, value)
}

// appendMember returns config with the value as its last member, called key.
func appendMember(config []byte, key string, value any) ([]byte, error) {
	js, err := json.MarshalIndent(value, "  ", "  ")
	if err != nil {
		return nil, err
	}
	text := jsonscan.Finite(config)
	start := jsonscan.SkipSpace(text, 0)
	last := start + 1
	comma := ""
	for _, v := range jsonscan.Elements(text, start, jsonscan.End(text, start), nil) {
		last, comma = jsonscan.End(text, v), ","
	}
	out := append([]byte(nil), config[:last]...)
	out = append(out, comma+"\n  "...)
	out = append(out, fmt.Sprintf("%q: ", key)...)
	out = append(out, js...)
	if tail := config[last:]; bytes.HasPrefix(tail, []byte("}")) {
		out = append(out, '\n')
	}
	return append(out, config[last:]...), nil
}

// QuantizesEmbedding reports whether programs that load checkpoints of a format know quantized
// embeddings. Transformers and vLLM quantize linear layers only.
func (f Format) QuantizesEmbedding() bool { return f == MLX }

// QuantizesHead reports whether these programs expect a quantized lm_head where nothing is stated.
// vLLM loads compressed-tensors and GPTQ checkpoints with an unquantized one, Transformers
// torchao's.
func (f Format) QuantizesHead() bool { return f == MLX }

// served are the schemes for which vLLM has kernels, by format: bits, and the groups (0: a
// channel). Programs for other formats have kernels for all schemes that the format holds.
var served = map[Format]map[int][]int64{
	IntQuantized:  {4: {0, 32, 64, 128, 256}, 8: {0}},
	PackQuantized: {4: {0, 32, 64, 128}, 8: {0, 32, 64, 128}},
	GPTQ:          {2: {0, 32, 64, 128}, 3: {0, 32, 64, 128}, 4: {0, 32, 64, 128}, 8: {0, 32, 64, 128}},
}

// Served reports whether the programs that load checkpoints of a format have kernels for bits and a
// group (0: a channel).
func (f Format) Served(bits int, group int64) bool {
	by, ok := served[f]
	return !ok || slices.Contains(by[bits], group)
}

// MergesLayers reports whether vLLM loads checkpoints of a format. It computes q, k and v, and gate
// and up, as one layer, which needs one scheme.
func (f Format) MergesLayers() bool { return f != "" && f != MLX }

// MergedName is the name of a weight with the layer that programs for a format merge it into, see
// [Format.MergesLayers] and [MergedName]. Weights of experts keep their names.
func (f Format) MergedName(tensor string) string {
	if !f.MergesLayers() || strings.Contains(tensor, ".experts.") {
		return tensor
	}
	return MergedName(tensor)
}

// ScalesFor is the dtype of scales for weights of a dtype. Programs compute in the dtype of
// the model, so that F16 numbers serve F16 models. BF16 numbers serve all others.
func ScalesFor(weights packing.Dtype) packing.ScaleDtype {
	if weights == packing.F16 {
		return packing.ScaleF16
	}
	return packing.ScaleBF16
}

// smallestBF16AsF16 is the smallest power of two from which on all BF16 numbers are F16 numbers.
const smallestBF16AsF16 = 0x1p-17

// SmallestScale is the smallest magnitude of a scale that a format holds. GPTQ stores F16
// numbers. Scales of models that are not F16 are BF16 numbers too: a program that loads such a
// model as BF16 then rounds none of them.
func (f Format) SmallestScale(d packing.ScaleDtype) float32 {
	if f == GPTQ && d == packing.ScaleBF16 {
		return smallestBF16AsF16
	}
	return d.Smallest()
}
