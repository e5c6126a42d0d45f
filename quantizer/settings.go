package quantizer

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/suggest"
	"github.com/lowbit-go/gq/packing"
)

// A Setting is a key of a recipe and a flag of the same name.
type Setting struct {
	Name string
	// Value names the value in help. Default (""): the setting is a switch.
	Value string
	// Default says in words what holds without the setting.
	Default string
	// Help is a short description.
	Help string
	// With says in words what the setting goes with. Default (""): everything.
	With string
	// Least is the least number that the setting takes.
	Least int
	// Values are the names that the setting takes. Default (nil): it takes others, too.
	Values []string
	// List says that the setting takes several values.
	List bool

	in    place
	field field
}

// place is a set of places where a setting may stand.
type place uint8

const (
	inFile place = 1 << iota // the recipe that a file stores
	inRule                   // a rule
	isName                   // YAML must spell the value as a string
)

// field reads and writes a field of a recipe.
type field struct {
	set   func(r *Recipe, values []string) error
	value func(r *Recipe) any // as JSON has it; the zero value if it is not stated
}

const withCalibration = "algorithm gptq, gptq-ft, imatrix or awq"

// With says what settings go with, see Setting.With.
var With = struct{ GQF, GGUF, Calibration, Text, Tokens, Solver, Imatrix, Tune, Seed string }{
	GQF:         "a .gqf file without a target",
	GGUF:        "a .gguf file",
	Calibration: withCalibration,
	Text:        withCalibration + ", fold auto, or a target of bytes or divergence",
	Tokens:      withCalibration + ", or a target of bytes or divergence",
	Solver:      "algorithm gptq or gptq-ft",
	Imatrix:     "algorithm imatrix",
	Tune:        "tune",
	Seed:        "calibration, tuning or rotations",
}

