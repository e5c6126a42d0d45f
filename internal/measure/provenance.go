package measure

import (
	"encoding/json"

	"github.com/lowbit-go/gq/formats/gqf"
)

// tuningOf reports whether the file says that its numbers, and gains of norms, were tuned.
func tuningOf(f *gqf.File) (tuned, norms bool) {
	raw, err := f.Asset(gqf.ProvenanceName)
	if err != nil {
		return false, false
	}
	var p struct {
		Tuning *struct {
			Norms int `json:"norms"`
		} `json:"tuning"`
	}
	if json.Unmarshal(raw, &p) != nil || p.Tuning == nil {
		return false, false
	}
	return true, p.Tuning.Norms > 0
}

// qualityOf returns the file's preset, by its recipe and provenance; "" for none.
func qualityOf(f *gqf.File) string {
	if tuned, _ := tuningOf(f); tuned {
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
