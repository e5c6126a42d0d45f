// Package testgiant makes checkpoints of any size that are never stored: headers in full, and
// weights as pseudo-random numbers that are computed by reading. Only tests and measurements import
// testgiant.
//
//	m := testgiant.Dense(80, 8192, 28672, 128256, 64, 8) // the shapes of Llama 70B
//	for _, f := range m.Files { ... f.Name, f.Size, f.ReadAt ... }
package testgiant

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Model is a checkpoint.
type Model struct {
	Config     []byte // config.json
	Index      []byte // model.safetensors.index.json
	Files      []*File
	Parameters int64
}

// A File is a file with weights.
type File struct {
	Name   string
	Size   int64
	header []byte
	spans  []span // of the data, in order
}

// span is the data of consecutive tensors of the same dtype.
type span struct {
	end   int64 // offset in the file
	dtype string
}

type tensor struct {
	name  string
	dtype string
	shape []int64
}

var dtypeBytes = map[string]int64{"F32": 4, "BF16": 2, "F8_E4M3": 1}

func (t tensor) bytes() int64 {
	n := dtypeBytes[t.dtype]
	for _, d := range t.shape {
		n *= d
	}
	return n
}

// Block divides the offset of the data in a file, so that files can share blocks of a disk.
const Block = 4096

// shardBytes is the greatest size of the tensors in a file.
const shardBytes = 5_000_000_000

// Dense makes a model of the architecture of Llama, in BF16.
func Dense(layers, hidden, inter, vocab, heads, kvHeads int64) *Model {
	config := fmt.Sprintf(`{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d,
"num_attention_heads": %d, "num_key_value_heads": %d, "vocab_size": %d, "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}`,
		hidden, inter, layers, heads, kvHeads, vocab)
	list := ends(hidden, vocab)
	kv := hidden / heads * kvHeads
	for l := range layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		list = append(list,
			tensor{p + "input_layernorm.weight", "BF16", []int64{hidden}},
			tensor{p + "mlp.down_proj.weight", "BF16", []int64{hidden, inter}},
			tensor{p + "mlp.gate_proj.weight", "BF16", []int64{inter, hidden}},
			tensor{p + "mlp.up_proj.weight", "BF16", []int64{inter, hidden}},
			tensor{p + "post_attention_layernorm.weight", "BF16", []int64{hidden}},
			tensor{p + "self_attn.k_proj.weight", "BF16", []int64{kv, hidden}},
			tensor{p + "self_attn.o_proj.weight", "BF16", []int64{hidden, hidden}},
			tensor{p + "self_attn.q_proj.weight", "BF16", []int64{hidden, hidden}},
			tensor{p + "self_attn.v_proj.weight", "BF16", []int64{kv, hidden}})
	}
	return build(config, list)
}

// Experts makes a mixture of experts of the architecture of DeepSeek-V3, without the parts of
// multi-head latent attention that need a shape of their own. dtype is BF16, or F8_E4M3 with block
// scales.
func Experts(dtype string, layers, experts, hidden, inter, vocab int64) *Model {
	quantized := ""
	if dtype == "F8_E4M3" {
		quantized = `, "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}`
	}
	config := fmt.Sprintf(`{"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": %d, "moe_intermediate_size": %d, "intermediate_size": %d,
"num_hidden_layers": %d, "n_routed_experts": %d, "vocab_size": %d, "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "first_k_dense_replace": 0%s}`,
		hidden, inter, inter, layers, experts, vocab, quantized)
	list := ends(hidden, vocab)
	matrix := func(name string, rows, cols int64) {
		list = append(list, tensor{name, dtype, []int64{rows, cols}})
		if quantized != "" {
			list = append(list, tensor{name + "_scale_inv", "F32", []int64{(rows + 127) / 128, (cols + 127) / 128}})
		}
	}
	for l := range layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		list = append(list, tensor{p + "input_layernorm.weight", "BF16", []int64{hidden}}, tensor{p + "post_attention_layernorm.weight", "BF16", []int64{hidden}},
			tensor{p + "mlp.gate.weight", "BF16", []int64{experts, hidden}})
		for e := range experts {
			x := fmt.Sprintf("%smlp.experts.%d.", p, e)
			matrix(x+"down_proj.weight", hidden, inter)
			matrix(x+"gate_proj.weight", inter, hidden)
			matrix(x+"up_proj.weight", inter, hidden)
		}
		matrix(p+"self_attn.o_proj.weight", hidden, hidden)
	}
	return build(config, list)
}