// settings is the table of what a recipe can say. Recipe files, the recipes that files store,
// rules, flags, completion, refusals and the table of docs/RECIPES.md derive from it. Files store
// settings in this order.
var settings = []Setting{
	{Name: "bits", Value: "BITS", Default: "4", Values: widths, in: inFile | inRule,
		Help:  "1 to 8, of codes of projections, experts and an untied lm_head",
		field: one(func(r *Recipe) *int { return &r.Bits }, parseBits)},
	{Name: "group", Value: "SIZE", Default: "32", Values: groups, in: inFile | inRule,
		Help:  "weights along K that share a scale: a multiple of 16, or channel",
		field: one(func(r *Recipe) **int { return &r.Group }, optional(parseGroup))},
	{Name: "mapping", Value: "NAME", Default: "full-range; half-step at 1 bit", Values: mappingNames, in: inFile | inRule,
		Help:  strings.Join(mappingNames, ", "),
		field: one(func(r *Recipe) *gqf.Mapping { return &r.Mapping }, known("mapping", mappingNames, gqf.ParseMapping))},
	{Name: "scale-dtype", Value: "DTYPE", Default: "bf16, or the target's", Values: dtypeNames, in: inFile | inRule,
		Help:  "of stored scales: bf16, f16 or f32",
		field: one(func(r *Recipe) *packing.ScaleDtype { return &r.ScaleDtype }, known("scale dtype", dtypeNames, packing.ParseScaleDtype))},
	{Name: "algorithm", Value: "NAME", Default: "search; rtn with symmetric mappings", Values: algorithmNames, in: inFile | inRule,
		Help:  "search or rtn; with calibration imatrix, awq, gptq or gptq-ft",
		field: one(func(r *Recipe) *gqf.Algorithm { return &r.Algorithm }, known("algorithm", algorithmNames, gqf.ParseAlgorithm))},
	{Name: "positive-scales", in: inFile | inRule,
		Help:  "store no negative scale, which costs accuracy",
		field: one(func(r *Recipe) **bool { return &r.PositiveScales }, optional(strconv.ParseBool))},
	{Name: "layout", Value: "LAYOUT", Default: "lowbit", Values: familyNames, With: With.GQF, in: inFile | inRule,
		Help:  "lowbit, kleidiai, torchao or codes, or with a tile (kleidiai:4x16x2); a list stores each tensor in each",
		field: one(func(r *Recipe) *[]LayoutRequest { return &r.Layouts }, ParseLayouts)},
	{Name: "target", Value: "NAME", Values: strings.Split(TargetNames(Targets), ","), in: inFile,
		Help:  "consumer, which decides format, layout, scales and the embedding's scheme: " + strings.ReplaceAll(TargetNames(Targets), ",", ", "),
		field: one(func(r *Recipe) *[]Target { return &r.Targets }, ParseTargets)},
	{Name: "embedding-bits", Value: "BITS", Default: "8", Values: widths, in: inFile,
		Help:  "of the embedding, and of an lm_head that is tied to it",
		field: one(func(r *Recipe) *int { return &r.EmbeddingBits }, parseBits)},
	{Name: "embedding-group", Value: "SIZE", Default: "as group", Values: groups, in: inFile,
		Help:  "of the embedding",
		field: one(func(r *Recipe) **int { return &r.EmbeddingGroup }, optional(parseGroup))},
	{Name: "fold", Value: "HOW", Default: "none", Values: foldNames, in: inFile,
		Help:  "fold the checkpoint first: equalize, rotate, rotate,equalize; auto measures which loses least",
		field: one(func(r *Recipe) *Fold { return &r.Fold }, ParseFold)},
	{Name: "lora", Value: "DIR[=SCALE]", List: true, in: isName,
		Help: "merge an adapter of PEFT into the checkpoint as it is read",
		field: field{
			set:   func(r *Recipe, values []string) error { r.Lora = values; return nil },
			value: func(r *Recipe) any { return r.Lora },
		}},
	{Name: "hash", Value: "WHAT", Default: "headers", Values: hashNames,
		Help:  "headers, or sha256 to record the hash of whole source files",
		field: one(func(r *Recipe) *hash { return (*hash)(&r.HashFiles) }, known("hash", hashNames, func(s string) (hash, bool) { return s == "sha256", true }))},
	{Name: "quality", Value: "PRESET", Values: qualityNames,
		Help:  "fast: search; good: gptq-ft on text that the model writes; best: good refined, on more text; max: best and tuned",
		field: one(func(r *Recipe) *Quality { return &r.Quality }, word[Quality]("preset", qualityNames))},
	{Name: "calibrate", Value: "FILE", Values: []string{Self}, With: With.Text, in: isName,
		Help:  "text or token ids to calibrate on; self: the model writes the text",
		field: one(func(r *Recipe) *string { return &r.Calibrate }, asIs)},
	{Name: "calibrate-tokens", Value: "N", Default: "8192; 32768 with best and max", With: With.Tokens, Least: 16,
		Help:  "tokens of calibration; for best and max the model completes a file",
		field: one(func(r *Recipe) *int { return &r.CalibrateTokens }, positive[int])},
	{Name: "seed", Value: "N", Default: "1", With: With.Seed,
		Help:  "of text that the model writes, and of rotations",
		field: one(func(r *Recipe) *uint64 { return &r.Seed }, positive[uint64])},
	{Name: "refine", With: With.Solver,
		Help:  "coordinate descent and a refit of scales afterwards",
		field: one(func(r *Recipe) **bool { return &r.Refine }, optional(strconv.ParseBool))},
	{Name: "tune", Value: "WHAT", Default: "off; by the model's size with max", Values: tuneNames,
		Help:  "numbers to train afterwards: norms, floats, codes or blocks",
		field: one(func(r *Recipe) *Tune { return &r.Tune }, word[Tune]("kind of tuning", tuneNames))},
	{Name: "tune-tokens", Value: "N", Default: "32768; 65536 for blocks, 196608 for codes, 393216 up to 2.5 bits", With: With.Tune, Least: 256,
		Help:  "tokens of the text to tune on",
		field: one(func(r *Recipe) *int { return &r.TuneTokens }, positive[int])},
	{Name: "tune-text", Value: "FILE", Default: Self, Values: []string{Self}, With: With.Tune, in: isName,
		Help:  "text or token ids to tune on",
		field: one(func(r *Recipe) *string { return &r.TuneText }, asIs)},
	{Name: "imatrix", Value: "FILE", List: true, With: With.Imatrix, in: isName,
		Help: "importance matrix of gq or llama.cpp; several are merged",
		field: field{
			set:   func(r *Recipe, values []string) error { r.Imatrix = values; return nil },
			value: func(r *Recipe) any { return r.Imatrix },
		}},
	{Name: "pre", Value: "NAME", Default: "found by the ids of a test text", With: With.GGUF, in: isName,
		Help:  "llama.cpp's name of the pre-tokenizer",
		field: one(func(r *Recipe) *string { return &r.Pre }, asIs)},
	{Name: "allow-unquantized",
		Help:  "allow files without quantized tensors, and NaN and infinities",
		field: one(func(r *Recipe) *bool { return &r.AllowUnquantized }, strconv.ParseBool)},
}

