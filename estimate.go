package gq

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/eval"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/calib"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/rounding"
	"github.com/lowbit-go/gq/quantizer/tune"
)

// Estimate is the expected time and memory of a job.
type Estimate struct {
	// MemoryBytes is the private memory, Seconds the wall time on Threads threads.
	MemoryBytes int64   `json:"memory_bytes"`
	Seconds     float64 `json:"seconds"`
	// DiskBytes is the size of calibrated layers and of the state of tuning in the working directory, from
	// which an interrupted job resumes, and of a file that is measured to choose bits. 0 without these.
	DiskBytes int64 `json:"disk_bytes,omitempty"`
	Threads   int   `json:"threads"`
	// How explains the basis of the estimate.
	How string `json:"how"`
}

// unitSeconds is the CPU time of a unit of cost, see costs.go.
const unitSeconds = .026

// estimate predicts the job of a plan: the sum of the costs of its stages, and the memory of its
// largest layer.
func (j *quantizeJob) estimate() *Estimate {
	cost := 0.0
	for _, s := range j.plannedStages(false) {
		cost += s.cost * float64(s.runs)
	}
	e := &Estimate{Threads: cpu.Threads(j.o.Threads)}
	e.Seconds = cost * unitSeconds / float64(e.Threads)
	e.MemoryBytes = j.memory(j.plan, e.Threads)
	e.How = "time: CPU time per weight and token, measured with Llama-3.2-1B on an AMD EPYC with AVX-512, by the threads (small models take longer by weight); memory: buffers of the threads"
	e.DiskBytes = j.codesBytes() + j.candidateBytes()
	if j.tuning != nil {
		e.DiskBytes += j.tuning.size.Disk
		e.How += fmt.Sprintf(", with %.1f MB for tuning: %d bytes for each trained number, a byte for each weight, and what a layer needs for %d tokens", float64(j.tuning.size.Memory)/1e6, tune.StateBytes, tune.StepTokens)
	}
	if j.calibration != nil {
		e.How += ", and matrices and hidden states of the largest layer"
	}
	return e
}

// codesBytes is the size of the codes of gptq and gptq-ft in the working directory: a byte each, and about
// a sixteenth for scales and zero points (1.056 bytes a weight in groups of 48 to 128).
func (j *quantizeJob) codesBytes() (n int64) {
	for _, m := range j.plan.Matrices() {
		if m.Scheme.Algorithm.ByLayers() {
			n += int64(m.Rows) * int64(m.Cols) * 17 / 16
		}
	}
	return n
}

// candidateBytes is about the size of a file that is measured to choose bits: it lies beside the output.
func (j *quantizeJob) candidateBytes() int64 {
	b := j.o.Budget
	switch {
	case j.measuredFiles(evaluations) == 0:
		return 0
	case b.FileBytes > 0:
		return b.FileBytes
	case b.BitsPerWeight > 0:
		least := j.outline.Least
		return min(least.OutputBytes+int64((b.BitsPerWeight-least.BitsPerWeight)*weights(j.plan)/8), j.outline.Most.OutputBytes)
	}
	return j.outline.Most.OutputBytes
}

// Memory of every job, measured as RssAnon: 5 MB with one thread, 7 MB with two. The directory of
// 200,000 tensors takes 200 MB while it is made.
const (
	baseBytes   = 4 << 20
	threadBytes = 3 << 20
	tensorBytes = 1100
)

// memory is the private memory of the job at its peak, if it writes the file of plan p.
func (j *quantizeJob) memory(p *conversion.Plan, threads int) int64 {
	n := baseBytes + int64(threads)*threadBytes + int64(len(p.Tensors))*tensorBytes
	if j.ck.Remote() {
		most, _ := p.Streams()
		n += most
	}
	if j.calibration == nil && j.folding == nil && j.o.Budget == nil && j.tuning == nil {
		return n
	}
	if j.tuning != nil { // its stage is the largest
		n += j.tuning.size.Memory
	}
	solved, rest := int64(0), int64(0)
	if j.calibration != nil && j.calibration.solved {
		solved = j.calibration.bytes(p)
	}
	if solved == 0 || j.folding != nil || j.o.Budget != nil {
		rest = j.layerBytes(p)
	}
	n += max(solved, rest)
	if j.o.Budget != nil { // two models, whose weights are packed if they are small, gradients and predictions
		n += 2*min(p.SourceBytes, packedBytes) + j.probeBytes + eval.ReferenceBytes
	}
	return n
}

