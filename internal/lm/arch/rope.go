package arch

import (
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/detmath"
)

// RopeConfig says how positions rotate queries and keys: the dimensions i and i + Dims/2 are
// rotated by the position times a frequency.
type RopeConfig struct {
	// Type is the scaling of frequencies: default, linear, llama3, yarn, longrope or proportional.
	Type  string
	Theta float64 // the base of the frequencies: theta^(-2i/Dims)
	Dims  int     // number of rotated dimensions of a head, from the first
	// Factor is the extension of the context; 0 for default.
	Factor float64
	// OriginalPositions is the context before the extension; 0 for default and linear.
	OriginalPositions int
	// AttentionFactor multiplies sines and cosines (yarn, longrope); 1 for the others.
	AttentionFactor float64
	// ScoreFactor is yarn's mscale_all_dim, or 0.
	ScoreFactor float64
	// LowFactor and HighFactor are llama3's low_freq_factor and high_freq_factor.
	LowFactor, HighFactor float64
	// FastRotations and SlowRotations are yarn's beta_fast and beta_slow. Truncate rounds the
	// resulting dimensions outwards.
	FastRotations, SlowRotations float64
	Truncate                     bool
	// Short and Long divide the individual frequencies (longrope): Short in sessions of at most
	// OriginalPositions tokens, Long in larger sessions.
	Short, Long []float64
	// Pairs is the number of pairs of dimensions that rotate (proportional); the others stay.
	Pairs int
	// Sections are the numbers of pairs of dimensions that rotate by the position in time, and by
	// the height and width in an image. The three positions of a token of text are the same.
	Sections []int
	// Neighbours: the dimensions 2i and 2i + 1 are rotated instead. No config.json says so:
	// llama.cpp stores some models like this.
	Neighbours bool
}

// ropeDefaults are the defaults of an architecture's configuration class.
type ropeDefaults struct {
	theta    float64
	thetaKey string // rope_theta; Gemma 3 has another key for its local layers
	dims     int
	// maxPositions is max_position_embeddings, originalPositions a key next to rope_scaling (Phi-3); 0
	// if absent.
	maxPositions, originalPositions int
	part                            float64 // default of partial_rotary_factor; 0: there is none
	proportional                    bool    // rope_type may be proportional
	sections                        []int   // default of mrope_section; nil: positions have one part
	alpha                           bool    // rope_type dynamic has an alpha that scales theta
	mscales                         bool    // longrope states its attention factors
}

// readRope reads rope_theta and rope_scaling, or the rope_parameters of transformers 5.
func (k *keys) readRope(d ropeDefaults) RopeConfig {
	if k.has("rope_parameters") {
		if k.has("rope_scaling") {
			k.fail("rope_scaling", "exists beside rope_parameters: only one of the two was expected")
		}
		in := k.within("rope_parameters")
		r := in.readScaling(d)
		k.join(in)
		if k.has(d.thetaKey) && k.positive(d.thetaKey, d.theta) != r.Theta {
			k.fail(d.thetaKey, "is not the rope_theta of rope_parameters")
		}
		return r
	}
	d.theta = k.positive(d.thetaKey, d.theta)
	in := k.within("rope_scaling")
	if in == nil {
		return RopeConfig{Type: "default", Theta: d.theta, Dims: d.dims, AttentionFactor: 1, Sections: d.sections}
	}
	r := in.readScaling(d)
	k.join(in)
	return r
}

