package accuracy

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/suggest"
)

type metric struct {
	name string
	unit string
	more bool
}

func (m metric) itself() metric { return m }

// metricsOf returns the metrics without the functions that find their figures.
func metricsOf[T interface{ itself() metric }](list []T) (metrics []metric) {
	for _, m := range list {
		metrics = append(metrics, m.itself())
	}
	return metrics
}

func metricNamed(list []metric, name string) (metric, error) {
	var names []string
	for _, m := range list {
		if m.name == name {
			return m, nil
		}
		names = append(names, m.name)
	}
	return metric{}, fmt.Errorf("no such figure; there are %s%s", strings.Join(names, ", "), suggest.DidYouMean(name, names))
}

// modelMetric is a figure of the model, on a text or not. get returns false if the report lacks it.
type modelMetric struct {
	metric
	needsText bool
	get       func(r *Report, t *TextReport) (float64, bool)
	// stdErr returns the figure's standard error; nil for figures without a standard error.
	stdErr func(c *eval.Comparison) eval.StdErr
}

type tensorMetric struct {
	metric
	needsOutput bool
	ofErrors    bool // of weights, see TensorStats.fitted
	get         func(s *TensorStats) (float64, bool)
}

func ofModel(get func(c *eval.Comparison) float64) func(*Report, *TextReport) (float64, bool) {
	return func(_ *Report, t *TextReport) (float64, bool) {
		if t == nil || t.Model == nil {
			return 0, false
		}
		return get(t.Model), true
	}
}

// ofText is ofModel for figures that are 0 if the size of the text is unknown.
func ofText(get func(c *eval.Comparison) float64) func(*Report, *TextReport) (float64, bool) {
	return func(r *Report, t *TextReport) (float64, bool) {
		v, ok := ofModel(get)(r, t)
		return v, ok && v > 0
	}
}

func ofOutput(get func(o *OutputStats) float64) func(*TensorStats) (float64, bool) {
	return func(s *TensorStats) (float64, bool) {
		if s.Output == nil {
			return 0, false
		}
		return get(s.Output), true
	}
}

func ofTensor(get func(s *TensorStats) float64) func(*TensorStats) (float64, bool) {
	return func(s *TensorStats) (float64, bool) { return get(s), true }
}

var modelMetrics = []modelMetric{
	{metric{"mean_kl", "nats", false}, true, ofModel(func(c *eval.Comparison) float64 { return c.KL.Mean }), func(c *eval.Comparison) eval.StdErr { return c.KL.StdErr }},
	{metric{"median_kl", "nats", false}, true, ofModel(func(c *eval.Comparison) float64 { return c.KL.Median }), nil},
	{metric{"p90_kl", "nats", false}, true, ofModel(func(c *eval.Comparison) float64 { return c.KL.P90 }), nil},
	{metric{"p95_kl", "nats", false}, true, ofModel(func(c *eval.Comparison) float64 { return c.KL.P95 }), nil},
	{metric{"p99_kl", "nats", false}, true, ofModel(func(c *eval.Comparison) float64 { return c.KL.P99 }), nil},
	{metric{"p99_9_kl", "nats", false}, true, ofModel(func(c *eval.Comparison) float64 { return c.KL.P999 }), nil},
	{metric{"max_kl", "nats", false}, true, ofModel(func(c *eval.Comparison) float64 { return c.KL.Max }), nil},
	{metric{"perplexity", "", false}, true, ofModel(func(c *eval.Comparison) float64 { return c.Quantized.Perplexity }), func(c *eval.Comparison) eval.StdErr { return c.Quantized.StdErr }},
	{metric{"word_perplexity", "", false}, true, ofText(func(c *eval.Comparison) float64 { return c.Quantized.WordPerplexity }), func(c *eval.Comparison) eval.StdErr { return c.Quantized.WordPerplexityStdErr }},
	{metric{"bits_per_byte", "bits", false}, true, ofText(func(c *eval.Comparison) float64 { return c.Quantized.BitsPerByte }), func(c *eval.Comparison) eval.StdErr { return c.Quantized.BitsPerByteStdErr }},
	{metric{"perplexity_ratio", "", false}, true, ofModel(func(c *eval.Comparison) float64 { return c.Ratio }), func(c *eval.Comparison) eval.StdErr { return c.RatioStdErr }},
	{metric{"rms_delta_p", "", false}, true, ofModel(func(c *eval.Comparison) float64 { return c.DeltaP.RMS }), func(c *eval.Comparison) eval.StdErr { return c.DeltaP.RMSStdErr }},
	{metric{"same_top1", "", true}, true, ofModel(func(c *eval.Comparison) float64 { return c.SameTop1 }), func(c *eval.Comparison) eval.StdErr { return c.SameTop1StdErr }},
	{metric{"top5_overlap", "", true}, true, ofModel(func(c *eval.Comparison) float64 { return c.Top5Overlap }), func(c *eval.Comparison) eval.StdErr { return c.Top5OverlapStdErr }},
	{metric{"bits_per_weight", "", false}, false, func(r *Report, _ *TextReport) (float64, bool) { return r.Totals.BPW, r.Totals.Tensors > 0 }, nil},
	{metric{"weights_sqnr_db", "dB", true}, false, func(r *Report, _ *TextReport) (float64, bool) { return float64(r.Totals.SQNR), r.Totals.Tensors > 0 }, nil},
	{metric{"file_bytes", "bytes", false}, false, func(r *Report, _ *TextReport) (float64, bool) { return float64(r.FileBytes), r.FileBytes > 0 }, nil},
}

