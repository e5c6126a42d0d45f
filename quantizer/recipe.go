package quantizer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/suggest"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// Recipe says how to quantize the tensors of a checkpoint: defaults, and rules for tensors that
// differ. The zero value is a useful recipe.
type Recipe struct {
	// Bits of a code, 1 to 8. Default (0): 4.
	Bits int
	// Group is a multiple of 16, or PerChannel. Default (0): 32.
	Group int
	// Mapping. Default (MappingNone): full-range, but half-step for 1 bit (in rules too) if the
	// layouts have the half-step grid. Half-step is for tensors of 1 and 2 bits; tensors with more
	// bits, such as the embedding, then get full-range.
	Mapping gqf.Mapping
	// ScaleDtype. Default (ScaleNone): bf16.
	ScaleDtype packing.ScaleDtype
	// Algorithm chooses scales, zero points and codes. Default (AlgorithmNone): search, but rtn
	// with the mappings symmetric and symmetric-no-clip, which are TorchAO's formulas.
	Algorithm gqf.Algorithm
	// PositiveScales forbids negative scales. Default: false.
	PositiveScales bool
	// Tile of layouts that state none. Default (zero): the default of each layout.
	Tile packing.Tile
	// Layouts are the layouts that every tensor is packed in. Default: lowbit.
	Layouts []LayoutRequest
	// Targets are consumers, which choose layouts, tiles, scales and the embedding's scheme.
	// Layouts must then be empty. Default: none.
	Targets []Target
	// EmbeddingBits is Bits for embeddings. Default (0): 8.
	EmbeddingBits int
	// EmbeddingGroup is Group for embeddings. Default (0): Group.
	EmbeddingGroup int
	// Fold says how the checkpoint is folded before it is quantized. NewPlan ignores it. Default
	// (zero): not at all.
	Fold
	// Quality is a preset for fields that are not set, see WithQuality. Default (""): none.
	Quality Quality
	// Calibrate is the calibration text: Self, or the name of a file of text or token ids. NewPlan
	// ignores Calibrate and the next four fields. Default: none; algorithms that need calibration
	// then fail.
	Calibrate string
	// CalibrateTokens bounds the calibration tokens. Default (0): 8192; 32768 with QualityBest. If
	// no algorithm of the recipe needs calibration, bits are chosen on 2560 tokens regardless.
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
	// HashFiles adds the SHA-256 of every source file to the provenance, which takes one more pass
	// over the files. Default: only headers and tensors have checksums.
	HashFiles bool
	// Rules in order of precedence. Default: none.
	Rules []Rule
}

// ScaleStated reports whether the user stated the dtype of scales; rule may be nil.
func (r Recipe) ScaleStated(rule *Rule) bool {
	return r.ScaleDtype != packing.ScaleNone || rule != nil && rule.ScaleDtype != packing.ScaleNone
}

