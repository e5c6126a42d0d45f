package gq

import (
	"cmp"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/alloc"
	"github.com/lowbit-go/gq/quantizer/calib"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/tune"
)

// Costs of stages are estimates in units of 1e9 multiply-adds of a forward pass with float32
// weights. They only have to tell how much longer one stage takes than another: the speed is
// measured while stages run.
//
// A unit takes .026 s of CPU time on an AMD EPYC with AVX-512 (unitSeconds): imatrix takes 13 s for
// a layer of Llama-3.2-1B and 8192 tokens. perSolve follows from 74 s of gptq-ft on that layer, the user
// and system time of a job with --threads 2 less two passes of the held-out text, measured when the
// error of the search was still computed to its end:
//
//	gq synth --preset llama-3.2-1b --layers 1 --vocab 1024 D && cp ../shared/models/books1.3M-bf16/tokenizer*.json D
//	time gq quantize D --bits 4 --algorithm gptq-ft --calibrate ../shared/text/books-heldout.txt --threads 2 -o model.gqf
//
// The costs of codes are the user and system time of this job, the least of three, on 62.9M weights:
//
//	time gq quantize D --bits 4 --threads 1 -o model.gqf --algorithm rtn|search|hqq
//	time gq quantize D --bits 4 --threads 1 -o model.gqf --mapping asymmetric [--target torchao]
//
// perWritten is the CPU time of passes of 16 tokens with the shapes of Llama-3.2-1B. perFolded and
// perCompare were measured with a Llama of 19M weights and are off by up to a factor of 2.
const (
	perPass       = 1.0  // of a weight and a token: a forward pass of whole sequences
	perWritten    = 0.8  // of a weight and a token: 16 sequences or more, one token at a time
	perPacked     = 80   // of a weight: to round it, or to read its codes, to pack and to write them (2.1 ns)
	perSearch     = 175  // of a weight: to search a scale first (4.5 ns)
	perZeroSearch = 325  // of a weight: to search a scale and a zero point first (8.4 ns)
	perFractions  = 260  // of a weight: to search a scale and a fractional zero point first (6.7 ns)
	perHQQ        = 1380 // of a weight: hqq (36 ns)
	perSolve      = 4    // of a weight and a column: gptq and gptq-ft
	perFolded     = 1400 // of a weight and a step
	perCompare    = 500  // of a weight that is compared with its codes
)

// compared is how many files are calibrated if two allocations are compared.
const compared = 2

// evaluations is how many files a search for a divergence usually measures.
const evaluations = 5

// weights is the number of weights that a plan quantizes.
func weights(p *conversion.Plan) (n float64) {
	for _, m := range p.Matrices() {
		n += float64(m.Rows) * float64(m.Cols)
	}
	return n
}

// textCost is the cost of a text that the model writes.
func textCost(p *conversion.Plan, tokens int) float64 {
	return perWritten * weights(p) * float64(tokens) / 1e9
}

func (j *quantizeJob) foldCost() float64 {
	steps := 1.0 // the comparison of logits
	r := j.o.Recipe
	both := r.Rotate && r.Equalize // equalizes twice
	for _, step := range []bool{r.Rotate, r.Equalize, r.Equalize, both, both, j.folding.awq, j.folding.awq} {
		if step {
			steps++
		}
	}
	return perFolded * weights(j.plan) * steps / 1e9
}

// foldChoiceCost is the cost of measuring the candidates of fold auto: three are folded, by eight
// steps and three comparisons, and all are searched and run.
func (j *quantizeJob) foldChoiceCost() float64 {
	n := float64(len(foldCandidates))
	return weights(j.plan) * (perFolded*11 + n*perSearch + (n+1)*perPass*foldTokens) / 1e9
}

// probeCost is the cost of choosing bits: a pass of the float model, a pass forward and backward, which
// takes as long as 3.3 passes, the probes at each width, and two searches for each width, for the errors
// and for the probes. A probe of a kind of tensor is a pass, with the lm_head of both models. A probe of
// a single tensor is a pass from its layer on.
func (j *quantizeJob) probeCost() float64 {
	kinds := map[string]bool{}
	for _, m := range j.plan.Matrices() {
		kinds[alloc.Kind(m.Tensor)] = true
	}
	widths, probes := 1.0, 1.2*float64(len(kinds))
	if j.o.Recipe.Quality.ManyProbes() {
		widths, probes = 4, float64(len(j.plan.Matrices()))/2
	}
	passes := 4.3 + widths*probes
	return weights(j.plan) * (perPass*float64(j.choiceTokens())*passes + 2*perSearch*widths) / 1e9
}

func (j *quantizeJob) calibrationCost() float64 {
	tokens := float64(cmp.Or(j.o.Recipe.CalibrateTokens, calib.DefaultTokens))
	if !j.calibration.solved {
		return j.imatrixCost(tokens)
	}
	cost := 0.0
	for _, m := range j.plan.Matrices() {
		streams := 1.0
		if m.Scheme.Algorithm == gqf.AlgorithmGPTQFT {
			streams = 2
		}
		rows, cols := float64(m.Rows), float64(m.Cols)
		cost += solveCost(rows, cols, tokens, streams)
	}
	return cost
}

// imatrixCost is the cost of collecting second moments, unless they are in files, and of rounding each
// row twice to choose one of the roundings.
func (j *quantizeJob) imatrixCost(tokens float64) (cost float64) {
	for _, m := range j.plan.Matrices() {
		per := 2 * codeCost(m.Scheme)
		if j.o.Recipe.Calibrate != "" {
			per += perPass * (tokens + calib.ChoiceTokens)
		}
		cost += per * float64(m.Rows) * float64(m.Cols)
	}
	return cost / 1e9
}

