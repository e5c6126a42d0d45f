package gq

import (
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/alloc"
	"github.com/lowbit-go/gq/internal/job/calib"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/tune"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/measure"
	"github.com/lowbit-go/gq/quantizer"
)

// Costs of stages are estimates in units of 1e9 multiply-adds of a forward pass with float32
// weights. They only have to tell how much longer one stage takes than another: the speed is
// measured while stages run.
//
// A unit takes .026 s of CPU time on an AMD EPYC with AVX-512 (unitSeconds), and a speed relates
// this CPU to the EPYC. The constants are user and system time of stages, measured with one thread
// by getrusage, because the wall time of a busy machine says little: stories260K, books1.3M,
// books3.7M, and a synthetic Llama of 23.6M weights that the machine shared with others (gq synth
// --hidden 1024 --intermediate 2816 --layers 2 --heads 16 --kv-heads 4 --vocab 512). rtn, search
// and asymmetric mappings were measured with 62.9M weights, perCompare with a Llama of 19M
// weights. The constants of gptq fit 63 jobs with 1024 to 8192 tokens by factors of .75 to 1.2:
// these models, Llamas of 11M and 14M weights (hidden 576 and 512), a mixture of 8 experts and a
// layer of Llama-3.2-1B.
const (
	perPass    = .35 // of a weight and a token: a forward pass of whole sequences
	perWritten = .7  // of a weight and a token of sequences that are written, one token at a time
	perStep    = 4.1 // of a weight and a token of each of these sequences: to read the weights
	// of a byte beyond two for a weight, and such a token: to read F32 from memory (.15 ns)
	perWide = 5.7
	// of a pair of tokens and a number of a head, of at most 32: attention (.3 ns)
	perScore      = 11
	perKey        = 60    // of a pair of tokens, if they are written one at a time (1.6 ns)
	perDrawn      = 350   // of a token of the vocabulary and a written token (9 ns)
	perLogit      = 200   // of a token of the vocabulary and a token of a pass (5 ns)
	perPacked     = 80    // of a weight: to round it, to pack and to write it (2.1 ns)
	perStored     = 180   // of a weight: to read its code, to check, to pack and to write it
	perSearch     = 175   // of a weight: to search a scale first (4.5 ns)
	perWeighed    = 440   // of a weight: to search a scale with second moments first (11 ns)
	perZeroSearch = 325   // of a weight: to search a scale and a zero point first (8.4 ns)
	perFractions  = 260   // of a weight: to search a scale and a fractional zero point first (6.7 ns)
	perInput      = 110   // of a number that gptq collects for a Hessian (3 ns)
	perSolve      = .55   // of a multiply-add of gptq and gptq-ft, outside of passes and Hessians
	perSolved     = 2550  // of a weight: gptq and gptq-ft, to choose grids and codes (66 ns)
	perSettled    = 3500  // of a weight: to settle integer sub-scales and codes (90 ns)
	perRefined    = 6000  // of a weight: to refine codes and scales (160 ns)
	perRefine     = 4.4   // of a weight and a column: to refine them
	perChoice     = 105   // of a choice of a relaxed code and a step of its layer (2.8 ns)
	perFolded     = 600   // of a weight and a step (16 ns)
	perAWQ        = 14000 // of a weight: 20 searches (360 ns), without the outputs of 512 tokens
	perAWQRow     = 1.2e6 // of a row: what 20 searches take for each row (31 us)
	perCompare    = 500   // of a weight that is compared with its codes
	perPlanned    = .9e6  // of a tensor and a plan of an option, to find its bytes (23 us)
	perRow        = 150e3 // of a row that is rounded to compare options (4 us)
	perOption     = 290   // of a weight of such a row (7.5 ns)
	perWeighedRow = 30e3  // of a row that is rounded with weights of columns (.8 us)
	perWeighedOpt = 900   // of a weight of such a row (23 ns)
	perTokenizer  = 1000  // of a byte of tokenizer.json (26 ns)
	perJob        = 1.2e9 // to start, to open files and to sync (.03 s)
)

// pointCosts are of a weight, to search scales with points of a lattice (.37 to 1 us). gptq and
// gptq-ft take three times as much: two searches, and codes that the nearest points are found for.
var pointCosts = map[string]float64{"IQ2_XXS": 16e3, "IQ2_XS": 17e3, "IQ2_S": 14e3, "IQ3_XXS": 37e3, "IQ3_S": 22e3}

// pointsMean is the mean of pointCosts.
const pointsMean = 21200