// Scheme is the scheme of a tensor with the given role and rule; rule may be nil.
func (r Recipe) Scheme(role gqf.Role, rule *Rule) rounding.Scheme {
	mapped, grouped, scaled := r.Mapping != gqf.MappingNone, r.Group != 0, r.ScaleDtype != packing.ScaleNone
	if role == gqf.RoleEmbedding {
		grouped = r.EmbeddingGroup != 0
	}
	r = r.WithDefaults()
	s := rounding.Scheme{Bits: r.Bits, Group: r.Group, Mapping: r.Mapping, ScaleDtype: r.ScaleDtype, PositiveScales: r.PositiveScales, Algorithm: r.Algorithm}
	if role == gqf.RoleEmbedding {
		s.Bits, s.Group = r.EmbeddingBits, r.EmbeddingGroup
	}
	if rule != nil {
		s.Bits = cmp.Or(rule.Bits, s.Bits)
		s.Group = cmp.Or(rule.Group, s.Group)
		if !mapped {
			s.Mapping = cmp.Or(r.oneBit(rule), s.Mapping)
		}
		s.Mapping = cmp.Or(rule.Mapping, s.Mapping)
		s.ScaleDtype = cmp.Or(rule.ScaleDtype, s.ScaleDtype)
		s.Algorithm = cmp.Or(rule.Algorithm, s.Algorithm)
		if rule.PositiveScales != nil {
			s.PositiveScales = *rule.PositiveScales
		}
	}
	if s.Group == PerChannel {
		s.Group = 0
	}
	if s.Mapping == gqf.MappingHalfStep && s.Bits > 2 && (rule == nil || rule.Mapping == gqf.MappingNone) {
		s.Mapping = gqf.MappingFullRange
	}
	if r.ForGGUF() {
		// What the recipe states about group and mapping is meant for the recipe's bits.
		same := s.Bits == r.Bits
		s = ggufScheme(s, stated{
			group:   rule != nil && rule.Group != 0 || grouped && (same || role == gqf.RoleEmbedding && (rule == nil || rule.Bits == 0)),
			mapping: rule != nil && rule.Mapping != gqf.MappingNone || mapped && same && role != gqf.RoleEmbedding,
			scales:  rule != nil && rule.ScaleDtype != packing.ScaleNone || scaled,
		})
	}
	if f := r.CheckpointFormat(); f != "" {
		s = checkpointScheme(f, s, grouped || rule != nil && rule.Group != 0)
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
	if rule.Bits != 1 || !r.halfStep(rule.Layouts, rule.Algorithm) {
		return gqf.MappingNone
	}
	return gqf.MappingHalfStep
}

// halfStep reports whether the recipe's layouts and algorithm, and the rule's, support the
// half-step grid.
func (r Recipe) halfStep(layouts []LayoutRequest, a gqf.Algorithm) bool {
	other := func(f LayoutRequest) bool { return f.Family != FamilyLowbit && f.Family != FamilyCodes }
	a = cmp.Or(a, r.Algorithm)
	return (len(r.Targets) == 0 || r.ForGGUF()) && !slices.ContainsFunc(r.Layouts, other) && !slices.ContainsFunc(layouts, other) &&
		a != gqf.AlgorithmHQQ
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
	if err := r.validScheme(gqf.RoleProjection, nil); err != nil {
		return err
	}
	if err := r.checkCheckpoint(); err != nil {
		return err
	}
	if f := r.CheckpointFormat(); f == "" || QuantizesEmbedding(f) {
		if err := r.validScheme(gqf.RoleEmbedding, nil); err != nil {
			return fmt.Errorf("embedding: %w", err)
		}
	}
	switch {
	case r.ForGGUF() && len(r.Targets) > 1:
		return errors.New("target gguf chooses schemes that other targets have no kernels for: make two files")
	case len(r.Targets) > 0 && (len(r.Layouts) > 0 || r.Tile != packing.Tile{}):
		return errors.New("a target chooses layout and tile: state either the target, or layout and tile")
	case len(r.Layouts) == 0 && r.Tile != packing.Tile{} && !slices.Contains(packing.LowbitTiles, r.Tile):
		return fmt.Errorf("tile %s is none of the lowbit layout's: use one of %s", r.Tile, strings.Join(namesOf(packing.LowbitTiles), ", "))
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
		if _, err := GGUFType(s); err != nil {
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
	r.Group = cmp.Or(r.Group, 32)
	if r.Mapping == gqf.MappingNone && r.Bits == 1 && r.halfStep(nil, gqf.AlgorithmNone) {
		r.Mapping = gqf.MappingHalfStep
	}
	r.Mapping = cmp.Or(r.Mapping, gqf.MappingFullRange)
	r.ScaleDtype = cmp.Or(r.ScaleDtype, packing.ScaleBF16)
	r.EmbeddingBits = cmp.Or(r.EmbeddingBits, 8)
	if r.EmbeddingGroup == 0 && embeddingPerChannel(r.Targets) {
		r.EmbeddingGroup = PerChannel
	}
	r.EmbeddingGroup = cmp.Or(r.EmbeddingGroup, r.Group)
	r.Layouts = slices.Clone(r.Layouts)
	if len(r.Layouts) == 0 && len(r.Targets) == 0 {
		r.Layouts = []LayoutRequest{{Family: FamilyLowbit}}
	}
	for i := range r.Layouts {
		f := &r.Layouts[i]
		if f.Tile = cmp.Or(f.Tile, r.Tile); f.Family == FamilyLowbit {
			f.Tile = cmp.Or(f.Tile, packing.DefaultTile)
		}
	}
	return r
}

func groupJSON(g int) any {
	switch g {
	case 0:
		return nil
	case PerChannel:
		return "channel"
	}
	return g
}

// ParseBits reads a number of bits: 1 to 8.
func ParseBits(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 8 {
		return 0, fmt.Errorf("%q bits: use 1 to 8", s)
	}
	return n, nil
}

// ParseGroup reads a group size: a positive multiple of 16, or "channel" for PerChannel.
func ParseGroup(s string) (int, error) {
	if s == "channel" {
		return PerChannel, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 || n%16 != 0 {
		return 0, fmt.Errorf("group %q: use a multiple of 16, or channel", s)
	}
	return n, nil
}

// groupName is the inverse of ParseGroup.
func groupName(g int) string {
	if g == PerChannel {
		return "channel"
	}
	return strconv.Itoa(g)
}

// mappings, algorithms and scaleDtypes are the values that users may state.
var (
	mappings       = []gqf.Mapping{gqf.MappingFullRange, gqf.MappingSymmetric, gqf.MappingSymmetricNoClip, gqf.MappingAsymmetric, gqf.MappingHalfStep, gqf.MappingKQuant}
	algorithms     = []gqf.Algorithm{gqf.AlgorithmSearch, gqf.AlgorithmRTN, gqf.AlgorithmHQQ, gqf.AlgorithmGPTQ, gqf.AlgorithmGPTQFT, gqf.AlgorithmImatrix, gqf.AlgorithmAWQ}
	scaleDtypes    = []packing.ScaleDtype{packing.ScaleBF16, packing.ScaleF16, packing.ScaleF32}
	mappingNames   = namesOf(mappings)
	dtypeNames     = namesOf(scaleDtypes)
	algorithmNames = namesOf(algorithms)
)

func namesOf[T fmt.Stringer](all []T) []string {
	var names []string
	for _, v := range all {
		names = append(names, v.String())
	}
	return names
}

// parseMapping parses the mappings that users may state.
func parseMapping(s string) (gqf.Mapping, bool) {
	m, ok := gqf.ParseMapping(s)
	return m, ok && m != gqf.MappingNone
}

// ParseMapping reads the name of a mapping: full-range, symmetric, symmetric-no-clip, asymmetric,
// half-step or k-quant.
func ParseMapping(s string) (gqf.Mapping, error) {
	m, ok := parseMapping(s)
	if !ok {
		return m, suggest.Unknown("mapping", s, mappingNames)
	}
	return m, nil
}

// parseAlgorithm parses the algorithms that users may state.
func parseAlgorithm(s string) (gqf.Algorithm, bool) {
	a, ok := gqf.ParseAlgorithm(s)
	return a, ok && slices.Contains(algorithms, a)
}

// ParseAlgorithm reads the name of an algorithm: search, rtn, hqq, gptq, gptq-ft, imatrix or awq.
func ParseAlgorithm(s string) (gqf.Algorithm, error) {
	a, ok := parseAlgorithm(s)
	if s == gqf.AlgorithmMSE.String() {
		return a, fmt.Errorf("algorithm %s is not supported any more: use search, which is as accurate and 50 times as fast", s)
	}
	if !ok {
		return a, suggest.Unknown("algorithm", s, algorithmNames)
	}
	return a, nil
}

// ParseScaleDtype reads the name of a dtype of scales: bf16, f16 or f32.
func ParseScaleDtype(s string) (packing.ScaleDtype, error) {
	d, ok := packing.ParseScaleDtype(s)
	if !ok {
		return d, suggest.Unknown("scale dtype", s, dtypeNames)
	}
	return d, nil
}
