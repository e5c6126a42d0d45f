package gq

import (
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/calib"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
)

// codesBytes is the size of the codes of gptq and gptq-ft in the working directory: a byte each,
// and about a sixteenth for scales and zero points (1.056 bytes a weight in groups of 48 to 128).
func (v view) codesBytes() (n int64) {
	for _, m := range v.plan.Matrices() {
		if m.Scheme.Algorithm.ByLayers() {
			n += int64(m.Rows) * int64(m.Cols) * 17 / 16
		}
	}
	return n
}

// candidateBytes is about the size of a file that is measured to choose bits: it lies beside the
// output.
func (v view) candidateBytes() int64 {
	b := v.o.Budget
	switch {
	case v.measuredFiles(evaluations) == 0:
		return 0
	case b.FileBytes > 0:
		return b.FileBytes
	case b.BitsPerWeight > 0:
		least := v.bounds.outline.Least
		return min(least.OutputBytes+int64((b.BitsPerWeight-least.BitsPerWeight)*weights(v.plan)/8), v.bounds.outline.Most.OutputBytes)
	}
	return v.bounds.outline.Most.OutputBytes
}

// probeBytes is the memory of two models, with packed weights if the models are small, of gradients
// and of predictions.
func (v view) probeBytes() int64 { return 2*min(v.plan.SourceBytes, packedBytes) + v.bounds.memory }

// foldBytes is the memory of a fold that the recipe states, without calibration.
func (v view) foldBytes() int64 {
	if v.calibration.needed() || v.o.Recipe.Auto {
		return 0
	}
	return v.layerBytes()
}

// foldChoiceBytes is the memory of candidates for the fold without calibration, and of the
// divergences that choose the fold. 0: the model cannot be opened.
func (v view) foldChoiceBytes() (n int64) {
	if !v.calibration.needed() {
		n = v.layerBytes()
	}
	if v.o.Budget != nil {
		return n
	}
	m, err := forward.OpenCheckpoint(v.source.plan.SourceDir(), forward.Options{Threads: v.o.Threads})
	if err != nil {
		return n
	}
	defer m.Close()
	return n + eval.KLBytes(m, foldTokens, text.WindowOf(m.Config()))
}

// calibrationBytes is the memory of calibration, and of the folds before it.
func (v view) calibrationBytes() int64 {
	k, solved := v.calibration, v.textBytes()
	if v.mayFold() || !k.solved || solved == 0 || v.o.Budget != nil {
		return max(solved, v.layerBytes())
	}
	return solved
}

// garbageShare is the part of calibration's memory that is added to it for garbage: with less, the
// garbage collector would run all the time.
const garbageShare = 10

// textBytes is the memory of calibration on a text at its peak: while the text is written, while
// gptq or gptq-ft choose codes, or while the result is measured. 0: the model cannot be opened, so
// that the job will fail.
func (v view) textBytes() int64 {
	k, p := v.calibration, v.plan
	m, err := forward.OpenCheckpoint(p.SourceDir(), forward.Options{Threads: v.o.Threads})
	if err != nil {
		return 0
	}
	defer m.Close()
	window := text.WindowOf(m.Config())
	n := int64(0)
	if k.solved {
		n, _ = calib.Estimate(p, m, k.tokens, window, calib.Options{Refine: k.refine, Threads: v.o.Threads})
	}
	if v.textCalibrated() {
		n = max(n, eval.KLBytes(m, v.heldOutTokens(), window))
	}
	if k.onText && v.ownText() {
		var texts []text.WriteOptions
		own := v.calibrationText(k.tokens)
		for s := &own; s != nil; s = s.with {
			texts = append(texts, text.WriteOptions{Tokens: s.tokens, Window: window})
		}
		written := text.WriteBytes(m, texts)
		if p.SourceBytes <= packedWriter {
			written += p.SourceBytes
		}
		n = max(n, written)
	}
	return n + n/garbageShare
}

// tuneBytes is the memory of tuning. The steps before have ended, and their memory is free.
func (v view) tuneBytes() int64 {
	n := v.tuning.size.Memory
	for _, s := range steps() {
		if s.stage != stageTune && s.memory != nil && s.runs(v) > 0 {
			n -= s.memory(v)
		}
	}
	return max(n, 0)
}

// layerBytes is the memory of folds for the largest matrix, and of imatrix and awq for the largest
// layer: its float32 weights, the hidden states before and behind it, and what an algorithm adds.
func (v view) layerBytes() int64 {
	var wide, hidden, largest, whole, streams int64
	layers := map[int]int64{}
	streams = 1
	for _, m := range v.plan.Matrices() {
		size := int64(m.Rows) * int64(m.Cols)
		whole = max(whole, size)
		layer := layerOf(m.Tensor)
		if layer < 0 {
			continue
		}
		layers[layer] += size
		largest = max(largest, size)
		wide = max(wide, int64(m.Cols))
		if hidden == 0 || int64(m.Cols) < hidden {
			hidden = int64(m.Cols)
		}
		if m.Scheme.Algorithm == gqf.AlgorithmGPTQFT {
			streams = 2
		}
	}
	layer := int64(0)
	for _, size := range layers {
		layer = max(layer, size)
	}
	if !v.calibration.needed() { // folds one tensor after another
		return 12*largest + 4*whole
	}
	tokens := int64(v.calibration.tokens)
	// the float model's layer and the hidden states between two layers
	n := 4*layer + 4*tokens*hidden*streams
	if v.mayFold() {
		return n + 12*largest + 4*tokens*wide
	}
	return n + calib.ChoiceBytes(hidden+wide)
}

// layerOf returns the number of the layer in a tensor's name; -1 if it has none.
func layerOf(name string) int {
	for part := range strings.SplitSeq(name, ".") {
		if n, err := strconv.Atoi(part); err == nil {
			return n
		}
	}
	return -1
}
