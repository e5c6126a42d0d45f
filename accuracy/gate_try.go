package accuracy

import (
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
// helps if the checkpoint is wrong, kernels differ, or a figure is missing.
func (res *GateResult) tries(r *Report) (list []Try) {
	var failed []string // tensors; "" for the model
	for _, f := range res.Failures {
		c := &res.Conditions[f.Condition]
		if c.Of == "source" {
			return nil
		}
		if f.Missing == "" && c.OfAccuracy() && !slices.Contains(sizeMetrics, f.Metric) {
			failed = append(failed, f.Tensor)
		}
	}
	if failed == nil {
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

// presets are the values of --quality in ascending order, each with a reason.
var presets = []Try{
	{"--quality fast", ""},
	{"--quality good", "codes calibrated on text that the model writes"},
	{"--quality best", "refined codes, from four times the text"},
	{"--quality max", "scales and codes tuned after calibration"},
}

// tryAlgorithm names the next better preset for the linear layers. Presets need to run the model.
func tryAlgorithm(r *Report) (Try, bool) {
	all, any, rtn := true, false, false // gptq-ft; linear layers; round-to-nearest
	for i := range r.Tensors {
		s := &r.Tensors[i]
		if s.Unquantized || s.Role == gqf.RoleEmbedding.String() || s.Role == gqf.RolePosition.String() {
			continue
		}
		any = true
		all = all && s.Algorithm == gqf.AlgorithmGPTQFT.String()
		rtn = rtn || s.Algorithm == gqf.AlgorithmRTN.String()
	}
	used := max(slices.IndexFunc(presets, func(t Try) bool { return t.Flags == "--quality "+r.Quality }), 0)
	if all {
		used = max(used, 1)
	}
	switch {
	case !any || used == len(presets)-1:
		return Try{}, false
	case r.NoModel == "":
		return presets[used+1], true
	case rtn:
		return Try{"--algorithm search", "scales and codes of least error"}, true
	}
	return Try{}, false
}

// moreBits gives the next width to the first of these tensors with a wider scheme, or returns "".
func moreBits(r *Report, labels []string) string {
	var rules []string
	for _, label := range labels {
		i := slices.IndexFunc(r.Tensors, func(s TensorStats) bool { return !s.Unquantized && s.Variant == 0 && s.Label() == label })
		if i < 0 {
			continue
		}
		s := &r.Tensors[i]
		rule := shellQuoted(pattern.Module(s.Name) + "=" + wider(s))
		// The experts of a tensor share its rule.
		if rule = "--rule " + rule; !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
		if len(rules) == tried {
			break
		}
	}
	return strings.Join(rules, " ")
}

// wider is the scheme with the next width, as in a rule. Other runtimes' layouts have few widths.
func wider(s *TensorStats) string {
	anyWidth := s.Layout == "lowbit" || s.Layout == "codes" || s.Layout == "torchao-linear"
	switch {
	case !anyWidth || s.Bits >= 8:
		return "skip"
	case s.Bits == 2 && s.Mapping == gqf.MappingHalfStep.String(): // wider codes lack this grid
		return "3,full-range"
	}
	return fmt.Sprint(s.Bits + 1)
}

func shellQuoted(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/=,:+", r)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}
