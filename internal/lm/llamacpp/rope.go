package llamacpp

import (
	"cmp"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// Yarn's rotations are fixed in llama.cpp's code for the families here.
const (
	yarnFast = 32
	yarnSlow = 1
)

func (m *Model) describeRope(f *family, c *arch.ForwardConfig) error {
	r := &c.Ropes[0]
	if err := f.checkRope(c); err != nil {
		return err
	}
	if f.RopeSwitch {
		m.set("ARCH.rope.scaling.finetuned", c.Layers[0].Rope >= 0)
	}
	m.set(keyRopeDims, r.Dims)
	m.set(keyRopeBase, float32(r.Theta))
	if len(c.Ropes) > 1 {
		m.set(keyRopeBaseWindow, float32(c.Ropes[1].Theta))
	}
	if r.Sections != nil {
		m.set(keySections, []int32{int32(r.Sections[0]), int32(r.Sections[1]), int32(r.Sections[2]), 0})
	}
	switch r.Type {
	case "linear":
		m.set(keyScalingType, "linear")
		m.set(keyScalingFactor, float32(r.Factor))
	case "yarn":
		m.set(keyScalingType, "yarn")
		m.set(keyScalingFactor, float32(r.Factor))
		m.set(keyScalingContext, r.OriginalPositions)
		if c.Latent != nil {
			m.set(keyYarnLog, float32(0.1*r.ScoreFactor))
		} else if a := r.AttentionFactor / yarnAttention(r.Factor); float32(a) != 1 {
			m.set(keyScalingAttn, float32(a))
		}
	case "longrope":
		if !f.Factors { // the llama family reads the factors only with the type
			m.set(keyScalingType, "longrope")
		}
		m.set(keyScalingContext, r.OriginalPositions)
		m.set(keyScalingAttn, float32(r.AttentionFactor))
	}
	return nil
}

// yarnAttention is the factor of sines and cosines that llama.cpp computes from yarn's factor.
func yarnAttention(factor float64) float64 {
	if factor <= 1 {
		return 1
	}
	return float64(0.1*detmath.Log(factor)) + 1
}

// checkRope refuses ropes that llama.cpp's code for the family lacks.
func (f *family) checkRope(c *arch.ForwardConfig) error {
	r := &c.Ropes[0]
	switch {
	case (r.Type == "llama3" || r.Type == "longrope" || r.Type == "proportional") && !slices.Contains(f.RopeFactors, r.Type):
		return unsupported("llama.cpp's %s does not read the rope factors of rope_type %q", f.Name, r.Type)
	case r.Type == "yarn" && (r.FastRotations != yarnFast || r.SlowRotations != yarnSlow || !r.Truncate):
		return unsupported("llama.cpp's %s computes yarn with beta_fast %d, beta_slow %d and truncate true, config.json asks for %v, %v and %v",
			f.Name, yarnFast, yarnSlow, r.FastRotations, r.SlowRotations, r.Truncate)
	case len(c.Ropes) > 1 && c.Ropes[1].Type != "default":
		return unsupported("llama.cpp's %s does not scale the rope of layers with a sliding window, but rope_type is %q there", f.Name, c.Ropes[1].Type)
	case len(c.Ropes) > 1 && r.Type == "yarn" && !f.LocalRope:
		return unsupported("llama.cpp's %s would use yarn in layers with a sliding window too", f.Name)
	}
	for i, l := range c.Layers {
		if skips := f.NoRopeStep != 0 && (i+1)%f.NoRopeStep == 0; skips != (l.Rope < 0) && !(f.RopeSwitch && c.Layers[0].Rope < 0) {
			return unsupported("llama.cpp's %s has no rope in every %dth layer, but layer %d of no_rope_layers differs", f.Name, f.NoRopeStep, i)
		}
	}
	return nil
}

// ropeTensors returns the tensors of factors by which frequencies are divided.
func ropeTensors(c *arch.ForwardConfig) []Tensor {
	tensor := func(name string, values []float64) Tensor {
		t := Tensor{Name: name, Shape: []int64{int64(len(values))}, F32: true}
		for _, v := range values {
			t.Values = append(t.Values, float32(v))
		}
		return t
	}
	switch r := &c.Ropes[0]; r.Type {
	case "llama3":
		return []Tensor{tensor(ropeFreqs, r.Divisors())}
	case "proportional": // 1e30 stops a rotation
		return []Tensor{tensor(ropeFreqs, slices.Concat(slices.Repeat([]float64{r.Factor}, r.Pairs), slices.Repeat([]float64{1e30}, r.Dims/2-r.Pairs)))}
	case "longrope":
		return []Tensor{tensor(ropeLong, r.Long), tensor(ropeShort, r.Short)}
	}
	return nil
}

// readRope reads the keys and tensors of the positions into rope_theta and rope_scaling.
func (r *configReader) readRope() {
	theta := r.positive(keyRopeBase, 10000)
	r.set("rope_theta", theta)
	if dims := r.size(keyRopeDims, r.headDim); dims != r.headDim && !r.family.PartialRope && !r.family.latent() && r.family.NoRopeStep != 1 {
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
	case long != nil && short != nil && (kind == "longrope" || r.family.Factors):
		r.longRope(long, short, context, attention)
	case long != nil || short != nil:
		r.fail("", "tensors %q and %q: both were expected, in a model whose %s is longrope", ropeLong, ropeShort, r.name(keyScalingType))
	case freqs != nil:
		r.divided(theta, freqs)
	case kind == "longrope":
		r.fail(keyScalingType, "is longrope, but tensors %q and %q are missing", ropeLong, ropeShort)
	case (kind == "yarn" || kind == "linear") && !(factor > 0), kind == "" && factor < 0:
		r.fail(keyScalingFactor, "is missing, or not a positive number")
	case kind == "yarn":
		r.yarn(factor, context, attention)
	case kind == "linear", kind == "" && factor != 0 && factor != 1:
		r.set("rope_scaling", object{"rope_type": "linear", "factor": factor})
	case kind == "" || kind == "none":
		if r.has(keySections) {
			r.readSections()
		}
	default:
		r.fail(keyScalingType, "is %.40q: this program knows none, linear, yarn and longrope", kind)
	}
}

func (r *configReader) readSections() {
	list := r.integers(keySections, 4)
	if len(list) != 4 || slices.Max(list) > int64(r.headDim) || slices.Min(list) < 0 || list[3] != 0 {
		r.fail(keySections, "is %d: three numbers of up to %d, and 0, were expected", list, r.headDim)
		return
	}
	r.set("rope_scaling", object{"rope_type": "default", "mrope_section": list[:3]})
}

func (r *configReader) yarn(factor float64, context int, attention float64) {
	scaling := object{"rope_type": "yarn", "factor": factor}
	if context != 0 {
		scaling["original_max_position_embeddings"] = context
	}
	if attention != 1 {
		scaling["attention_factor"] = attention * yarnAttention(factor)
	}
	if r.has(keyYarnLog) && r.family.latent() {
		scaling["mscale_all_dim"] = shortest(float32(10 * r.positive(keyYarnLog, 0)))
		scaling["mscale"] = scaling["mscale_all_dim"]
	}
	if r.family.Untruncated {
		scaling["truncate"] = false
	}
	// Rotations that llama.cpp's converter writes, and its code for these families ignores.
	for key, name := range map[string]string{"ARCH.rope.scaling.yarn_beta_fast": "beta_fast", "ARCH.rope.scaling.yarn_beta_slow": "beta_slow"} {
		if r.has(key) {
			scaling[name] = r.positive(key, 0)
		}
	}
	r.set("rope_scaling", scaling)
}

// longRope writes factors of longrope. The factor of sines and cosines is left out if the contexts
// imply the same factor, with more digits than the file has.
func (r *configReader) longRope(long, short []float64, context int, attention float64) {
	context = cmp.Or(context, r.positions)
	scaling := object{"rope_type": "longrope", "long_factor": long, "short_factor": short}
	if r.family.Mscales {
		scaling["long_mscale"], scaling["short_mscale"] = attention, attention
	}
	if !r.family.OuterContext {
		scaling["original_max_position_embeddings"] = context
	}
	if float32(attention) != float32(arch.LongRopeAttention(float64(r.positions)/float64(context), context)) {
		scaling["attention_factor"] = attention
	}
	r.set("rope_scaling", scaling)
}

// dividedRopes are the settings of rope_scaling in Llama 3.1, 3.2 and 3.3, and in Llama 4, except
// the factor.
var dividedRopes = []arch.RopeConfig{
	{Type: "llama3", LowFactor: 1, HighFactor: 4, OriginalPositions: 8192},
	{Type: "llama3", LowFactor: 1, HighFactor: 1, OriginalPositions: 8192},
}

// divided writes the divisors of the frequencies. If Llama's settings give the same divisors,
// rope_type is llama3. Else rope_type is longrope, with factors that do not depend on the context.
func (r *configReader) divided(theta float64, divisors []float64) {
	if slices.Contains(r.family.RopeFactors, "proportional") {
		pairs := 0
		for i, d := range divisors {
			if d == divisors[0] && pairs == i {
				pairs++
			} else if d < 1e20 {
				r.fail("", "tensor %q: element %d is %v: numbers of at least 1e20 were expected behind equal numbers", ropeFreqs, i, d)
			}
		}
		full := object{"rope_type": "proportional", "rope_theta": theta, "factor": divisors[0], "partial_rotary_factor": partialFactor(2*pairs, 2*len(divisors))}
		r.set("rope_parameters", object{"full_attention": full, "sliding_attention": object{"rope_type": "default", "rope_theta": r.positive(keyRopeBaseWindow, theta)}})
		delete(r.config, "rope_theta")
		return
	}
	if !slices.Contains(r.family.RopeFactors, "llama3") {
		r.fail("", "tensor %q: llama.cpp does not read it in a model of architecture %s", ropeFreqs, r.arch)
		return
	}
	for _, rope := range dividedRopes {
		rope.Theta, rope.Dims, rope.Factor = theta, r.headDim, divisors[len(divisors)-1]
		same := rope.Factor >= 1
		for i, d := range rope.Divisors() {
			same = same && math.Abs(d/divisors[i]-1) < 1e-5 // llama.cpp's converter computes in float32
		}
		if !same {
			continue
		}
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