var tensorMetrics = []tensorMetric{
	{metric{"sqnr_db", "dB", true}, false, true, ofTensor(func(s *TensorStats) float64 { return float64(s.SQNR) })},
	{metric{"mse", "", false}, false, true, ofTensor(func(s *TensorStats) float64 { return s.MSE })},
	{metric{"max_error", "", false}, false, true, ofTensor(func(s *TensorStats) float64 { return s.MaxError })},
	{metric{"cosine", "", true}, false, true, ofTensor(func(s *TensorStats) float64 { return s.Cosine })},
	{metric{"saturated", "", false}, false, false, ofTensor(func(s *TensorStats) float64 { return s.Saturated })},
	{metric{"lost_groups", "", false}, false, false, ofTensor(func(s *TensorStats) float64 { return float64(s.LostGroups) })},
	{metric{"bits_per_weight", "", false}, false, false, ofTensor(func(s *TensorStats) float64 { return s.BPW })},
	{metric{"output_sqnr_db", "dB", true}, true, false, ofOutput(func(o *OutputStats) float64 { return float64(o.SQNR) })},
	{metric{"output_cosine", "", true}, true, false, ofOutput(func(o *OutputStats) float64 { return o.Cosine })},
	{metric{"weight_sqnr_db", "dB", true}, true, false, ofOutput(func(o *OutputStats) float64 { return float64(o.WeightSQNR) })},
	{metric{"activation_sqnr_db", "dB", true}, true, false, ofOutput(func(o *OutputStats) float64 { return float64(o.ActivationSQNR) })},
}

// Decibels is a signal-to-noise ratio: 10 log10 of the quotient of two sums of squares. Without
// noise the ratio is +Inf, in JSON null. Noise without a signal is -300, the minimum.
type Decibels float64

// Ratio returns the ratio of the sums of squares of a signal and of its noise.
func Ratio(signal, noise float64) Decibels {
	const least = -300
	switch {
	case noise == 0:
		return Decibels(math.Inf(1))
	case signal == 0:
		return least
	}
	return Decibels(max(float64(10*detmath.Log10(signal/noise)), least))
}

// Exact reports whether there is no noise.
func (d Decibels) Exact() bool { return math.IsInf(float64(d), 1) }

// String formats d as "21.35 dB", or "exact".
func (d Decibels) String() string {
	if d.Exact() {
		return "exact"
	}
	return fmt.Sprintf("%.2f dB", float64(d))
}

func (d Decibels) MarshalJSON() ([]byte, error) {
	v := float64(d)
	switch {
	case d.Exact():
		return []byte("null"), nil
	case math.IsNaN(v) || math.IsInf(v, -1):
		return nil, fmt.Errorf("%v is not a ratio in decibels", v)
	}
	return strconv.AppendFloat(nil, v, 'g', -1, 64), nil
}

func (d *Decibels) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*d = Ratio(1, 0)
		return nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	*d = Decibels(v)
	return err
}