// garbageShare is the part of calibration's memory that is added to it for garbage: with less, the
// garbage collector would run all the time.
const garbageShare = 10

// bytes is the memory of gptq and gptq-ft at its peak: while the text is written, while codes are chosen,
// or while the result is measured. 0: the model cannot be opened, so that the job will fail.
func (k *calibration) bytes(p *conversion.Plan) int64 {
	m, err := model.OpenCheckpoint(p.SourceDir(), model.Options{Threads: k.o.Threads})
	if err != nil {
		return 0
	}
	defer m.Close()
	window := text.WindowOf(m.Config())
	n := max(calib.Memory(p, m, k.tokens(), window, calib.Options{Refine: k.refine(), Threads: k.o.Threads}),
		eval.KLBytes(m, k.heldOutTokens(), window))
	if k.o.Recipe.Calibrate == quantizer.Self {
		var texts []text.WriteOptions
		own := k.calibrationText(k.tokens())
		for s := &own; s != nil; s = s.with {
			texts = append(texts, text.WriteOptions{Tokens: s.tokens, Window: window})
		}
		n = max(n, text.WriteBytes(m, texts))
	}
	return n + n/garbageShare
}

// layerBytes is the memory of folds, of imatrix and awq, and of the choice of bits, for the largest layer:
// its float32 weights, the hidden states before and behind it, and what an algorithm adds.
func (j *quantizeJob) layerBytes(p *conversion.Plan) int64 {
	tokens := int64(calib.DefaultTokens)
	if j.calibration != nil {
		tokens = int64(j.calibration.tokens())
	}
	var wide, hidden, largest, streams int64
	layers := map[int]int64{}
	streams = 1
	for _, m := range p.Matrices() {
		layer := layerOf(m.Tensor)
		if layer < 0 {
			continue
		}
		size := int64(m.Rows) * int64(m.Cols)
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
	n := 4*layer + 4*tokens*hidden*streams // the float model's layer and the hidden states between two layers
	switch {
	case j.folding != nil:
		n += 12*largest + 4*tokens*wide
	case j.calibration != nil:
		n += calib.ChoiceBytes(hidden + wide)
	}
	return n
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

// String describes the estimate in a line.
func (e *Estimate) String() string {
	threads := "1 thread"
	if e.Threads != 1 {
		threads = fmt.Sprintf("%d threads", e.Threads)
	}
	megabytes := func(n int64) int64 { return max(1, (n+500_000)/1_000_000) }
	s := fmt.Sprintf("about %s on %s, %d MB of private memory", roughly(e.Seconds), threads, megabytes(e.MemoryBytes))
	if e.DiskBytes > 0 {
		s += fmt.Sprintf(", up to %d MB on disk until the job ends", megabytes(e.DiskBytes))
	}
	return s
}

// roughly formats a time with as many digits as an estimate deserves.
func roughly(seconds float64) string {
	switch {
	case seconds < 1.5:
		return "a second"
	case seconds < 90:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < 90*60:
		return fmt.Sprintf("%.0f min", seconds/60)
	}
	return fmt.Sprintf("%.1f h", seconds/3600)
}

// codesCost is the cost of choosing, packing and writing a plan's codes without calibration: CPU
// time of single threads on 61M weights at 4 bits.
func (j *quantizeJob) codesCost() (cost float64) {
	for _, m := range j.plan.Matrices() {
		cost += codeCost(m.Scheme) * float64(m.Rows) * float64(m.Cols)
	}
	return cost / 1e9
}

// codeCost is the cost of a weight's code while the file is written.
func codeCost(s rounding.Scheme) float64 {
	switch a := s.Algorithm; {
	case a == gqf.AlgorithmRTN, a.ByLayers(): // whose codes were chosen before
		return perPacked
	case a == gqf.AlgorithmHQQ:
		return perHQQ
	case s.Fractions:
		return perFractions
	case s.Mapping == gqf.MappingAsymmetric:
		return perZeroSearch
	}
	return perSearch
}
