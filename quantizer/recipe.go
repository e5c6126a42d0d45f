package quantizer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
)

// Recipe says how to quantize the tensors of a checkpoint: defaults, and rules for tensors that
// differ. The zero value is a useful recipe.
type Recipe struct {
	// Bits of a code, 1 to 8. Default (0): 4.
	Bits int
	// Group is a multiple of 16, or PerChannel. Default (nil): 32.
	Group *int
	// Mapping. Default (MappingNone): full-range, but half-step for 1 bit (in rules too) if the
	// layouts have the half-step grid. Half-step is for tensors of 1 and 2 bits; tensors with more
	// bits, such as the embedding, then get full-range.
	Mapping gqf.Mapping
	// ScaleDtype. Default (ScaleNone): bf16.
	ScaleDtype packing.ScaleDtype
	// Algorithm chooses scales, zero points and codes. Default (AlgorithmNone): search, but rtn
	// with the mappings symmetric and symmetric-no-clip, which are TorchAO's formulas.
	Algorithm gqf.Algorithm
	// PositiveScales forbids negative scales. Default (nil): false.
	PositiveScales *bool
	// Layouts are the layouts that every tensor is packed in. Default: lowbit.
	Layouts []LayoutRequest
	// Targets are consumers, which choose the format of the output, layouts, tiles, scales and the
	// embedding's scheme. Layouts must then be empty. Default: none.
	Targets []Target
	// EmbeddingBits is Bits for embeddings. Default (0): 8.
	EmbeddingBits int
	// EmbeddingGroup is Group for embeddings. Default (nil): Group.
	EmbeddingGroup *int
	// Fold says how the checkpoint is folded before it is quantized. NewPlan ignores it. Default
	// (zero): not at all.
	Fold
	// Quality is a preset for fields that are not set, see WithQuality. Default (""): none.
	Quality Quality
	// Calibrate is the calibration text: Self, or the name of a file of text or token ids. NewPlan
	// ignores Calibrate and the next four fields. Default: none; algorithms that need calibration
	// then fail.
	Calibrate string
	// CalibrateTokens bounds the calibration tokens. Default (0): 8192; 32768 with QualityBest
	// and QualityMax, with which the model writes the tokens that a file lacks. If no algorithm of
	// the recipe needs calibration, bits are chosen on 2560 tokens regardless.
	CalibrateTokens int
	// Seed is the seed of the text that the model writes and of the rotations. Default (0): 1.
	Seed uint64
	// Refine adds coordinate descent and a refit of scales to gptq and gptq-ft. Default (nil):
	// false; true with QualityBest.
	Refine *bool
	// Tune trains numbers of the file after calibration. NewPlan ignores it and the next two fields.
	// Default (""): TuneOff; chosen by the model's size with QualityMax.
	Tune Tune
	// TuneTokens bounds the tokens of the text to tune on. Default (0): tune.DefaultTokens.
	TuneTokens int
	// TuneText is the text to tune on: Self, or the name of a file of text or token ids. Default
	// (""): Self.
	TuneText string
	// Imatrix names importance matrices for the algorithm imatrix, which are merged. Default: none.
	Imatrix []string
	// Pre is llama.cpp's name of the pre-tokenizer, of a .gguf file. NewPlan ignores it, and takes the
	// name from its options. Default (""): found by the tokenizer's ids of llama.cpp's test text.
	Pre string
	// Lora names adapters of PEFT that are merged into the checkpoint first, in this order: DIR, or
	// DIR=SCALE. Default: none.
	Lora []string
	// HashFiles adds the SHA-256 of every source file to the provenance, which takes one more pass
	// over the files. Default: only headers and tensors have checksums.
	HashFiles bool
	// AllowUnquantized allows files without a quantized tensor, and unquantized tensors with values
	// that are NaN or infinite. NewPlan ignores it. Default: false.
	AllowUnquantized bool
	// Rules in order of precedence. Default: none.
	Rules []Rule
}

// ScaleStated reports whether the user stated the dtype of scales; rule may be nil.
func (r Recipe) ScaleStated(rule *Rule) bool {
	return r.ScaleDtype != packing.ScaleNone || rule != nil && rule.ScaleDtype != packing.ScaleNone
}