// Settings lists what a recipe can say apart from its rules.
func Settings() []Setting { return slices.Clone(settings) }

// SettingOf returns the setting with a name; ok is false if there is none.
func SettingOf(name string) (s Setting, ok bool) {
	i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		return s, false
	}
	return settings[i], true
}

// Set reads the values of the setting, in place of the recipe's own. Only a List has several.
func (s Setting) Set(r *Recipe, values ...string) error { return s.field.set(r, values) }

func (s Setting) stated(r *Recipe) bool {
	v := reflect.ValueOf(s.field.value(r))
	return v.IsValid() && !v.IsZero() && (v.Kind() != reflect.Slice || v.Len() > 0)
}

// Check returns the first setting that is stated without what it goes with, or below its least
// value, and says what is wrong. has says of some words of Setting.With whether the job has what
// they name.
func (r Recipe) Check(has map[string]bool) (name string, err error) {
	for _, s := range settings {
		n, number := s.field.value(&r).(int)
		with, known := has[s.With]
		switch {
		case !s.stated(&r):
		case known && !with:
			return s.Name, fmt.Errorf("goes with %s", s.With)
		case number && n < s.Least:
			return s.Name, fmt.Errorf("%d: at least %d", n, s.Least)
		}
	}
	return "", nil
}

func one[T any](at func(r *Recipe) *T, parse func(string) (T, error)) field {
	return field{
		set: func(r *Recipe, values []string) error {
			v, err := parse(values[0])
			if err == nil {
				*at(r) = v
			}
			return err
		},
		value: func(r *Recipe) any { return spell(*at(r)) },
	}
}

// hash is the setting hash: sha256, or headers.
type hash bool

func (hash) String() string { return "sha256" }

func asIs(s string) (string, error) { return s, nil }

// spell returns a value as JSON has it: a number, a bool or a word; nil or "" if it is not stated.
func spell(value any) any {
	switch v := value.(type) {
	case *int: // a group
		if v == nil {
			return nil
		}
		if *v == PerChannel {
			return groupName(*v)
		}
		return *v
	case []LayoutRequest:
		return strings.Join(namesOf(v...), ",")
	case []Target:
		return TargetNames(v)
	case fmt.Stringer:
		if reflect.ValueOf(v).IsZero() {
			return ""
		}
		return v.String()
	}
	return value
}

// PerChannel is the group size of one scale per row, spelled "channel".
const PerChannel = 0

// Self is the value of Recipe.Calibrate for text that the model writes.
const Self = "self"

// Quality is a preset of a recipe.
type Quality string

// The presets.
const (
	QualityFast Quality = "fast" // search, without data
	QualityGood Quality = "good" // gptq-ft, on text that the model writes
	// good with Refine, four times the text, and twice the text to choose bits with
	QualityBest Quality = "best"
	QualityMax  Quality = "max" // best, then tuned as the model's size allows
)

// Tune says which numbers of a file are trained after its codes were chosen, see package tune.
type Tune string

// The kinds of tuning. The zero value is TuneOff.
const (
	TuneOff    Tune = "off"
	TuneNorms  Tune = "norms"  // a factor for each row of scales, and gains of norms
	TuneFloats Tune = "floats" // all scales, and gains of norms
	TuneCodes  Tune = "codes"  // codes, all scales, and gains of norms
	TuneBlocks Tune = "blocks" // codes and scales layer by layer, then the numbers of TuneFloats
)

