package accuracy

import "github.com/lowbit-go/gq/model/eval"

// A metric is a figure that a gate can limit.
type metric struct {
	name string
	unit string
	// more reports whether more is better.
	more bool
	// about describes the metric in a line.
	about string
}

// modelMetric is a figure of the whole model. get returns false if the report does not have it.
type modelMetric struct {
	metric
	needsText bool
	get       func(r *Report) (float64, bool)
	// stdErr returns the figure's standard error. It is nil for figures without one.
	stdErr func(c *eval.Comparison) eval.StdErr
}

// tensorMetric is a figure of one tensor.
type tensorMetric struct {
	metric
	needsOutput bool
	get         func(s *TensorStats) (float64, bool)
}

func ofModel(get func(c *eval.Comparison) float64) func(*Report) (float64, bool) {
	return func(r *Report) (float64, bool) {
		if r.Model == nil {
			return 0, false
		}
		return get(r.Model), true
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

// modelMetrics are the metrics of a gate's section "model".
var modelMetrics = []modelMetric{
	{metric{"mean_kl", "nats", false, "mean KL divergence per token"}, true, ofModel(func(c *eval.Comparison) float64 { return c.KL.Mean }), func(c *eval.Comparison) eval.StdErr { return c.KL.StdErr }},
	{metric{"median_kl", "nats", false, "median KL divergence"}, true, ofModel(func(c *eval.Comparison) float64 { return c.KL.Median }), nil},
	{metric{"p90_kl", "nats", false, "90th percentile of the KL divergence"}, true, ofModel(func(c *eval.Comparison) float64 { return c.KL.P90 }), nil},
	{metric{"p95_kl", "nats", false, "95th percentile of the KL divergence"}, true, ofModel(func(c *eval.Comparison) float64 { return c.KL.P95 }), nil},
	{metric{"p99_kl", "nats", false, "99th percentile of the KL divergence"}, true, ofModel(func(c *eval.Comparison) float64 { return c.KL.P99 }), nil},
	{metric{"p99_9_kl", "nats", false, "99.9th percentile of the KL divergence"}, true, ofModel(func(c *eval.Comparison) float64 { return c.KL.P999 }), nil},
	{metric{"max_kl", "nats", false, "largest KL divergence"}, true, ofModel(func(c *eval.Comparison) float64 { return c.KL.Max }), nil},
	{metric{"perplexity", "", false, "perplexity of the quantized model"}, true, ofModel(func(c *eval.Comparison) float64 { return c.Quantized.Perplexity }), func(c *eval.Comparison) eval.StdErr { return c.Quantized.StdErr }},
	{metric{"perplexity_ratio", "", false, "perplexity by the float model's"}, true, ofModel(func(c *eval.Comparison) float64 { return c.Ratio }), func(c *eval.Comparison) eval.StdErr { return c.RatioStdErr }},
	{metric{"rms_delta_p", "", false, "root mean square change of the token's probability"}, true, ofModel(func(c *eval.Comparison) float64 { return c.DeltaP.RMS }), func(c *eval.Comparison) eval.StdErr { return c.DeltaP.RMSStdErr }},
	{metric{"same_top1", "", true, "share of positions with the same likeliest token"}, true, ofModel(func(c *eval.Comparison) float64 { return c.SameTop1 }), func(c *eval.Comparison) eval.StdErr { return c.SameTop1StdErr }},
	{metric{"top5_overlap", "", true, "share of the five likeliest tokens in common"}, true, ofModel(func(c *eval.Comparison) float64 { return c.Top5Overlap }), func(c *eval.Comparison) eval.StdErr { return c.Top5OverlapStdErr }},
	{metric{"bits_per_weight", "", false, "of all quantized tensors"}, false, func(r *Report) (float64, bool) { return r.Totals.BPW, r.Totals.Tensors > 0 }, nil},
	{metric{"weights_sqnr_db", "dB", true, "of all quantized weights as one"}, false, func(r *Report) (float64, bool) { return float64(r.Totals.SQNR), r.Totals.Tensors > 0 }, nil},
	{metric{"file_bytes", "bytes", false, "size of the file"}, false, func(r *Report) (float64, bool) { return float64(r.FileBytes), r.FileBytes > 0 }, nil},
}

// tensorMetrics are the metrics of a gate's section "tensors".
var tensorMetrics = []tensorMetric{
	{metric{"sqnr_db", "dB", true, "signal to quantization noise of the weights"}, false, ofTensor(func(s *TensorStats) float64 { return float64(s.SQNR) })},
	{metric{"mse", "", false, "mean squared error of the weights"}, false, ofTensor(func(s *TensorStats) float64 { return s.MSE })},
	{metric{"max_error", "", false, "largest error of a weight"}, false, ofTensor(func(s *TensorStats) float64 { return s.MaxError })},
	{metric{"cosine", "", true, "cosine of the weights with the checkpoint's"}, false, ofTensor(func(s *TensorStats) float64 { return s.Cosine })},
	{metric{"saturated", "", false, "share of codes at an end of the range"}, false, ofTensor(func(s *TensorStats) float64 { return s.Saturated })},
	{metric{"lost_groups", "", false, "groups that became 0"}, false, ofTensor(func(s *TensorStats) float64 { return float64(s.LostGroups) })},
	{metric{"bits_per_weight", "", false, "of the payload"}, false, ofTensor(func(s *TensorStats) float64 { return s.BPW })},
	{metric{"output_sqnr_db", "dB", true, "of the packed kernel's outputs against float32"}, true, ofOutput(func(o *OutputStats) float64 { return float64(o.SQNR) })},
	{metric{"output_cosine", "", true, "of the packed kernel's outputs with float32"}, true, ofOutput(func(o *OutputStats) float64 { return o.Cosine })},
	{metric{"weight_sqnr_db", "dB", true, "of the outputs, what the weights cost"}, true, ofOutput(func(o *OutputStats) float64 { return float64(o.WeightSQNR) })},
	{metric{"activation_sqnr_db", "dB", true, "of the outputs, what int8 activations cost"}, true, ofOutput(func(o *OutputStats) float64 { return float64(o.ActivationSQNR) })},
}
