package quantizer

import (
	"cmp"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/suggest"
)

// Self is the value of Recipe.Calibrate for text that the model writes.
const Self = "self"

// Quality is a preset of a recipe.
type Quality string

// The presets.
const (
	QualityFast Quality = "fast" // search, without data
	QualityGood Quality = "good" // gptq-ft, on text that the model writes
	QualityBest Quality = "best" // the same with Refine, four times the text and more probes to choose bits with
	QualityMax  Quality = "max"  // best, then tuned as the model's size allows
)

// ParseQuality reads the name of a preset.
func ParseQuality(s string) (Quality, error) {
	switch q := Quality(s); q {
	case QualityFast, QualityGood, QualityBest, QualityMax:
		return q, nil
	}
	return "", suggest.Unknown("preset", s, []string{string(QualityFast), string(QualityGood), string(QualityBest), string(QualityMax)})
}

// ManyProbes reports whether bits are chosen with more probes.
func (q Quality) ManyProbes() bool { return q == QualityBest || q == QualityMax }

// WithQuality returns the recipe with the settings of its preset in the fields that are not set.
func (r Recipe) WithQuality() Recipe {
	switch r.Quality {
	case QualityFast:
		r.Algorithm = cmp.Or(r.Algorithm, gqf.AlgorithmSearch)
	case QualityBest, QualityMax:
		r.CalibrateTokens = cmp.Or(r.CalibrateTokens, 32768)
		if r.Refine == nil {
			r.Refine = new(true)
		}
		fallthrough
	case QualityGood:
		r.Algorithm = cmp.Or(r.Algorithm, gqf.AlgorithmGPTQFT)
		r.Calibrate = cmp.Or(r.Calibrate, Self)
	}
	return r
}
