package llamacpp

import (
	"math"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/model/arch"
)

// readRope reads the keys and tensors of the positions into rope_theta and rope_scaling.
func (r *configReader) readRope() {
	theta := r.positive(keyRopeBase, 10000)
	r.set("rope_theta", theta)
	if dims := r.size(keyRopeDims, r.headDim); dims != r.headDim && r.modelType != "phi3" {
		r.fail(keyRopeDims, "is %d: the %d dimensions of a head were expected", dims, r.headDim)
	}
	kind := r.text(keyScalingType)
	factor := 0.0
	for _, key := range []string{keyScalingFactor, "ARCH.rope.scale_linear"} {
		if r.has(key) && factor == 0 {
			factor = r.number(key)
		}
	}
	context := 0
	if r.has(keyScalingContext) {
		context = r.size(keyScalingContext, -1)
	}
	attention := r.positive(keyScalingAttn, 1)
	long, short, freqs := r.factors(ropeLong), r.factors(ropeShort), r.factors(ropeFreqs)
	if r.err != nil {
		return
	}
	switch {
	case long != nil && short != nil && (kind == "longrope" || r.modelType == "phi3"):
		r.longRope(long, short, context, attention)
	case long != nil || short != nil:
		r.fail("", "tensors %q and %q: both were expected, in a model whose %s is longrope", ropeLong, ropeShort, r.name(keyScalingType))
	case freqs != nil:
		r.divided(theta, freqs)
	case kind == "longrope":
		r.fail(keyScalingType, "is longrope, but tensors %q and %q are missing", ropeLong, ropeShort)
	case kind == "yarn":
		r.yarn(factor, context, attention)
	case kind == "linear", kind == "" && factor != 0 && factor != 1:
		if !(factor > 0) {
			r.fail(keyScalingFactor, "is missing, or not a positive number")
		}
		r.set("rope_scaling", object{"rope_type": "linear", "factor": factor})
	case kind == "" || kind == "none":
	default:
		r.fail(keyScalingType, "is %.40q: this program knows none, linear, yarn and longrope", kind)
	}
}

func (r *configReader) yarn(factor float64, context int, attention float64) {
	if !(factor > 0) {
		r.fail(keyScalingFactor, "is missing, or not a positive number")
		return
	}
	scaling := object{"rope_type": "yarn", "factor": factor}
	if context != 0 {
		scaling["original_max_position_embeddings"] = context
	}
	if attention != 1 {
		scaling["attention_factor"] = attention * yarnAttention(factor)
	}
	// Rotations that llama.cpp's converter writes, and its code for these families ignores.
	for key, name := range map[string]string{"ARCH.rope.scaling.yarn_beta_fast": "beta_fast", "ARCH.rope.scaling.yarn_beta_slow": "beta_slow"} {
		if r.has(key) {
			scaling[name] = r.positive(key, 0)
		}
	}
	r.set("rope_scaling", scaling)
}

// longRope writes factors of longrope. The factor of sines and cosines is left out if it is the
// one that follows from the contexts, which has more digits than the file.
func (r *configReader) longRope(long, short []float64, context int, attention float64) {
	if context == 0 {
		context = r.positions
	}
	scaling := object{"rope_type": "longrope", "long_factor": long, "short_factor": short}
	if r.modelType != "phi3" { // Phi-3 has it beside rope_scaling
		scaling["original_max_position_embeddings"] = context
	}
	if float32(attention) != float32(arch.LongRopeAttention(float64(r.positions)/float64(context), context)) {
		scaling["attention_factor"] = attention
	}
	r.set("rope_scaling", scaling)
}

// llama31 are the settings of rope_scaling in Llama 3.1, 3.2 and 3.3, but for the factor.
var llama31 = arch.RopeConfig{Type: "llama3", LowFactor: 1, HighFactor: 4, OriginalPositions: 8192}

// divided writes the divisors of the frequencies. If Llama 3.1's settings give the same divisors,
// rope_type is llama3. Else it is longrope, with factors that do not depend on the context.
func (r *configReader) divided(theta float64, divisors []float64) {
	if !r.family.llama3 {
		r.fail("", "tensor %q: llama.cpp does not read it in a model of architecture %s", ropeFreqs, r.arch)
		return
	}
	rope := llama31
	rope.Theta, rope.Dims, rope.Factor = theta, r.headDim, divisors[len(divisors)-1]
	same := rope.Factor >= 1
	if same {
		for i, d := range rope.Divisors() {
			same = same && math.Abs(d/divisors[i]-1) < 1e-5 // llama.cpp's converter computes in float32
		}
	}
	if same {
		r.set("rope_scaling", object{
			"rope_type": "llama3", "factor": rope.Factor, "low_freq_factor": rope.LowFactor, "high_freq_factor": rope.HighFactor,
			"original_max_position_embeddings": rope.OriginalPositions,
		})
		return
	}
	r.set("rope_scaling", object{
		"rope_type": "longrope", "long_factor": divisors, "short_factor": divisors, "attention_factor": 1,
		"original_max_position_embeddings": r.positions,
	})
}

// factors reads a tensor of rope factors; nil if there is none.
func (r *configReader) factors(name string) []float64 {
	t := r.file.Tensor(name)
	if t == nil {
		return nil
	}
	dims := r.size(keyRopeDims, r.headDim)
	if t.Type != gguf.F32 || t.Elements() != int64(dims/2) || dims < 2 {
		r.fail("", "tensor %q has %d elements of %s: %d of F32 were expected, half of the rotated dimensions", name, t.Elements(), t.Type, dims/2)
		return nil
	}
	values := make([]float32, dims/2)
	if err := r.file.Guard(func() error { return t.Type.Decode(values, r.file.Data(t)) }); err != nil {
		r.fail("", "tensor %q: %v", name, err)
		return nil
	}
	list := make([]float64, len(values))
	for i, v := range values {
		if list[i] = shortest(v); !(v > 0) || math.IsInf(float64(v), 0) {
			r.fail("", "tensor %q: element %d is %v: a positive number was expected", name, i, v)
			return nil
		}
	}
	return list
}
