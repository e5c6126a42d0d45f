package gq

import (
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/togguf"
	"github.com/lowbit-go/gq/internal/job/toonnx"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/quantizer"
)

// QuantizeOptions are the options of Quantize and Plan. The zero value is ready to use.
type QuantizeOptions struct {
	// Recipe decides the bytes of the file; see quantizer.Recipe for its defaults.
	Recipe quantizer.Recipe
	// Rules precede the recipe's own. Default: none.
	Rules []quantizer.Rule
	// Budget chooses bits, groups and mappings tensor by tensor. Default (nil): the recipe's.
	Budget *Budget
	// Split is the greatest size of a .gguf file, or of the tensors in a file of a checkpoint: a
	// larger model is divided into shards. Default (0): a single .gguf file; 5 GB for a checkpoint, as
	// Transformers.
	Split int64
	// RecipeFile is the file that Recipe was read from. No output may replace it. Default: none.
	RecipeFile string
	// SaveRecipe names a file for the recipe that was used, with a rule for each choice of bits. The
	// saved recipe gives the same file again. Default: none.
	SaveRecipe string
	// ImatrixOut names a file for the importance matrix that the algorithm imatrix used. Default:
	// none.
	ImatrixOut string
	// CalibrateOut names a file for the text of calibration, or of the choice of bits or the fold:
	// plain text, or token ids if the name ends in .ids. Default: none.
	CalibrateOut string
	// Measure measures the file before it appears. If Measure has a gate, the file appears only if
	// it meets the gate. Default (nil): no measurement.
	Measure *MeasureOptions
	// Requantize accepts a GGUF file or a checkpoint with quantized weights, and quantizes the weights
	// again. Default: false.
	Requantize bool
	// Keep writes the file even if it does not meet the gate. Default: false.
	Keep bool
	// Threads is how many workers run. Default (0): GOMAXPROCS. The file does not depend on it.
	Threads int
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress

	// format is what Recipe and the output's name decide, see resolveFormat.
	format format
}

// resolveFormat settles the format of the output, and the target that a name ending in .gguf
// implies.
func (o *QuantizeOptions) resolveFormat(dst string) error {
	r := &o.Recipe
	if len(r.Targets) == 0 && strings.EqualFold(filepath.Ext(dst), ".gguf") {
		r.Targets = []quantizer.Target{quantizer.TargetGGUF}
	}
	o.format = formatOf(r.Targets, dst)
	if err := checkSettings(*r, map[string]bool{quantizer.With.GQF: o.format == formatGQF, quantizer.With.GGUF: o.format == formatGGUF}); err != nil {
		return err
	}
	switch {
	case o.Split < 0:
		return optionf("split", "%d: at least 1", o.Split)
	case o.format == formatGQF && o.Split != 0:
		return optionf("split", "goes with a .gguf file or a checkpoint, and %s is a .gqf file", dst)
	}
	return checkEnding(dst, o.format, "")
}

// setFormat sets the options of a plan that follow from the format.
func (o *QuantizeOptions) setFormat(to *conversion.Options) {
	switch {
	case o.format == formatONNX:
		to.ONNX = &toonnx.Options{Tile: o.Recipe.Targets[0].PackedTile(), Split: o.Split}
	case o.format.isDirectory():
		to.Checkpoint = &tocheckpoint.Options{Format: o.format.checkpoint(), Split: o.Split}
	case o.format == formatGGUF:
		to.GGUF = &togguf.Options{Pre: o.Recipe.Pre, Split: o.Split}
	}
}

// PartOptions say which part of a file QuantizePart makes.
type PartOptions struct {
	write.Part
	// Dry reports the plan, which Merge needs, and makes nothing. Default: the part is made.
	Dry bool
}