// solveCost is the cost of choosing a matrix's codes by gptq, or by gptq-ft, which has two streams
// of hidden states and sums the differences between them.
func solveCost(rows, cols, tokens, streams float64) float64 {
	passes := rows * cols * tokens * (2*streams - 1) * perPass
	hessian := cols * cols * tokens / 2
	return (passes + hessian + rows*cols*cols*perSolve) / 1e9
}

// cost is the cost of tuning: each token of a step passes the teacher, and the student forward, again
// for its layers' derivatives, and backward twice, for inputs and for weights. Some tokens are held
// out and pass the student in each measurement.
func (k *tuning) cost() float64 {
	steps := float64(tune.DefaultSteps(k.kind))
	held := float64(k.length()) / 8
	passes := steps*tune.StepTokens*5 + (tune.Evaluations+1)*held
	if k.kind == quantizer.TuneBlocks { // a layer forward and backward, and both models once
		passes += tune.BlockSteps*tune.StepTokens*3 + float64(2*k.length()) + 3*held
	}
	return perPass * weights(k.plan) * passes / 1e9
}

// plannedStages lists the stages of the job, or with dry the stages of its plan. A resumed job
// skips finished stages.
func (j *quantizeJob) plannedStages(dry bool) (list []*planned) {
	r := j.o.Recipe
	together := false // the model writes the text to measure on with the text for calibration
	self := r.Calibrate == quantizer.Self && !(dry && j.o.Budget == nil && !r.Auto)
	if self && j.calibration != nil || (j.o.Budget != nil || r.Auto) && (self || r.Calibrate == "") {
		tokens := j.choiceTokens()
		switch {
		case j.calibration != nil && r.Calibrate != "":
			tokens = j.calibration.tokens()
			if s := j.calibrationText(tokens); s.with != nil {
				tokens += s.with.tokens
				together = true
			}
		case j.o.Budget == nil:
			tokens = foldTokens
		}
		list = append(list, &planned{stageText, textCost(j.plan, tokens), 1})
	}
	if j.folding != nil && r.Auto {
		list = append(list, &planned{stageFoldChoice, j.foldChoiceCost(), 1})
	}
	if j.folding != nil {
		list = append(list, &planned{stageFold, j.foldCost(), 1})
	}
	held := func() { // text to measure on
		if self && !together {
			list = append(list, &planned{stageHeldText, textCost(j.plan, j.calibration.heldOutTokens()), 1})
		}
	}
	measured := j.measuredFiles(evaluations)
	if j.o.Budget != nil {
		list = append(list, &planned{stageProbe, j.probeCost(), 1})
	}
	if measured == compared && r.Calibrate != "" {
		held()
	}
	if j.calibration != nil && (!dry || measured > 0) {
		runs := max(measured, 1)
		list = append(list, &planned{stageCalibrate, j.calibrationCost(), runs})
	}
	if k := j.tuning; k != nil && !dry {
		if cmp.Or(r.TuneText, quantizer.Self) == quantizer.Self {
			list = append(list, &planned{stageTuneText, textCost(j.plan, k.tokens()), 1})
		}
		list = append(list, &planned{stageTune, k.cost(), 1}, &planned{stageCompare, 3 * perPass * weights(j.plan) * float64(k.length()) / 8 / 1e9, 1})
	}
	if !dry {
		list = append(list, &planned{stageQuantize, j.codesCost(), 1})
	}
	if k := j.calibration; k != nil && !dry && r.Calibrate != "" {
		if measured != compared {
			held()
		}
		// Both models read the text.
		list = append(list, &planned{stageHeldOut, 2 * perPass * weights(j.plan) * float64(k.heldOutTokens()) / 1e9, 1})
	}
	if j.measured != nil {
		list = append(list, accuracyStages(j.measured, weights(j.plan))...)
	}
	return list
}

// accuracyStages lists the stages of measuring so many weights, with the names of package accuracy.
func accuracyStages(j *accuracy.Job, weights float64) []*planned {
	list := []*planned{{"comparing tensors", perCompare * weights / 1e9, 1}}
	if j.Parity {
		list = append(list, &planned{"checking kernels", 0, 1})
	}
	if j.Remote != nil {
		list = append(list, &planned{"checking kernels of another build", 0, 1})
	}
	if j.WritesText() {
		const tokens = accuracy.WrittenTokens
		writing := &planned{"writing text to measure on", perWritten * weights * tokens / 1e9, 1}
		list = append([]*planned{writing}, append(list, &planned{"scoring", 2 * perPass * weights * tokens / 1e9, 1})...)
	}
	if j.Saved != nil {
		return append(list, &planned{"scoring", perPass * weights * float64(j.Saved.File.Tokens) / 1e9, 1})
	}
	if len(j.Texts) > 0 {
		size := 0
		for _, t := range j.Texts {
			size += len(t.Data)
		}
		// A token of English has about four bytes, and both models read it.
		list = append(list, &planned{"scoring", 2 * perPass * weights * float64(size) / 4 / 1e9, 1})
	}
	if tokens := choiceTokens(j); tokens > 0 {
		list = append(list, &planned{"answering", 2 * perPass * weights * tokens / 1e9, 1})
	}
	return list
}

// choiceTokens estimates the tokens of questions: a token of English has about four bytes, and a
// prompt is read once for all endings.
func choiceTokens(j *accuracy.Job) float64 {
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