func weights(p *fromcheckpoint.Plan) (n float64) {
	for _, m := range p.Matrices() {
		n += float64(m.Rows) * float64(m.Cols)
	}
	return n
}

// active is the number of weights in layers and in the lm_head that a token passes: of the experts,
// those that it is sent to.
func (v view) active() (layers, head float64) {
	share := 1.0
	if c, err := arch.ParseForward(v.config); err == nil && c.Experts != nil {
		share = float64(c.Experts.PerToken) / float64(c.Experts.Count)
	}
	for _, m := range v.plan.Matrices() {
		switch w := float64(m.Rows) * float64(m.Cols); m.Role {
		case gqf.RoleExpert:
			layers += w * share
		case gqf.RoleEmbedding, gqf.RoleHead: // alike; a tied embedding is the lm_head
			head = w
		default:
			layers += w
		}
	}
	return layers, head
}

// attentionCost is the cost of a token's attention to half a window, and of the probability of each
// token of the vocabulary if the token is written. 0: gq cannot run the model.
func (v view) attentionCost(perPair, perLogit float64) float64 {
	c, err := arch.ParseForward(v.config)
	if err != nil {
		return 0
	}
	pairs := float64(len(c.Layers)*c.Heads*text.WindowOf(*c)) / 2
	return (perScore*float64(min(c.HeadDim, 32))+perPair)*pairs + perLogit*float64(c.VocabSize)
}

// passCost is the cost of forward passes of so many tokens in whole sequences, with logits.
func (v view) passCost(tokens float64) float64 {
	layers, head := v.active()
	return (product(perPass)*(layers+head) + v.attentionCost(0, perLogit)) * tokens / 1e9
}

// headCost is the cost of the logits of so many tokens.
func (v view) headCost(tokens float64) float64 { return v.passCost(tokens) - v.layersCost(tokens) }

// layersCost is passCost without logits.
func (v view) layersCost(tokens float64) float64 {
	layers, _ := v.active()
	return (product(perPass)*layers + v.attentionCost(0, 0)) * tokens / 1e9
}

// textCost is the cost of a text that the model writes.
func (v view) textCost(tokens int) float64 {
	slots := 1.0
	if c, err := arch.ParseForward(v.config); err == nil {
		slots = float64(text.WriteOptions{Tokens: tokens, Window: text.WindowOf(*c)}.Slots())
	}
	layers, head := v.active()
	step := perStep * (layers + head)
	if bytes := float64(v.plan.SourceBytes); bytes > packedWriter {
		step += perWide * max(0, bytes-2*weights(v.plan))
	}
	return (perWritten*(layers+head) + step/slots + v.attentionCost(perKey, perDrawn)) * float64(tokens) / 1e9
}

// foldCost is the cost of the steps of a fold, and of AWQ's factors.
func (v view) foldCost() float64 {
	steps := 1.0 // the comparison of logits
	r := v.opts.Recipe
	both := r.Rotate && r.Equalize // equalizes twice
	for _, step := range []bool{r.Rotate, r.Equalize, r.Equalize, both, both} {
		if step {
			steps++
		}
	}
	cost := (perFolded*weights(v.plan)*steps + perJob) / 1e9
	if v.calibration.awq {
		for _, m := range v.plan.Matrices() {
			if layerOf(m.Tensor) >= 0 { // AWQ's factors are of layers
				cost += float64(m.Rows) * ((perAWQ+product(20*512*perPass))*float64(m.Cols) + perAWQRow) / 1e9
			}
		}
		cost += v.layersCost(float64(v.calibration.tokens))
	}
	return cost
}

// foldChoiceCost is the cost of measuring the candidates of fold auto: three are folded, by eight
// steps and three comparisons, and all are searched and run.
func (v view) foldChoiceCost() float64 {
	n := float64(len(foldCandidates))
	return (weights(v.plan)*(perFolded*11+n*perSearch)+2*n*perJob)/1e9 + v.passCost((n+1)*foldTokens)
}

