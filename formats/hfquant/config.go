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
)

// entry is the part of config.json that describes quantization.
type entry struct {
	file string   // "" for config.json
	path []string // its keys, from the outermost
	raw  []byte   // JSON
	// Method is quant_method; "" for MLX, which writes none.
	Method string `json:"quant_method"`
}

// entryPaths lists where libraries put the entry, in the order in which vLLM and mlx-lm look.
// A model of text and images (Kimi-K2.5) has it in text_config. MLX writes the same content to
// "quantization" and "quantization_config".
var entryPaths = [][]string{
	{"quantization_config"},
	{"quantization"},
	{"compression_config"},
	{"text_config", "quantization_config"},
	{"text_config", "quantization"},
}

// findEntry returns the entry of config, or nil if it has none. "quantization_config" without a
// quant_method is only taken as a last resort: MLX writes one beside "quantization".
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

// oldFiles are where AutoGPTQ and AutoAWQ wrote the entry before config.json had it.
var oldFiles = []struct{ file, method string }{
	{"quantize_config.json", "gptq"},
	{"quant_config.json", "awq"},
}

// ConfigFiles lists the names of the files beside config.json that say how a checkpoint was quantized.
func ConfigFiles() (names []string) {
	for _, old := range oldFiles {
		names = append(names, old.file)
	}
	return names
}

// oldEntry sets the entry if the checkpoint has tensors of GPTQ or AWQ and one of the old files.
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

// WithoutQuantization returns config.json without the entries that describe quantization. The rest
// keeps its bytes.
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

// remove returns config without the member at the path of keys.
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

// objectAt returns where the object at the path of keys begins and ends in the JSON text; ok is false
// if there is none.
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

// Untied returns config.json with tie_word_embeddings false: the lm_head is not the embedding. Other
// spellings and the statement in text_config become false too. The keys are sorted, but a config with
// Python's Infinity or NaN, which encoding/json cannot write, keeps its other bytes.
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

// WithDtype returns config.json with another dtype of the weights, where it states one.
func WithDtype(config []byte, dtype string) ([]byte, error) {
	text := jsonscan.Finite(config)
	if err := checkObject(text); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return replace(config, text, []string{"torch_dtype", "dtype"}, fmt.Sprintf("%q", dtype)), nil
}

// replace returns config with another value for the keys, where it or its text_config has them. text
// is config as JSON.
func replace(config, text []byte, keys []string, value string) (out []byte) {
	var values []int // where they are
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

// checkObject fails if text is not a JSON object.
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

// withEntry returns config with the value as its member called key, at its end. Entries that
// described quantization before are gone.
func withEntry(config []byte, key string, value any) ([]byte, error) {
	config, err := WithoutQuantization(config)
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
