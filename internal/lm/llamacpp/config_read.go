package llamacpp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// configReader makes a config.json from metadata.
type configReader struct {
	keyReader
	family    family
	modelType string
	layers    int
	// predictors is the number of layers behind these that predict further tokens. Arrays have an
	// element for each, or none.
	predictors int
	headDim    int
	positions  int
	config     object
}

// ReadConfig returns the config.json of the model in a GGUF file, without its tokenizer.
func ReadConfig(f *gguf.File) (config []byte, err error) {
	err = f.Guard(func() error {
		r, err := newConfigReader(f)
		if err != nil {
			return err
		}
		all, err := r.read()
		if err != nil {
			return err
		}
		config, err = encode(all)
		return err
	})
	return config, err
}

func newConfigReader(f *gguf.File) (*configReader, error) {
	r := &configReader{keyReader: keyReader{file: f, used: map[string]bool{}}}
	switch t := r.text(keyType); t {
	case "", "model":
	default:
		r.fail(keyType, "is %.40q: a model was expected", t)
	}
	r.arch = r.text(gguf.KeyArchitecture)
	if !r.has(gguf.KeyArchitecture) {
		r.fail(gguf.KeyArchitecture, "is missing: the architecture of the model is unknown")
	}
	var ok bool
	if r.modelType, ok = modelTypes()[r.arch]; !ok && r.err == nil {
		return nil, unsupported("%s is %.40q, which this program does not know. Known are %s", gguf.KeyArchitecture, r.arch, strings.Join(knownFamilies(), ", "))
	}
	if r.err != nil {
		return nil, r.err
	}
	r.family, _ = familyOf(r.modelType)
	// An architecture of llama.cpp may be two model types, with experts, windows or sigmoid scores
	// and without.
	if r.has(keyExperts) && r.count(keyExperts, 0) > 0 && !r.family.mixes() {
		r.choose((*family).mixes)
	}
	if r.has(keyWindow) && r.count(keyWindow, 0) > 0 && r.family.Windows == arch.IgnoredWindow {
		r.choose(func(f *family) bool { return f.Windows != arch.IgnoredWindow })
	}
	if r.has(keyGating) && r.count(keyGating, 0) == gatingSigmoid && !r.family.Mixture.Sigmoid {
		r.choose(func(f *family) bool { return f.Mixture.Sigmoid })
	}
	return r, r.err
}

// choose takes the first model type of the architecture that fits, if any does.
func (r *configReader) choose(fits func(f *family) bool) {
	for _, name := range arch.Architectures() {
		if f, ok := familyOf(name); ok && f.Name == r.family.Name && fits(&f) {
			r.modelType, r.family = name, f
			return
		}
	}
}

// otherKeys are keys of an architecture that do not change the model, or that are read elsewhere.
var otherKeys = []string{
	keyVocabSize, "ARCH.tensor_data_layout", "ARCH.rope.scaling.finetuned", "ARCH.leading_dense_block_count", "ARCH.pooling_type",
	keyGroupsUsed, keyDeepstack, keySharedKeys, keyPerLayerWidth, "ARCH.altup.num_inputs", "ARCH.altup.active_idx", "ARCH.activation_sparsity_scale",
}

// read makes the config.json. Each key of the architecture must be understood.
func (r *configReader) read() (object, error) {
	r.config = object{"model_type": r.modelType, "architectures": []string{arch.ClassName(r.modelType)}}
	r.readSizes()
	if r.err != nil { // what follows relies on sizes within their limits
		return nil, r.err
	}
	r.readRope()
	maps.Copy(r.config, r.family.Config(r))
	if r.has(keyLogitCap) && r.number(keyLogitCap) != 0 {
		r.set("final_logit_softcapping", r.positive(keyLogitCap, 0))
	}
	if r.has(keyExperts) {
		r.checkExperts()
	}
	if r.family.WideLayers > 0 {
		scalar := r.headDim
		if r.layers == r.family.WideLayers {
			scalar = r.config["hidden_size"].(int) / max(1, r.config["num_attention_heads"].(int))
		}
		r.set("query_pre_attn_scalar", scalar)
	}
	if r.family.Scales {
		r.set("embedding_multiplier", r.positive(keyEmbeddingScale, 1))
		r.set("residual_multiplier", r.positive(keyResidualScale, 1))
		r.set("attention_multiplier", r.positive(keyAttentionScale, 1/math.Sqrt(float64(r.headDim))))
		r.set("logits_scaling", r.positive(keyLogitScale, 1))
	}
	if r.family.PartialRope {
		dims := r.size(keyRopeDims, r.headDim)
		if dims > r.headDim {
			r.fail(keyRopeDims, "is %d: at most the %d dimensions of a head were expected", dims, r.headDim)
		}
		r.set("partial_rotary_factor", partialFactor(dims, r.headDim))
	}
	if r.family.Windows >= arch.UsedWindow {
		r.readWindows(r.count(keyWindow, r.family.Window))
	}
	if theta, _ := r.config["rope_theta"].(float64); r.family.LocalRope && r.positive(keyRopeBaseWindow, theta) != theta {
		r.fail(keyRopeBaseWindow, "is %v: %v was expected, as in layers without a window", r.positive(keyRopeBaseWindow, theta), theta)
	}
	// Transformers wants 30.0, not 30.
	for _, key := range []string{"attn_logit_softcapping", "final_logit_softcapping"} {
		if v, ok := r.config[key].(float64); ok && v == math.Trunc(v) {
			r.config[key] = json.Number(fmt.Sprintf("%.1f", v))
		}
	}
	r.unknownKeys()
	return r.config, r.err
}

