package measure

import (
	"encoding/json"

	"github.com/lowbit-go/gq/formats/gqf"
)

// fits says how a file's codes and scales were chosen for the outputs of the model.
type fits struct {
	calibration  gqf.Algorithm // AlgorithmOther: none
	tuned, norms bool          // whether numbers, and gains of norms, were tuned
}

// fitsOf reads the file's provenance.
func fitsOf(f *gqf.File) fits {
	var p struct {
		Calibration struct {
			Algorithm string `json:"algorithm"`
		} `json:"calibration"`
		Tuning *struct {
			Norms int `json:"norms"`
		} `json:"tuning"`
	}
	raw, err := f.Asset(gqf.ProvenanceName)
	if err != nil || json.Unmarshal(raw, &p) != nil {
		return fits{calibration: gqf.AlgorithmOther}
	}
	s := fits{tuned: p.Tuning != nil, norms: p.Tuning != nil && p.Tuning.Norms > 0}
	var ok bool
	if s.calibration, ok = gqf.ParseAlgorithm(p.Calibration.Algorithm); !ok || !s.calibration.Calibrated() {
		s.calibration = gqf.AlgorithmOther
	}
	return s
}

// imported returns the algorithm of an imported tensor: .gguf files and checkpoints name an
// algorithm for the file, not for each tensor. Embeddings are not calibrated.
func (s fits) imported(role string) gqf.Algorithm {
	if role == gqf.RoleEmbedding.String() {
		return gqf.AlgorithmOther
	}
	return s.calibration
}

// qualityOf returns the file's preset, by its recipe and provenance; "" for none.
func qualityOf(f *gqf.File) string {
	if fitsOf(f).tuned {
		return "max"
	}
	raw, _ := f.Asset(gqf.RecipeName)
	var recipe struct {
		Quality string `json:"quality"`
		Refine  bool   `json:"refine"`
	}
	if json.Unmarshal(raw, &recipe) != nil {
		return ""
	}
	if recipe.Refine && recipe.Quality != "max" {
		return "best"
	}
	return recipe.Quality
}
