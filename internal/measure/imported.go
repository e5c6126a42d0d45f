package measure

import (
	"encoding/json"
	"fmt"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/imports"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/packing"
)

// Imported describes a GGUF file or a quantized checkpoint that was converted to Job.File.
type Imported struct {
	Bytes int64 // of all files
	// Tensors are the tensors by their names in a checkpoint.
	Tensors map[string]imports.ImportedTensor
}

// describe makes the figures of a tensor say how its file stores the tensor. A quantized tensor
// with codes that the .gqf file cannot hold is float32 there.
func (im *Imported) describe(s *accuracy.TensorStats, fitted fits) {
	t, ok := im.Tensors[s.Name]
	if !ok {
		return
	}
	s.Bytes = t.Bytes / int64(max(1, s.Slices))
	s.BPW = packing.BitsPerWeight(s.Bytes, s.Rows*s.Cols)
	if !t.Quantized || !s.Unquantized && s.Layout != t.Type {
		return
	}
	s.TensorScheme = &accuracy.TensorScheme{
		Layout: t.Type, Bits: t.Bits, Group: t.Group, Mapping: gqf.MappingOther.String(), Algorithm: fitted.imported(s.Role).String(), Rows: s.Rows, Cols: s.Cols,
	}
	if s.Unquantized {
		s.Unquantized, s.Equal, s.Difference, s.Tuned = false, false, "", fitted.tuned
		s.NoOutput = "computed in float32"
	}
}

func missingTensors(ck *safetensors.Checkpoint, f *gqf.File) ([]string, error) {
	short, long := namesOf(ck)
	var missing []string
	for _, t := range ck.Tensors() {
		name := short(t.Name)
		have, ok := f.Lookup(name)
		switch {
		case arch.Ignorable(t.Name):
		case !ok:
			if weight, scale := arch.ScaleOf(t.Name); scale {
				if _, ok := f.Lookup(short(weight)); ok {
					continue
				}
			}
			missing = append(missing, t.Name)
		case have.Name != name: // the lm_head is the embedding in the file
			other, ok := ck.Lookup(long(have.Name))
			if ok {
				var err error
				if ok, err = fromcheckpoint.SameContent(ck, t, other); err != nil {
					return nil, err
				}
			}
			if !ok {
				missing = append(missing, t.Name)
			}
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	more := ""
	if len(missing) > 1 {
		more = fmt.Sprintf(" and %d more", len(missing)-1)
	}
	return []string{fmt.Sprintf("the checkpoint has tensor %q%s, which the file does not", missing[0], more)}, nil
}

// namesOf translates a checkpoint's names, see arch.Names.
func namesOf(ck *safetensors.Checkpoint) (short, long func(name string) string) {
	return arch.Names(func(name string) bool { _, ok := ck.Lookup(name); return ok })
}

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