// probeCost is the cost of choosing bits: plans of all options, for the limits and for the choice,
// a pass of the float model, a pass forward and backward (as long as 3.3 passes), the comparison of
// options on sampled rows, and the probes, with a search. A probe is a pass. Then files are
// written and measured.
func (v view) probeCost() float64 {
	kinds := map[string]bool{}
	options := float64(v.bounds.outline.Plans)
	compared := 2 * perPlanned * options * float64(len(v.plan.Tensors))
	row, option, search := float64(perRow), float64(perOption), float64(perSearch)
	if v.calibration.needed() {
		row, option, search = perWeighedRow, perWeighedOpt, perWeighed
	}
	for _, m := range v.plan.Matrices() {
		kinds[alloc.Kind(m.Tensor)] = true
		own := options * (row + option*float64(m.Cols))
		if v.o.Recipe.ForGGUF() && m.Cols%256 == 0 {
			own += pointsMean * float64(len(pointCosts)*m.Cols)
		}
		compared += float64(min(m.Rows, alloc.SampledRows)) * own
	}
	passes := 4.3 + float64(len(kinds))
	cost := v.passCost(float64(v.choiceTokens())*passes) + (weights(v.plan)*search+compared)/1e9
	files := float64(v.measuredFiles(evaluations))
	if files == 0 {
		return cost
	}
	// The float model and the first file's float32 activations are two more passes.
	return cost + files*v.codesCost() + v.passCost(float64(v.heldOutTokens())*(files+2))
}

func (v view) calibrationCost() float64 {
	tokens := float64(v.calibration.tokens)
	if !v.calibration.solved {
		return v.imatrixCost(tokens)
	}
	m, err := forward.OpenCheckpoint(v.source.plan.SourceDir(), forward.Options{Threads: v.o.Threads})
	if err != nil { // the job will fail
		return 0
	}
	defer m.Close()
	_, e := calib.Estimate(v.plan, m, v.calibration.tokens, text.WindowOf(m.Config()), calib.Options{Refine: v.calibration.refine, Threads: v.o.Threads})
	chosen := float64(calib.Work(v.plan))
	cost := e.Inputs*perInput + (e.Passes+e.Sums)*product(perPass) + e.Solves*product(perSolve) + chosen*perSolved
	for _, m := range v.plan.Matrices() {
		n := float64(m.Rows) * float64(m.Cols)
		if m.Scheme.Algorithm.ByLayers() {
			cost += 3 * pointCosts[m.Scheme.Type.String()] * n
		}
		if m.Scheme.SubScales() && !v.calibration.refine {
			cost += perSettled * n
		}
	}
	cost += 3 * v.chosenPoints()
	if v.calibration.refine {
		cost += chosen*perRefined + e.Refines*perRefine
	}
	return cost/1e9 + v.attentionCost(0, 0)*tokens*e.Models/1e9
}

// chosenPoints is the cost of searches with points if a choice of types will take some: in rows of
// whole blocks, of all weights up to 3.25 bits per weight, of none from 4.25 on.
func (v view) chosenPoints() (cost float64) {
	b := v.o.Budget
	if b == nil || !v.o.Recipe.ForGGUF() || b.MaxKL > 0 {
		return 0
	}
	bits := b.BitsPerWeight
	if least := v.bounds.outline.Least; b.FileBytes > 0 {
		bits = least.BitsPerWeight + float64(b.FileBytes-least.OutputBytes)*8/weights(v.plan)
	}
	for _, m := range v.plan.Matrices() {
		if m.Cols%256 == 0 && m.Role != gqf.RoleEmbedding {
			cost += pointsMean * min(max(4.25-bits, 0), 1) * float64(m.Rows) * float64(m.Cols)
		}
	}
	return cost
}

// imatrixCost is the cost of collecting second moments, unless they are in files, and of rounding
// each row twice to choose the better rounding.
func (v view) imatrixCost(tokens float64) (cost float64) {
	for _, m := range v.plan.Matrices() {
		if m.Scheme.Algorithm.Calibrated() {
			cost += 2 * codeCost(m.Scheme) * float64(m.Rows) * float64(m.Cols) / 1e9
		}
	}
	if v.calibration.onText {
		cost += v.layersCost(tokens + calib.ChoiceTokens)
	}
	return cost
}

// codesCost is the cost of choosing, packing and writing a plan's codes without calibration: CPU
// time of single threads on 61M weights at 4 bits.
func (v view) codesCost() (cost float64) {
	for _, m := range v.plan.Matrices() {
		cost += codeCost(m.Scheme) * float64(m.Rows) * float64(m.Cols)
	}
	if !v.calibration.needed() {
		cost += v.chosenPoints()
	}
	return (cost + perJob + perTokenizer*float64(v.tokenizerBytes())) / 1e9
}