// The methods below make a configReader an arch.Metadata.
func (r *configReader) HasTensor(name string) bool       { return r.file.Tensor(name) != nil }
func (r *configReader) Count(key string, absent int) int { return r.count("ARCH."+key, absent) }
func (r *configReader) Positive(key string, absent float64) float64 {
	return r.positive("ARCH."+key, absent)
}
func (r *configReader) List(key string) []int {
	if _, ok := r.file.Array(r.name("ARCH." + key)); !ok {
		return slices.Repeat([]int{r.count("ARCH."+key, -1)}, r.layers)
	}
	list := make([]int, r.layers)
	given := r.integers("ARCH."+key, r.layers+r.predictors)
	if n := len(given); n != r.layers && n != r.layers+r.predictors {
		r.fail("ARCH."+key, "has %d elements for %d layers, and %d behind these that predict further tokens", n, r.layers, r.predictors)
	}
	for i, n := range given[:min(len(given), r.layers)] {
		list[i] = int(max(0, min(n, math.MaxInt32)))
	}
	return list
}
func (r *configReader) Flag(key string, absent bool) bool { return r.boolean("ARCH."+key, absent) }

// checkExperts refuses mixtures of other kinds than the family's.
func (r *configReader) checkExperts() {
	if n := r.count(keyExperts, -1); n > maxExperts {
		r.fail(keyExperts, "is %d: at most %d were expected", n, maxExperts)
	}
	want := gatingSoftmax
	if r.family.Mixture.Sigmoid {
		want = gatingSigmoid
	}
	if got := r.count(keyGating, want); got != want {
		r.fail(keyGating, "is %d: %d was expected", got, want)
	}
	if n := r.count(keyGroups, 1); n > 1 && !r.family.Mixture.Groups {
		r.fail(keyGroups, "is %d: at most 1 was expected", n)
	}
	if step := r.count(keyMixtureStep, 1); step != 1 && !r.family.Mixture.Steps {
		r.fail(keyMixtureStep, "is %d: 1 was expected", step)
	}
	for _, key := range []string{keySharedLength, keySharedCount, keyExpertLength} {
		r.count(key, 0)
	}
}

func (r *configReader) set(key string, value any) { r.config[key] = value }

func (r *configReader) readSizes() {
	embd, heads := r.size(keyEmbeddingLength, -1), r.size(keyHeads, -1)
	if r.layers = r.size(keyBlockCount, -1); r.layers > min(maxLayers, len(r.file.Tensors)) {
		r.fail(keyBlockCount, "is %d: at most %d were expected, in a file of %d tensors", r.layers, maxLayers, len(r.file.Tensors))
		return
	}
	if n := r.count(keyPredictors, 0); n < r.layers {
		r.layers, r.predictors = r.layers-n, n
	}
	r.headDim = r.size(keyKeyLength, max(1, embd/max(1, heads)))
	if r.family.latent() {
		r.headDim = r.size(keyKeyLengthMLA, r.headDim)
	}
	if v := r.size(keyValueLength, r.headDim); v != r.headDim && !r.family.latent() {
		r.fail(keyValueLength, "is %d, and %s is %d: equal numbers were expected", v, r.name(keyKeyLength), r.headDim)
	}
	for _, key := range []string{keyWindowValues, keyWindowRopeDims} {
		if n := r.count(keyWindowKeyLength, 0); r.count(key, n) != n {
			r.fail(key, "is %d, and %s is %d: equal numbers were expected", r.count(key, n), r.name(keyWindowKeyLength), n)
		}
	}
	r.positions = r.size(keyContextLength, -1)
	r.set("hidden_size", embd)
	r.set("num_attention_heads", heads)
	r.set("num_hidden_layers", r.layers)
	if !r.family.latent() {
		r.set("head_dim", r.headDim)
	}
	r.set("max_position_embeddings", r.positions)
	r.set("intermediate_size", r.width(keyFeedForward, -1))
	r.set("num_key_value_heads", r.readKVHeads(heads))
	if r.has(keyNormEps) || !r.has(keyLayerNormEps) {
		r.set("rms_norm_eps", r.positive(keyNormEps, 0))
	}
	table := r.file.Tensor(Embedding)
	if table == nil {
		r.fail("", "tensor %q is missing", Embedding)
		return
	}
	r.set("vocab_size", table.Rows())
	if own := r.file.Tensor("per_layer_token_embd.weight"); r.family.SharesKeys && own != nil {
		rows, size := int(own.Rows()), int(own.RowBytes())
		// Copies of row 0 at the end are for tokens without a row, except in Gemma 4.
		for data := r.file.Data(own); !r.family.Varied && rows > 1 && bytes.Equal(data[(rows-1)*size:][:size], data[:size]); {
			rows--
		}
		r.set("vocab_size_per_layer_input", rows)
	}
	r.set("tie_word_embeddings", r.file.Tensor(headName) == nil)
}

