package quantizer

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/suggest"
	"github.com/lowbit-go/gq/packing"
)

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
	// good with Refine, four times the text and more probes to choose bits with
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
	widths         = []string{"1", "2", "3", "4", "5", "6", "7", "8"}
	groups         = []string{"16", "32", "64", "128", "256", "channel"}
	foldNames      = []string{"none", "rotate", "equalize", "rotate,equalize", "auto"}
	hashNames      = []string{"headers", "sha256"}
	qualityNames   = []string{string(QualityFast), string(QualityGood), string(QualityBest), string(QualityMax)}
	tuneNames      = []string{string(TuneOff), string(TuneNorms), string(TuneFloats), string(TuneCodes), string(TuneBlocks)}
	mappingNames   = namesOf(gqf.MappingFullRange, gqf.MappingSymmetric, gqf.MappingSymmetricNoClip, gqf.MappingAsymmetric, gqf.MappingHalfStep, gqf.MappingKQuant)
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

// word is a parser of the listed words.
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
