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

// modelsBytes is the memory of the two models that choose bits: their packed weights, if the models
// are small.
func (v view) modelsBytes() int64 {
	if v.plan.SourceBytes > packedBytes {
		return 0
	}
	return 2 * v.plan.SourceBytes
}

// probeBytes is the memory of two models, of their predictions, and of gradients or the predictions
// of held-out text.
func (v view) probeBytes() int64 {
	b := v.bounds
	return v.modelsBytes() + b.choice + max(b.gradients, b.heldOut)
}

// foldBytes is the memory of a fold that the recipe states, without calibration.
func (v view) foldBytes() int64 {
	if v.calibration.needed() || v.o.Recipe.Auto {
		return 0
	}
	return v.layerBytes()
}

// foldChoiceBytes is the memory of candidates for the fold without calibration, and of the
// divergences that choose the fold.
func (v view) foldChoiceBytes() (n int64) {
	if !v.calibration.needed() {
		n = v.layerBytes()
	}
	return n + v.modelBytes(func(m *forward.Model, window int) int64 { return eval.KLBytes(m, foldTokens, window) })
}

// garbageShare is the part of a step's memory that is added to it for garbage: with less, the
// garbage collector would run all the time. solvedShare is the part for gptq and gptq-ft, by which
// package memlimit lets the heap grow between collections.
const garbageShare, solvedShare = 10, 4

// calibrationBytes is the memory of calibration, and of the folds before it. The models that choose
// bits stay open while files are measured.
func (v view) calibrationBytes() (n int64) {
	k := v.calibration
	if k.solved {
		n = v.modelBytes(func(m *forward.Model, window int) int64 {
			n, _ := calib.Estimate(v.plan, m, k.tokens, window, calib.Options{Refine: k.refine, Threads: v.o.Threads})
			return n + n/solvedShare
		})
	}
	if v.mayFold() || n == 0 {
		n = max(n, v.layerBytes())
	}
	if v.measuredFiles(evaluations) > 0 {
		n += v.modelsBytes() + v.bounds.choice + v.bounds.heldOut
	}
	return n
}

// heldOutBytes is the memory of measuring a file on held-out text.
func (v view) heldOutBytes() int64 {
	return v.modelBytes(func(m *forward.Model, window int) int64 {
		n := eval.KLBytes(m, v.heldOutTokens(), window)
		return n + n/garbageShare
	})
}

// writerBytes is the memory of writing a text, and the texts with it.
func (v view) writerBytes(s *selfText) int64 {
	return v.modelBytes(func(m *forward.Model, window int) int64 {
		var texts []text.WriteOptions
		for ; s != nil; s = s.with {
			texts = append(texts, text.WriteOptions{Tokens: s.tokens, Window: window})
		}
		n := text.WriteBytes(m, texts)
		if v.plan.SourceBytes <= packedWriter {
			n += v.plan.SourceBytes
		}
		return n + n/garbageShare
	})
}

// textBytes is the memory of writing the text. The float model that chooses bits is open already.
func (v view) textBytes() int64 {
	n := v.writerBytes(v.writtenText())
	if v.o.Budget != nil {
		n += v.modelsBytes() / 2
	}
	return n
}

// modelBytes estimates with the model of the checkpoint, and the length of a sequence of its texts.
// 0: the model cannot be opened, so that the job will fail.
func (v view) modelBytes(estimate func(m *forward.Model, window int) int64) int64 {
	m, err := forward.OpenCheckpoint(v.source.plan.SourceDir(), forward.Options{Threads: v.o.Threads})
	if err != nil {
		return 0
	}
	defer m.Close()
	return estimate(m, text.WindowOf(m.Config()))
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