// Scheme is the scheme of a tensor with the given role and rule; rule may be nil.
func (r Recipe) Scheme(role gqf.Role, rule *Rule) rounding.Scheme {
	mapped, grouped, scaled := r.Mapping != gqf.MappingNone, r.Group != nil, r.ScaleDtype != packing.ScaleNone
	if role == gqf.RoleEmbedding {
		grouped = r.EmbeddingGroup != nil
	}
	r = r.WithDefaults()
	s := rounding.Scheme{Bits: r.Bits, Mapping: r.Mapping, ScaleDtype: r.ScaleDtype, Algorithm: r.Algorithm}
	group, positive := r.Group, r.PositiveScales
	if role == gqf.RoleEmbedding {
		s.Bits, group = r.EmbeddingBits, r.EmbeddingGroup
	}
	if rule != nil {
		s.Bits = cmp.Or(rule.Bits, s.Bits)
		group = cmp.Or(rule.Group, group)
		if !mapped {
			s.Mapping = cmp.Or(r.oneBit(rule), s.Mapping)
		}
		s.Mapping = cmp.Or(rule.Mapping, s.Mapping)
		s.ScaleDtype = cmp.Or(rule.ScaleDtype, s.ScaleDtype)
		s.Algorithm = cmp.Or(rule.Algorithm, s.Algorithm)
		positive = cmp.Or(rule.PositiveScales, positive)
	}
	s.Group, s.PositiveScales = *group, positive != nil && *positive
	if s.Mapping == gqf.MappingHalfStep && s.Bits > 2 && (rule == nil || rule.Mapping == gqf.MappingNone) {
		s.Mapping = gqf.MappingFullRange
	}
	if r.ForGGUF() {
		// What the recipe states about group and mapping is meant for the recipe's bits.
		same := s.Bits == r.Bits
		s = ggufScheme(s, stated{
			group:   rule != nil && rule.Group != nil || grouped && (same || role == gqf.RoleEmbedding && (rule == nil || rule.Bits == 0)),
			mapping: rule != nil && rule.Mapping != gqf.MappingNone || mapped && same && role != gqf.RoleEmbedding,
			scales:  rule != nil && rule.ScaleDtype != packing.ScaleNone || scaled,
		})
	}
	if f := r.CheckpointFormat(); f != "" && channelsAt[f] == s.Bits && !grouped && (rule == nil || rule.Group == nil) {
		s.Group = 0
	}
	s.Algorithm = cmp.Or(s.Algorithm, defaultAlgorithm(s.Mapping))
	// Calibration covers the layers between embedding and lm_head; lm_head is included if a rule
	// says so.
	asked := rule != nil && rule.Algorithm != gqf.AlgorithmNone
	if s.Algorithm.Calibrated() && (role == gqf.RoleEmbedding || role == gqf.RoleHead && !asked) {
		s.Algorithm = gqf.AlgorithmSearch
	}
	return s
}

// oneBit is the mapping of tensors to which a rule gives 1 bit and no mapping, if the recipe states
// none: half-step, whose two codes have equal magnitude instead of a negative value and zero. It is
// MappingNone for other rules.
func (r Recipe) oneBit(rule *Rule) gqf.Mapping {
	if rule.Bits != 1 || !r.halfStep(rule.Layouts) {
		return gqf.MappingNone
	}
	return gqf.MappingHalfStep
}

// halfStep reports whether the recipe's layouts, and the rule's, support the half-step grid.
func (r Recipe) halfStep(layouts []LayoutRequest) bool {
	other := func(f LayoutRequest) bool { return f.Family != FamilyLowbit && f.Family != FamilyCodes }
	return (len(r.Targets) == 0 || r.ForGGUF()) && !slices.ContainsFunc(r.Layouts, other) && !slices.ContainsFunc(layouts, other)
}

// defaultAlgorithm is the algorithm of tensors for which none was stated.
func defaultAlgorithm(m gqf.Mapping) gqf.Algorithm {
	if m == gqf.MappingSymmetric || m == gqf.MappingSymmetricNoClip {
		return gqf.AlgorithmRTN
	}
	return gqf.AlgorithmSearch
}