// tokenizerBytes is the size of the checkpoint's tokenizer.json; 0: there is none.
func (v view) tokenizerBytes() int64 {
	info, err := os.Stat(filepath.Join(v.source.plan.SourceDir(), "tokenizer.json"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// codeCost is the cost of a weight's code while the file is written.
func codeCost(s rounding.Scheme) float64 {
	switch a := s.Algorithm; {
	case a == gqf.AlgorithmRTN:
		return perPacked
	case a.ByLayers(): // its codes were chosen before
		return perStored
	case s.Points() != nil:
		return pointCosts[s.Type.String()]
	case a.Calibrated():
		return perWeighed
	case s.Fractions:
		return perFractions
	case s.Mapping == gqf.MappingAsymmetric:
		return perZeroSearch
	}
	return perSearch
}

// tuneCost is the cost of tuning: each token of a step passes the teacher, and the student forward,
// again for its layers' derivatives, and backward twice, for inputs and for weights. Some tokens
// are held out and pass the student in each measurement.
func (v view) tuneCost() float64 {
	k := v.tuning
	held := float64(tune.HeldOut(k.length))
	trains := k.length - tune.HeldOut(k.length)
	cost := 0.0
	if steps := tune.Steps(v.plan, tune.Options{Kind: k.kind, Steps: k.steps}, trains); steps > 0 {
		cost = v.passCost(float64(steps)*tune.StepTokens*5.5 + (tune.Evaluations+1)*held)
	}
	if !tune.Layered(k.kind) {
		return cost
	}
	// A layer forward and backward, without the first inputs' gradient; both models once, and the
	// untuned model on held-out text; five measurements; the divergence before and after; and the
	// logits of codes.
	steps := float64(tune.LayerSteps(trains))
	return cost + v.layersCost(steps*tune.StepTokens*2.5+float64(2*k.length)+6*held) + v.headCost(3*held) +
		perChoice*steps*float64(tune.Choices(v.plan))/1e9
}

// compareCost is the cost of comparing tuned and untuned codes: both are written to a file, and run
// on held-out text as the float model is.
func (v view) compareCost() float64 {
	return 2*v.codesCost() + v.passCost(3*float64(tune.HeldOut(v.tuning.length)))
}

// ownText reports whether the model writes the text, or its rest, if a text is needed.
func (v view) ownText() bool { return named(v.o.Recipe.Calibrate) == "" || v.calibration.own > 0 }

// writtenText describes the text that the model writes.
func (v view) writtenText() *selfText {
	if !v.calibration.onText && v.o.Budget == nil {
		return &selfText{tokens: foldTokens}
	}
	s := v.calibrationText(v.seenTokens())
	return &s
}

// textTokens is the length of the text that the model writes, with the held-out text.
func (v view) textTokens() (n int) {
	for s := v.writtenText(); s != nil; s = s.with {
		n += s.tokens
	}
	return n
}

// folds reports whether the recipe folds the checkpoint. A plan does not fold for awq, and states
// the cost.
func (v view) folds() bool { return v.opts.Recipe.Fold != (quantizer.Fold{}) }

// mayFold reports whether the job folds the checkpoint, or has tried to.
func (v view) mayFold() bool { return v.folds() || v.calibration.awq || v.o.Recipe.Auto }

func (v view) foldChoices() int { return once(v.o.Recipe.Auto) }

// accuracyStages lists the stages of measuring so many weights, with the names of package accuracy.
func accuracyStages(j *measure.Job, weights float64) []*planned {
	list := []*planned{{"comparing tensors", perCompare * weights / 1e9, 1}}
	if j.Parity {
		list = append(list, &planned{"checking kernels", 0, 1})
	}
	if j.WritesText() {
		const tokens = measure.WrittenTokens
		writing := &planned{"writing text to measure on", (perWritten + perStep/16) * weights * tokens / 1e9, 1}
		list = append([]*planned{writing}, append(list, &planned{"scoring", 2 * product(perPass) * weights * tokens / 1e9, 1})...)
	}
	if j.Saved != nil {
		return append(list, &planned{"scoring", product(perPass) * weights * float64(j.Saved.File.Tokens) / 1e9, 1})
	}
	if len(j.Texts) > 0 {
		size := 0
		for _, t := range j.Texts {
			size += len(t.Data)
		}
		// A token of English has about four bytes, and both models read it.
		list = append(list, &planned{"scoring", 2 * product(perPass) * weights * float64(size) / 4 / 1e9, 1})
	}
	if tokens := choiceTokens(j); tokens > 0 {
		list = append(list, &planned{"answering", 2 * product(perPass) * weights * tokens / 1e9, 1})
	}
	return list
}

// choiceTokens estimates the tokens of questions: a token of English has about four bytes, and a
// prompt is read once for all endings.
func choiceTokens(j *measure.Job) float64 {
	size := 0
	for _, c := range j.Choices {
		for i := range c.Questions {
			size += len(c.Questions[i].Prompt)
			for _, e := range c.Questions[i].Endings {
				size += len(e)
			}
		}
	}
	return float64(size) / 4
}
