package togguf

import (
	"cmp"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/write"
)

// fileTypes are the values of general.file_type (enum llama_ftype) of files whose weights are
// mostly of a type. Of K types it is the file type with only that type, where there is one.
var fileTypes = map[gguf.TensorType]uint32{
	gguf.F32: 0, gguf.F16: 1, gguf.BF16: 32,
	gguf.Q1_0: 40, gguf.Q2_0: 41, gguf.Q4_0: 2, gguf.Q4_1: 3, gguf.Q5_0: 8, gguf.Q5_1: 9, gguf.Q8_0: 7,
	gguf.Q2_K: 10, gguf.Q3_K: 11, gguf.Q4_K: 14, gguf.Q5_K: 16, gguf.Q6_K: 18,
}

// metadata are the key-value pairs of the file. hashes and found are as for Model.Provenance.
func (o *Output) metadata(c *plan.Codes, hashes []string, found []write.ItemResult) ([]gguf.Pair, error) {
	pairs := []gguf.Pair{
		{Key: gguf.KeyArchitecture, Value: o.Model.Architecture},
		{Key: "general.type", Value: "model"},
	}
	pairs = append(pairs, o.card...)
	pairs = append(pairs, o.Model.Metadata...)
	pairs = append(pairs,
		gguf.Pair{Key: "general.file_type", Value: fileTypes[o.mostType()]},
		gguf.Pair{Key: "general.quantization_version", Value: uint32(2)}, // GGML_QNT_VERSION
	)
	pairs = append(pairs, o.vocab.Metadata...)
	recipe, origin, err := o.from.Provenance(c, hashes, found)
	if err != nil {
		return nil, err
	}
	for _, p := range []struct {
		key  string
		json []byte
	}{{provenance.GGUFRecipe, recipe}, {provenance.GGUFProvenance, origin}} {
		if p.json != nil {
			pairs = append(pairs, gguf.Pair{Key: p.key, Value: strings.TrimSpace(string(p.json))})
		}
	}
	return pairs, nil
}

// mostType is the type of most weights in matrices.
func (o *Output) mostType() (most gguf.TensorType) {
	counts := map[gguf.TensorType]int64{}
	for i, t := range o.Model.Tensors {
		if len(t.Shape) < 2 {
			continue
		}
		counts[o.types[i]] += t.Elements()
	}
	first := true
	for t, n := range counts {
		if first || cmp.Or(cmp.Compare(n, counts[most]), cmp.Compare(most, t)) > 0 {
			most, first = t, false
		}
	}
	return most
}
