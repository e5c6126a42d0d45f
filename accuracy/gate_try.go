package accuracy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/pattern"
)

// Try is a change that may make a file meet the gate.
type Try struct {
	Flags string `json:"flags"` // of gq quantize
	Why   string `json:"why"`
}

// tried is how many tensors get more bits in a Try.
const tried = 3

// tries lists changes to try if figures of accuracy do not meet the gate, the best first. Nothing
// helps if the checkpoint is another one, kernels differ, or a figure is missing.
func (res *GateResult) tries(r *Report) (list []Try) {
	var failed []string // tensors
	lost := false
	for _, f := range res.Failures {
		c := &res.Conditions[f.Condition]
		if c.Of == "source" {
			return nil
		}
		if f.Missing == "" && c.OfAccuracy() && !slices.Contains(sizeMetrics, f.Metric) {
			lost = true
			failed = append(failed, f.Tensor)
		}
	}
	if !lost {
		return nil
	}
	if t, ok := tryAlgorithm(r); ok {
		list = append(list, t)
	}
	if len(res.Blame) > 0 {
		failed = nil
		for _, b := range res.Blame {
			failed = append(failed, b.Tensor)
		}
	}
	if flags := moreBits(r, failed); flags != "" {
		list = append(list, Try{flags, "more bits for the tensors that lost most"})
	}
	return list
}

// sizeMetrics are the figures that more bits make worse.
var sizeMetrics = []string{"bits_per_weight", "file_bytes"}

// tryAlgorithm names the preset above the one of the linear layers. Presets need to run the model.
func tryAlgorithm(r *Report) (Try, bool) {
	const fast, calibrated, best = 0, 1, 2
	level, any, rtn := best, false, false
	for i := range r.Tensors {
		s := &r.Tensors[i]
		if s.Unquantized || s.Role == gqf.RoleEmbedding.String() || s.Role == gqf.RolePosition.String() {
			continue
		}
		any = true
		switch s.Algorithm {
		case gqf.AlgorithmGPTQFT.String():
		case gqf.AlgorithmGPTQ.String(), gqf.AlgorithmImatrix.String(), gqf.AlgorithmAWQ.String():
			level = min(level, calibrated)
		default:
			level = fast
			rtn = rtn || s.Algorithm == gqf.AlgorithmRTN.String()
		}
	}
	switch {
	case !any || level == best && r.refined:
		return Try{}, false
	case r.NoModel != "" && rtn:
		return Try{"--algorithm search", "scales and codes of least error"}, true
	case r.NoModel != "":
		return Try{}, false
	case level == fast:
		return Try{"--quality good", "codes calibrated on text that the model writes"}, true
	case level == calibrated:
		return Try{"--quality good", "gptq-ft, which follows the floating-point model"}, true
	}
	return Try{"--quality best", "refined codes, from four times the text"}, true
}

// moreBits gives the next width to the first of these tensors that can have it; "" if none can.
func moreBits(r *Report, labels []string) string {
	var rules []string
	for _, label := range labels {
		i := slices.IndexFunc(r.Tensors, func(s TensorStats) bool { return !s.Unquantized && s.Variant == 0 && s.Label() == label })
		if i < 0 {
			continue
		}
		s := &r.Tensors[i]
		rule := shellQuoted(pattern.Module(s.Name) + "=" + wider(s))
		if rule = "--rule " + rule; !slices.Contains(rules, rule) { // the experts of a tensor share its rule
			rules = append(rules, rule)
		}
		if len(rules) == tried {
			break
		}
	}
	return strings.Join(rules, " ")
}

// wider is the scheme with the next width, as a rule spells it. Other runtimes' layouts have few
// widths.
func wider(s *TensorStats) string {
	anyWidth := s.Layout == "lowbit" || s.Layout == "codes" || s.Layout == "torchao-linear"
	switch {
	case !anyWidth || s.Bits >= 8:
		return "skip"
	case s.Bits == 2 && s.Mapping == gqf.MappingHalfStep.String(): // wider codes have no half-step grid
		return "3,full-range"
	}
	return fmt.Sprint(s.Bits + 1)
}

// shellQuoted quotes a word that a shell would split or expand.
func shellQuoted(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/=,:+", r)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// tunedNorms reports whether the file says that gains of its norms were tuned.
func tunedNorms(f *gqf.File) bool {
	raw, err := f.Asset(gqf.ProvenanceName)
	if err != nil {
		return false
	}
	var p struct {
		Tuning struct {
			Norms int `json:"norms"`
		} `json:"tuning"`
	}
	return json.Unmarshal(raw, &p) == nil && p.Tuning.Norms > 0
}

// refined reports whether the recipe in the file asks for refined codes.
func refined(f *gqf.File) bool {
	raw, err := f.Asset(gqf.RecipeName)
	if err != nil {
		return false
	}
	var recipe struct {
		Refine bool `json:"refine"`
	}
	return json.Unmarshal(raw, &recipe) == nil && recipe.Refine
}