// Validate reports defaults of the recipe that cannot work.
func (r Recipe) Validate() error {
	if d := r.WithDefaults(); d.Mapping == gqf.MappingHalfStep && d.Bits > 2 {
		return fmt.Errorf("mapping %s is for 1 and 2 bits, not %d", d.Mapping, d.Bits)
	}
	for _, t := range r.Targets {
		if len(r.Targets) > 1 && t.alone() {
			return fmt.Errorf("target %s chooses schemes that other targets do not load: make two files", t.Name)
		}
	}
	if err := r.validScheme(gqf.RoleProjection, nil); err != nil {
		return err
	}
	switch f := r.CheckpointFormat(); {
	case f != "" && !f.QuantizesEmbedding():
		if r.EmbeddingBits != 0 || r.EmbeddingGroup != nil {
			return fmt.Errorf("programs that load %s know no quantized embeddings: state neither bits nor group of the embedding", f)
		}
	default:
		if err := r.validScheme(gqf.RoleEmbedding, nil); err != nil {
			return fmt.Errorf("embedding: %w", err)
		}
	}
	if len(r.Targets) > 0 && len(r.Layouts) > 0 {
		return errors.New("a target chooses the layout: state one of target and layout")
	}
	return nil
}

// validScheme reports why tensors of the role cannot have the scheme of the recipe and the rule.
func (r Recipe) validScheme(role gqf.Role, rule *Rule) error {
	return r.ValidateScheme(r.Scheme(role, rule))
}

// ValidateScheme reports why tensors cannot have a scheme of the recipe.
func (r Recipe) ValidateScheme(s rounding.Scheme) error {
	if r.ForGGUF() {
		if _, err := rounding.GGUFType(s); err != nil {
			return err
		}
	}
	if r.ForONNX() {
		if err := s.ValidateONNX(); err != nil {
			return err
		}
	}
	if f := r.CheckpointFormat(); f != "" {
		if err := checkpointHolds(f, s); err != nil {
			return err
		}
	}
	return s.ValidateCommand()
}

// WithDefaults returns the recipe with every default of its fields filled in.
func (r Recipe) WithDefaults() Recipe {
	r.Bits = cmp.Or(r.Bits, 4)
	r.Group = cmp.Or(r.Group, new(32))
	if r.Mapping == gqf.MappingNone && r.Bits == 1 && r.halfStep(nil) {
		r.Mapping = gqf.MappingHalfStep
	}
	r.Mapping = cmp.Or(r.Mapping, gqf.MappingFullRange)
	r.ScaleDtype = cmp.Or(r.ScaleDtype, packing.ScaleBF16)
	r.EmbeddingBits = cmp.Or(r.EmbeddingBits, 8)
	perChannel := func(t Target) bool { return t.channel8 != packing.Tile{} } // of embeddings
	if r.EmbeddingGroup == nil && slices.ContainsFunc(r.Targets, perChannel) {
		r.EmbeddingGroup = new(PerChannel)
	}
	r.EmbeddingGroup = cmp.Or(r.EmbeddingGroup, r.Group)
	r.Layouts = slices.Clone(r.Layouts)
	if len(r.Layouts) == 0 && len(r.Targets) == 0 {
		r.Layouts = []LayoutRequest{{Family: FamilyLowbit}}
	}
	for i := range r.Layouts {
		if f := &r.Layouts[i]; f.Family == FamilyLowbit {
			f.Tile = cmp.Or(f.Tile, packing.DefaultTile)
		}
	}
	return r
}

// Tunes reports whether the recipe asks for tuning.
func (r Recipe) Tunes() bool { return cmp.Or(r.Tune, TuneOff) != TuneOff }

// WithQuality returns the recipe with the settings of its preset in the fields that are not set.
func (r Recipe) WithQuality() Recipe {
	switch r.Quality {
	case QualityFast:
		r.Algorithm = cmp.Or(r.Algorithm, gqf.AlgorithmSearch)
	case QualityBest, QualityMax:
		r.CalibrateTokens = cmp.Or(r.CalibrateTokens, 32768)
		r.Refine = cmp.Or(r.Refine, new(true))
		fallthrough
	case QualityGood:
		r.Algorithm = cmp.Or(r.Algorithm, gqf.AlgorithmGPTQFT)
		r.Calibrate = cmp.Or(r.Calibrate, Self)
	}
	return r
}