func ends(hidden, vocab int64) []tensor {
	return []tensor{{"lm_head.weight", "BF16", []int64{vocab, hidden}}, {"model.embed_tokens.weight", "BF16", []int64{vocab, hidden}}, {"model.norm.weight", "BF16", []int64{hidden}}}
}

// build distributes tensors over files as Transformers does: in order, and in a file by dtype and
// name.
func build(config string, list []tensor) *Model {
	m := &Model{Config: []byte(config)}
	var shards [][]tensor
	size := int64(shardBytes)
	for _, t := range list {
		if size+t.bytes() > shardBytes {
			shards, size = append(shards, nil), 0
		}
		size += t.bytes()
		shards[len(shards)-1] = append(shards[len(shards)-1], t)
		m.Parameters += t.bytes() / dtypeBytes[t.dtype]
	}
	index := []byte(`{"metadata":{},"weight_map":{`)
	for i, tensors := range shards {
		f := newFile(fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards)), tensors)
		m.Files = append(m.Files, f)
		for _, t := range tensors {
			index = fmt.Appendf(index, "%q:%q,", t.name, f.Name)
		}
	}
	index[len(index)-1] = '}'
	m.Index = append(index, '}')
	return m
}

func newFile(name string, tensors []tensor) *File {
	slices.SortFunc(tensors, func(a, b tensor) int {
		return cmp.Or(cmp.Compare(dtypeBytes[b.dtype], dtypeBytes[a.dtype]), strings.Compare(a.name, b.name))
	})
	f, h, at := &File{Name: name}, []byte("{"), int64(0)
	for _, t := range tensors {
		shape := strings.ReplaceAll(fmt.Sprint(t.shape), " ", ",")
		h = fmt.Appendf(h, `%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]},`, t.name, t.dtype, shape, at, at+t.bytes())
		at += t.bytes()
		if n := len(f.spans); n > 0 && f.spans[n-1].dtype == t.dtype {
			f.spans[n-1].end = at
		} else {
			f.spans = append(f.spans, span{at, t.dtype})
		}
	}
	h[len(h)-1] = '}'
	for (len(h)+8)%Block != 0 {
		h = append(h, ' ')
	}
	f.header = append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...)
	f.Size = int64(len(f.header)) + at
	for i := range f.spans {
		f.spans[i].end += int64(len(f.header))
	}
	return f
}

// ReadAt implements io.ReaderAt. A file may be read from several goroutines.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 || off > f.Size {
		return 0, fmt.Errorf("%s: offset %d is not in the file", f.Name, off)
	}
	if int64(len(p)) > f.Size-off {
		p, err = p[:f.Size-off], io.EOF
	}
	n = len(p)
	if off < int64(len(f.header)) {
		k := copy(p, f.header[off:])
		p, off = p[k:], off+int64(k)
	}
	for _, s := range f.spans {
		if off < s.end {
			k := min(int64(len(p)), s.end-off)
			weights(p[:k], off, s.dtype)
			p, off = p[k:], off+k
		}
	}
	return n, err
}

// weights fills p with the bytes of a span from offset off of the file on. Every value is finite
// and small. Values repeat after period bytes.
func weights(p []byte, off int64, dtype string) {
	table := tables[dtype]
	for len(p) > 0 {
		k := copy(p, table[off%int64(len(table)):])
		p, off = p[k:], off+int64(k)
	}
}

// period is a multiple of 8 (all data begin at such offsets), but of no size of a tensor: no two
// tensors are equal.
const period = 8 * 521

// tables hold values of each dtype.
var tables = func() map[string][]byte {
	list, x := map[string][]byte{}, uint32(1)
	for _, dtype := range []string{"F32", "BF16", "F8_E4M3"} {
		var b []byte
		for len(b) < period {
			x = x*1664525 + 1013904223
			switch dtype {
			case "F32": // scales: 2^-7 to 2^-5
				b = binary.LittleEndian.AppendUint32(b, 0x3c000000+x>>8)
			case "BF16": // 2^-7 to 2^-3 and their negatives
				b = binary.LittleEndian.AppendUint16(b, uint16(0x3c00+x>>23+x>>8&0x8000))
			default: // up to 2^1
				b = append(b, byte(x>>24)&0xbf)
			}
		}
		list[dtype] = b
	}
	return list
}()
