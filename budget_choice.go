package gq

import (
	"crypto/sha256"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/alloc"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// PlannedChoice describes a choice of bits that is not made yet.
type PlannedChoice struct {
	// Tensors get bits, each from MinBits to MaxBits, and one of Groups; 0 is a group per channel.
	Tensors []string `json:"tensors"`
	MinBits int      `json:"min_bits"`
	MaxBits int      `json:"max_bits"`
	Groups  []int    `json:"groups"`
	// The target is between these limits, or beyond the greater one.
	LeastBitsPerWeight float64 `json:"least_bits_per_weight"`
	MostBitsPerWeight  float64 `json:"most_bits_per_weight"`
	LeastOutputBytes   int64   `json:"least_output_bytes"`
	MostOutputBytes    int64   `json:"most_output_bytes"`
	// Tokens is the length of the text that bits are chosen on. It is read once by the checkpoint's model,
	// once forward and backward, and once for each of Probes.
	Tokens int `json:"tokens"`
	Probes int `json:"probes"`
	// Files is the greatest number of files that are made and run on a text to compare them.
	Files int `json:"files"`
}

// plannedChoice describes the choice for the job's budget.
func (j *quantizeJob) plannedChoice() *PlannedChoice {
	o := j.outline
	return &PlannedChoice{
		Tensors: o.Tensors, MinBits: o.MinBits, MaxBits: o.MaxBits, Groups: o.Groups,
		LeastBitsPerWeight: o.Least.BitsPerWeight, MostBitsPerWeight: o.Most.BitsPerWeight,
		LeastOutputBytes: o.Least.OutputBytes, MostOutputBytes: o.Most.OutputBytes,
		Tokens: j.choiceTokens(), Probes: o.Probes, Files: j.measuredFiles(alloc.MostEvaluations),
	}
}

// measuredFiles is the number of files that are made and run to choose bits, if a search for a
// divergence measures so many.
func (j *quantizeJob) measuredFiles(search int) int {
	r := j.o.Recipe
	switch b := j.o.Budget; {
	case b == nil:
		return 0
	case b.MaxKL > 0:
		return search
	case j.calibration != nil && r.Mapping == gqf.MappingNone && !r.ForGGUF() && r.CheckpointFormat() == "":
		return compared
	}
	return 0
}

// storedChoice is a choice of bits in a working directory.
type storedChoice struct {
	Rows         []alloc.Row
	ActivationKL float64
	Source       string
	KL           *float64
	Evaluations  []alloc.Evaluation
	Warnings     []string // about the text
}

// bitsName is the entry of the working directory with the choice of bits.
const bitsName = "bits"

// choice returns the choice that an earlier job left in its working directory, or chooses. In a plan
// that writes nothing of the choice, it returns nil instead of choosing.
func (j *quantizeJob) choice() (*Allocation, error) {
	inputs, err := j.choiceInputs()
	if err != nil {
		return nil, err
	}
	// 2: the version of the choice. The size of the smallest file stands for files beside the weights.
	key, err := workdir.Key(bitsName, 2, inputs, j.o.Budget, j.outline.Least.OutputBytes)
	if err != nil {
		return nil, err
	}
	work := j.work
	if work == nil {
		work = workdir.Peek(j.dst + calibSuffix) // of Quantize
	}
	var stored storedChoice
	if j.o.CalibrateOut == "" && work.GetJSON(bitsName, key, &stored) { // else the text is needed
		if a, err := j.restored(&stored); a != nil || err != nil {
			j.resumed(work, "the choice of bits")
			return a, err
		}
	}
	if j.dry && j.o.SaveRecipe == "" && j.o.CalibrateOut == "" {
		return nil, nil
	}
	before := len(j.warnings)
	a, err := j.choose(inputs)
	if err != nil || j.work == nil {
		return a, err
	}
	return a, j.work.PutJSON(bitsName, key, storedChoice{a.Rows, a.ActivationKL, a.Source, a.KL, a.Evaluations, j.warnings[before:]})
}

// restored makes the allocation of a stored choice; nil if it does not fit the checkpoint.
func (j *quantizeJob) restored(s *storedChoice) (*Allocation, error) {
	out := &Allocation{Source: s.Source, KL: s.KL, Evaluations: s.Evaluations}
	err := j.withAllocJob(func(job alloc.Job) (err error) {
		out.Allocation, err = job.Restore(s.Rows, s.ActivationKL)
		return err
	})
	if err != nil || out.Allocation == nil {
		return nil, err
	}
	if j.calibration == nil || j.dry { // else calibration reads the text, and warns
		j.warnings = append(j.warnings, s.Warnings...)
	}
	return out, nil
}

// choiceInputs hashes everything that the measurements of a choice of bits depend on, except the texts
// that the model writes.
func (j *quantizeJob) choiceInputs() (string, error) {
	r := j.o.Recipe
	names := slices.Clone(r.Imatrix)
	if r.Calibrate != "" && r.Calibrate != quantizer.Self {
		names = append(names, r.Calibrate)
	}
	var hashes [][sha256.Size]byte
	for _, name := range names {
		data, err := files.ReadContext(j.ctx, name, max(files.MaxText, files.MaxImatrix))
		if err != nil {
			return "", err
		}
		hashes = append(hashes, sha256.Sum256(data))
	}
	return workdir.Key(j.original.SourceStamps(), r, j.o.Rules, j.o.Format, hashes)
}