func (k *keys) readScaling(d ropeDefaults) RopeConfig {
	r := RopeConfig{Theta: k.positive("rope_theta", d.theta), Dims: d.dims, AttentionFactor: 1}
	if d.part != 0 {
		k.irrelevant("partial_rotary_factor")
	}
	if legacy := k.string("type", ""); k.has("rope_type") {
		if r.Type = k.string("rope_type", ""); legacy != "" && legacy != r.Type && !(d.sections != nil && legacy == "mrope") {
			k.fail("type", "is %q, but rope_type is %q", legacy, r.Type)
		}
	} else if r.Type = legacy; legacy == "" {
		k.fail("rope_type", "is missing")
	}
	if r.Type == "dynamic" && d.alpha && k.has("alpha") { // in truth static
		r.Type = "default"
		r.Theta *= detmath.Pow(k.positive("alpha", 0), float64(r.Dims)/float64(r.Dims-2))
		k.irrelevant("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
	}
	if d.sections != nil {
		k.irrelevant("mrope_interleaved")
		r.Sections = read(k, "mrope_section", d.sections, "is not a list of integers")
		if slices.ContainsFunc(r.Sections, func(n int) bool { return n < 0 || n > r.Dims }) || len(r.Sections) != 3 {
			k.fail("mrope_section", "is %d: three numbers of up to %d were expected", r.Sections, r.Dims)
		}
		if r.Type == "mrope" {
			r.Type = "default"
		}
	}
	switch r.Type {
	case "default":
	case "proportional":
		if !d.proportional {
			k.fail("rope_type", "is proportional, which this architecture does not know")
		}
		r.Factor = k.positive("factor", 1)
		part := k.positive("partial_rotary_factor", 1)
		if part > 1 {
			k.fail("partial_rotary_factor", "is %v: at most 1 was expected", part)
		}
		r.Pairs = int(float64(part*float64(r.Dims)) / 2)
	case "linear":
		r.Factor = k.positive("factor", 0)
	case "llama3":
		r.Factor = k.positive("factor", 0)
		r.LowFactor, r.HighFactor = k.positive("low_freq_factor", 0), k.positive("high_freq_factor", 0)
		r.OriginalPositions = k.size("original_max_position_embeddings", 0)
		if r.HighFactor < r.LowFactor {
			k.fail("high_freq_factor", "is %v: at least low_freq_factor, %v, was expected", r.HighFactor, r.LowFactor)
		}
	case "yarn":
		k.readYarn(&r, d)
	case "longrope", "su": // su is the name in Phi-3's first configs
		r.Type = "longrope"
		k.readLongRope(&r, d)
	default:
		k.fail("rope_type", "is %q: this forward pass knows default, linear, llama3, yarn and longrope", r.Type)
	}
	return r
}

func (k *keys) readYarn(r *RopeConfig, d ropeDefaults) {
	r.Factor = k.positive("factor", 0)
	r.OriginalPositions = k.size("original_max_position_embeddings", d.maxPositions)
	r.FastRotations, r.SlowRotations = k.positive("beta_fast", 32), k.positive("beta_slow", 1)
	r.Truncate = k.boolean("truncate", true)
	// Peng et al., YaRN, arXiv:2309.00071, equation 22; mscale is DeepSeek's.
	scale := func(m float64) float64 {
		if r.Factor <= 1 {
			return 1
		}
		return float64(float64(0.1*m)*detmath.Log(r.Factor)) + 1
	}
	r.AttentionFactor = scale(1)
	r.ScoreFactor = k.optional("mscale_all_dim")
	if m, all := k.optional("mscale"), r.ScoreFactor; m != 0 && all != 0 {
		r.AttentionFactor = scale(m) / scale(all)
	}
	if f := k.optional("attention_factor"); f != 0 {
		r.AttentionFactor = f
	}
}

func (k *keys) readLongRope(r *RopeConfig, d ropeDefaults) {
	factors := func(key string) []float64 {
		list := read(k, key, []float64(nil), "is not a list of numbers")
		if len(list) != r.Dims/2 {
			k.fail(key, "has %d numbers: %d were expected, one for each pair of dimensions", len(list), r.Dims/2)
		}
		for _, f := range list {
			if !(f > 0) {
				k.fail(key, "has %v: positive numbers were expected", f)
			}
		}
		return list
	}
	r.Short, r.Long = factors("short_factor"), factors("long_factor")
	// Phi-3 has the original context next to rope_scaling; the factor is the ratio of the contexts.
	r.Factor = k.optional("factor")
	r.OriginalPositions = k.count("original_max_position_embeddings", 0)
	switch {
	case d.originalPositions != 0:
		if r.OriginalPositions != 0 && r.OriginalPositions != d.originalPositions {
			k.fail("original_max_position_embeddings", "is %d here and %d outside", r.OriginalPositions, d.originalPositions)
		}
		r.OriginalPositions = d.originalPositions
		r.Factor = float64(d.maxPositions) / float64(d.originalPositions)
	case r.OriginalPositions == 0:
		k.fail("original_max_position_embeddings", "is missing")
		return
	case r.Factor == 0:
		r.Factor = float64(d.maxPositions) / float64(r.OriginalPositions)
	}
	r.AttentionFactor = LongRopeAttention(r.Factor, r.OriginalPositions)
	if f := k.optional("attention_factor"); f != 0 {
		r.AttentionFactor = f
	}
	if d.mscales {
		r.AttentionFactor = k.positive("short_mscale", 0)
		only(k, "long_mscale", r.AttentionFactor, "is not a number")
	}
}

// LongRopeAttention is the default of longrope's AttentionFactor: Ding et al., LongRoPE,
// arXiv:2402.13753, as in Phi-3's own code.
func LongRopeAttention(factor float64, originalPositions int) float64 {
	if factor <= 1 {
		return 1
	}
	return math.Sqrt(1 + detmath.Log(factor)/detmath.Log(float64(originalPositions)))
}

// Frequencies returns the angle in radians by which each pair of dimensions rotates per position,
// in a session of at most maxTokens tokens. The angles are rounded to float32, as in training.
func (r *RopeConfig) Frequencies(maxTokens int) []float32 {
	freqs := make([]float32, r.Dims/2)
	for i := range freqs {
		f := r.frequency(i)
		switch r.Type {
		case "linear":
			f /= r.Factor
		case "proportional":
			if f /= r.Factor; i >= r.Pairs {
				f = 0
			}
		case "llama3":
			f = r.llama3(f)
		case "yarn":
			f = r.yarn(f, i)
		case "longrope":
			if maxTokens > r.OriginalPositions {
				f /= r.Long[i]
			} else {
				f /= r.Short[i]
			}
		}
		freqs[i] = float32(f)
	}
	return freqs
}

// AppendRotation appends the cosines and sines of a position's angles, given the frequencies.
func (r *RopeConfig) AppendRotation(cos, sin, freqs []float32, position int) (c, s []float32) {
	for _, f := range freqs {
		a := float64(float32(float32(position) * f)) // in float32, as the models were trained with
		cos = append(cos, float32(detmath.Cos(a)*r.AttentionFactor))
		sin = append(sin, float32(detmath.Sin(a)*r.AttentionFactor))
	}
	return cos, sin
}

// Divisors returns the numbers by which llama3 divides the frequencies of the pairs of dimensions.
func (r *RopeConfig) Divisors() []float64 {
	list := make([]float64, r.Dims/2)
	for i := range list {
		f := r.frequency(i)
		list[i] = f / r.llama3(f)
	}
	return list
}

// frequency returns the unscaled frequency of pair i.
func (r *RopeConfig) frequency(i int) float64 {
	return 1 / detmath.Pow(r.Theta, float64(2*i)/float64(r.Dims))
}

// llama3 divides the frequencies of long waves by Factor, keeps short waves, and interpolates in
// between (Llama 3.1's own code, apply_scaling).
func (r *RopeConfig) llama3(f float64) float64 {
	waves := float64(float64(r.OriginalPositions)*f) / (2 * math.Pi) // waves in the original context
	switch {
	case waves < r.LowFactor:
		return f / r.Factor
	case waves >= r.HighFactor:
		return f
	}
	smooth := (waves - r.LowFactor) / (r.HighFactor - r.LowFactor)
	return float64((1-smooth)*f)/r.Factor + float64(smooth*f)
}

// yarn interpolates by a ramp over the dimensions instead (arXiv:2309.00071, section 3.2, and its
// authors' code).
func (r *RopeConfig) yarn(f float64, i int) float64 {
	// The dimension that rotates n times in the original context.
	dimension := func(n float64) float64 {
		return float64(r.Dims) * detmath.Log(float64(r.OriginalPositions)/(n*2*math.Pi)) / (2 * detmath.Log(r.Theta))
	}
	low, high := dimension(r.FastRotations), dimension(r.SlowRotations)
	if r.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(r.Dims-1))
	if low == high {
		high += 0.001
	}
	ramp := max(0, min(1, (float64(i)-low)/(high-low)))
	return float64(f/r.Factor*ramp) + float64(f*(1-ramp))
}