// Fold says how to fold a checkpoint, see package fold.
type Fold struct {
	Rotate, Equalize bool
	// Auto chooses between the four folds by a measurement on the checkpoint. Rotate and Equalize are
	// then false.
	Auto bool
}

var folds = map[string]Fold{"none": {}, "rotate": {Rotate: true}, "equalize": {Equalize: true}, "rotate,equalize": {Rotate: true, Equalize: true}, "auto": {Auto: true}}

// The names of values, in the order of messages and completion.
var (
	widths       = []string{"1", "2", "3", "4", "5", "6", "7", "8"}
	groups       = []string{"16", "32", "64", "128", "256", "channel"}
	foldNames    = []string{"none", "rotate", "equalize", "rotate,equalize", "auto"}
	hashNames    = []string{"headers", "sha256"}
	qualityNames = []string{string(QualityFast), string(QualityGood), string(QualityBest), string(QualityMax)}
	tuneNames    = []string{string(TuneOff), string(TuneNorms), string(TuneFloats), string(TuneCodes), string(TuneBlocks)}
	mappingNames = namesOf(gqf.MappingFullRange, gqf.MappingSymmetric, gqf.MappingSymmetricNoClip, gqf.MappingAsymmetric, gqf.MappingHalfStep, gqf.MappingKQuant,
		rounding.MappingNonlinear, rounding.MappingNonlinearK, rounding.MappingTernary, rounding.MappingMXFP4,
		rounding.MappingLattice, rounding.MappingLatticeXS, rounding.MappingLatticeXXS)
	algorithmNames = namesOf(gqf.AlgorithmSearch, gqf.AlgorithmRTN, gqf.AlgorithmGPTQ, gqf.AlgorithmGPTQFT, gqf.AlgorithmImatrix, gqf.AlgorithmAWQ)
	dtypeNames     = namesOf(packing.ScaleBF16, packing.ScaleF16, packing.ScaleF32)
)

func namesOf[T fmt.Stringer](all ...T) (names []string) {
	for _, v := range all {
		names = append(names, v.String())
	}
	return names
}

// String returns the name that ParseFold reads.
func (f Fold) String() string {
	for name, known := range folds {
		if f == known {
			return name
		}
	}
	return fmt.Sprintf("%+v", struct{ Rotate, Equalize, Auto bool }(f))
}

// ParseFold reads none, rotate, equalize, rotate,equalize or auto.
func ParseFold(s string) (Fold, error) {
	if s == "equalize,rotate" {
		s = "rotate,equalize"
	}
	if f, ok := folds[s]; ok {
		return f, nil
	}
	return Fold{}, suggest.Unknown("fold", s, foldNames)
}

func parseBits(s string) (int, error) {
	if !slices.Contains(widths, s) {
		return 0, fmt.Errorf("%q bits: use 1 to 8", s)
	}
	return strconv.Atoi(s)
}

// parseGroup reads a group size: a positive multiple of 16, or "channel" for PerChannel.
func parseGroup(s string) (int, error) {
	if s == "channel" {
		return PerChannel, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 || n%16 != 0 {
		return 0, fmt.Errorf("group %q: use a multiple of 16, or channel", s)
	}
	return n, nil
}

func groupName(g int) string {
	if g == PerChannel {
		return "channel"
	}
	return strconv.Itoa(g)
}

// known is a parser of the listed names. parse knows all of them.
func known[T any](kind string, names []string, parse func(string) (T, bool)) func(string) (T, error) {
	return func(s string) (v T, err error) {
		if !slices.Contains(names, s) {
			return v, suggest.Unknown(kind, s, names)
		}
		v, _ = parse(s)
		return v, nil
	}
}

func word[T ~string](kind string, names []string) func(string) (T, error) {
	return known(kind, names, func(s string) (T, bool) { return T(s), true })
}

func positive[T int | uint64](s string) (T, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 || T(n) < 0 {
		return 0, fmt.Errorf("%q: use an integer above 0", s)
	}
	return T(n), nil
}

// optional is a parser of values that may be absent.
func optional[T any](parse func(string) (T, error)) func(string) (*T, error) {
	return func(s string) (*T, error) {
		v, err := parse(s)
		return &v, err
	}
}