// readKVHeads reads the heads of keys and values, and the layers that have none because they have a
// state.
func (r *configReader) readKVHeads(heads int) int {
	if _, ok := r.file.Array(r.name(keyKVHeads)); !ok || r.family.States == "" {
		return r.width(keyKVHeads, heads)
	}
	list := r.List("attention.head_count_kv")
	types, most := make([]string, r.layers), slices.Max(append(list, 0))
	for i, n := range list {
		switch types[i] = "full_attention"; n {
		case 0:
			types[i] = r.family.States
		case most:
		default:
			r.fail(keyKVHeads, "is %d for layer %d: 0 or %d was expected", n, i, most)
		}
	}
	if most == 0 {
		r.fail(keyKVHeads, "is 0 at most: a positive integer was expected")
	}
	r.set("layer_types", types)
	return most
}

// width reads the number of all layers, or the largest number if layers differ.
func (r *configReader) width(key string, absent int) int {
	if _, ok := r.file.Array(r.name(key)); !ok && !r.family.Varied {
		return r.size(key, absent)
	}
	list := r.List(strings.TrimPrefix(key, "ARCH."))
	most := slices.Max(list)
	for i, n := range list {
		if !r.family.Varied && (n != list[0] || n == 0) {
			r.fail(key, "differs between layers 0 (%d) and %d (%d), or is 0: an architecture with one positive value for all %d layers was expected", list[0], i, n, r.layers)
		}
	}
	return most
}

// readWindows reads which layers have a sliding window: all but each n-th, or those that an array
// names.
func (r *configReader) readWindows(window int) {
	slides := func(i int) bool { return hasWindow(i, r.count(keyWindowPattern, r.family.Period)) }
	if _, ok := r.file.Array(r.name(keyWindowPattern)); ok {
		list := r.List("attention.sliding_window_pattern")
		slides = func(i int) bool { return list[i] != 0 }
	}
	types := make([]string, r.layers)
	for i := range types {
		types[i] = "full_attention"
		if window != 0 && slides(i) {
			types[i] = "sliding_attention"
		}
	}
	r.set("layer_types", types)
	r.set("sliding_window", nil)
	if window != 0 {
		r.set("sliding_window", window)
	}
}

// partialFactor returns the factor from which package arch derives dims of headDim. Package arch
// rounds down.
func partialFactor(dims, headDim int) float64 {
	f := float64(dims) / float64(headDim)
	if int(float64(headDim)*f) != dims {
		f = math.Nextafter(f, 2)
	}
	return f
}

// unknownKeys fails for an unread key of the architecture: the key may change the model.
func (r *configReader) unknownKeys() {
	for _, key := range otherKeys {
		r.used[r.name(key)] = true
	}
	if !r.boolean("ARCH.attention.causal", true) {
		r.fail("ARCH.attention.causal", "is false: a model that generates text was expected")
	}
	var unknown []string
	for key := range r.file.Metadata {
		if strings.HasPrefix(key, r.arch+".") && !r.used[key] {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) == 0 {
		return
	}
	slices.Sort(unknown)
	more := ""
	if len(unknown) > 1 {
		more = " (and " + strings.Join(unknown[1:min(4, len(unknown))], ", ") + ")"
	}
	r.fail(unknown[0], "is a key that this program does not know%s: it may change the model", more)
}
