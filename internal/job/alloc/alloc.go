package alloc

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Job chooses bits for the tensors of a checkpoint. The first five fields must be set.
type Job struct {
	Checkpoint *safetensors.Checkpoint
	Config     []byte // config.json
	Options    conversion.Options
	// Model is the checkpoint's model. While a Job runs, the model's tensors are replaced in turn.
	Model *forward.Model
	// Reference has the float model's predictions of a text, for divergences. The second moments of
	// inputs are collected on the same sequences.
	Reference *eval.Reference
	// MinBits and MaxBits bound the bits. Default: 2 and 8.
	MinBits, MaxBits int
	// Groups are the group sizes. Default: 32, 64, 128; with fractional zero points 48 and 96 too.
	Groups []int
	// Calibration is an account of calibration that files have room for. Default: none.
	Calibration *provenance.Calibration
	// Tuning is an account of tuning that files have room for. Default: none.
	Tuning *provenance.Tuning
	// EmbeddingFixed leaves the embedding to the recipe. Default: false.
	EmbeddingFixed bool
	// Work stores the results of probes for a later job with the same probes. Default: none.
	Work *workdir.Dir
	// Resumed is called with the number of probes in Work, if any, and of all probes. Default: none.
	Resumed func(probes, of int)
	// Start is called with the number of steps; Progress, by several goroutines, with steps done.
	Start    func(steps int)
	Progress func(n int)

	facts  *arch.Config   // of Config
	layers map[string]int // by tensor of a linear layer in a decoder layer
}

var (
	defaultGroups  = []int{32, 64, 128}
	fractionGroups = []int{32, 48, 64, 96, 128}
)

func (j *Job) progress(n int) {
	if j.Progress != nil {
		j.Progress(n)
	}
}

// Sensitivities is a checkpoint with the bytes and the predicted KL of each tensor's options.
type Sensitivities struct {
	Decisions []*Decision
	// Measured counts the probes that were measured, not resumed.
	Measured int

	job     Job
	weights int64 // quantized weights, fixed tensors included
	fixed   int64 // bytes of quantized tensors that are not decisions
}

// layOut finds the decisions and the bytes of their options, without reading weights.
func (j Job) layOut() (*Sensitivities, error) {
	j.MinBits = cmp.Or(j.MinBits, 2)
	j.MaxBits = cmp.Or(j.MaxBits, 8)
	facts, err := arch.ParseConfig(j.Config)
	if err != nil {
		return nil, err
	}
	j.facts, j.layers = facts, layersOf(j.Model)
	if j.Options.Assets == nil {
		j.Options.Assets = new(fromcheckpoint.AssetCache)
	}
	plan, err := conversion.NewPlan(j.Checkpoint, j.Config, j.Options)
	if err != nil {
		return nil, err
	}
	p := &Sensitivities{}
	if p.Decisions, err = j.decisions(plan); err != nil {
		return nil, err
	}
	if err := j.options(p.Decisions); err != nil {
		return nil, err
	}
	p.job = j
	p.count(plan)
	return p, nil
}

func (j Job) Probe(ctx context.Context) (*Sensitivities, error) {
	p, err := j.layOut()
	if err != nil {
		return nil, err
	}
	j = p.job
	if j.Start != nil {
		steps := j.errorSteps(p.Decisions)
		for _, g := range j.groupsOf(p.Decisions) {
			steps += j.probeSteps(g)
		}
		j.Start(steps)
	}
	return p, j.Checkpoint.Guard(func() error { return j.measure(ctx, p) })
}

// CheckBitsPerWeight returns a *TargetError if the smallest allocation, a, exceeds bpw.
func (a *Allocation) CheckBitsPerWeight(bpw float64) error {
	if a.BitsPerWeight > bpw {
		least := math.Ceil(a.BitsPerWeight*1000) / 1000
		return &TargetError{fmt.Sprintf("%g bits per weight: the least that the tensors can take is %.3f: ask for that, or drop rules, groups and layouts that take more", bpw, least)}
	}
	return nil
}

// CheckFileBytes returns a *TargetError if the file of the smallest allocation, a, exceeds bytes.
func (a *Allocation) CheckFileBytes(bytes int64) error {
	if a.OutputBytes > bytes {
		return &TargetError{fmt.Sprintf("a file of %d bytes: the smallest has %d: ask for that, or drop rules, groups and layouts that take more", bytes, a.OutputBytes)}
	}
	return nil
}

func (j *Job) measure(ctx context.Context, p *Sensitivities) error {
	groups := j.groupsOf(p.Decisions)
	known, err := j.openStored(p.Decisions, len(groups))
	if err != nil {
		return err
	}
	var im *importances
	if known.Errors != nil && len(known.KL) == len(groups) {
		j.progress(j.errorSteps(p.Decisions))
	} else if im, err = j.importances(ctx); err != nil {
		return err
	} else if known.Errors != nil {
		j.progress(len(p.Decisions))
	} else {
		if known.Errors, err = j.errors(ctx, p.Decisions, im); err != nil {
			return err
		}
		if err := known.put(); err != nil {
			return err
		}
	}
	of := func(d *Decision) *tensorErrors { return known.Errors[slices.Index(p.Decisions, d)] }
	for i, g := range groups {
		if i < len(known.KL) {
			j.progress(j.probeSteps(g))
		} else {
			kl, err := j.probe(ctx, g, im)
			if err != nil {
				return err
			}
			known.KL = append(known.KL, kl)
			if err := known.put(); err != nil {
				return err
			}
			p.Measured++
		}
		g.divide(known.KL[i], of)
	}
	for i, d := range p.Decisions {
		d.predict(known.Errors[i])
	}
	return nil
}

func (p *Sensitivities) count(base *fromcheckpoint.Plan) {
	open := map[string]bool{}
	for _, d := range p.Decisions {
		for _, t := range d.Tensors {
			open[t] = true
		}
	}
	for _, t := range base.Tensors {
		if t.Action != plan.ActionQuantize {
			continue
		}
		n := int64(1)
		for _, v := range t.Shape {
			n *= v
		}
		p.weights += n
		if !open[t.Name] {
			p.fixed += t.Bytes
		}
	}
}

// Row is a row of an allocation's table.
type Row struct {
	Tensor string `json:"tensor"` // with * for the experts of a layer
	Bits   int    `json:"bits"`
	Group  int    `json:"group"`          // 0: per channel
	Type   string `json:"type,omitempty"` // of GGUF files, for target gguf
	// Mapping is the mapping of the scheme; "" with a Type.
	Mapping string `json:"mapping,omitempty"`
	Bytes   int64  `json:"bytes"`
	// KL is the tensor's predicted share of the divergence.
	KL float64 `json:"predicted_kl"`
}

type Allocation struct {
	Rows []Row `json:"tensors"`
	// PayloadBytes and BitsPerWeight cover all quantized tensors. OutputBytes is the size of the file.
	PayloadBytes  int64   `json:"payload_bytes"`
	BitsPerWeight float64 `json:"bits_per_weight"`
	OutputBytes   int64   `json:"output_bytes"`
	// PredictedKL is the sum over the table, plus ActivationKL.
	PredictedKL float64 `json:"predicted_kl"`
	// ActivationKL is the part of int8 activations, by MaxKL and Best; probes have float32 ones.
	ActivationKL float64 `json:"activation_kl,omitempty"`
	// Rules precede the job's own rules.
	Rules []quantizer.Rule `json:"-"`
	// Plan is the job's plan with these rules.
	Plan *fromcheckpoint.Plan `json:"-"`
}

type TargetError struct{ msg string }

func (e *TargetError) Error() string { return e.msg }

func (p *Sensitivities) Bytes() (least, most int64) {
	for _, d := range p.Decisions {
		least += d.Options[d.hull[0]].Bytes
		most += d.Options[d.hull[len(d.hull)-1]].Bytes
	}
	return least, most
}

// Budget chooses options with payloads of at most so many bytes.
func (p *Sensitivities) Budget(bytes int64) (*Allocation, error) {
	chosen, ok := choose(p.Decisions, bytes)
	if !ok {
		least, _ := p.Bytes()
		return nil, &TargetError{fmt.Sprintf("%d bits take %d bytes", p.job.MinBits, least)}
	}
	return p.allocation(chosen)
}

// BitsPerWeight chooses options with at most bpw bits of payload per quantized weight.
func (p *Sensitivities) BitsPerWeight(bpw float64) (*Allocation, error) {
	a, err := p.Budget(int64(bpw*float64(p.weights)/8) - p.fixed)
	if _, short := errors.AsType[*TargetError](err); !short {
		return a, err
	}
	least, _ := p.Bytes()
	smallest, e := p.Budget(least)
	if e != nil {
		return nil, e
	}
	return nil, cmp.Or(smallest.CheckBitsPerWeight(bpw), err)
}

// FileBytes chooses options for a file of at most so many bytes.
func (p *Sensitivities) FileBytes(bytes int64) (*Allocation, error) {
	least, most := p.Bytes()
	smallest, err := p.Budget(least)
	if err != nil {
		return nil, err
	}
	if err := smallest.CheckFileBytes(bytes); err != nil {
		return nil, err
	}
	// The bytes outside the payload depend a little on the rules, because the file records the rules.
	// So the budget is adjusted until the file fits.
	best, budget := smallest, min(most, least+bytes-smallest.OutputBytes)
	for range 16 {
		a, err := p.Budget(max(budget, least))
		if err != nil {
			return nil, err
		}
		if a.OutputBytes <= bytes {
			if a.PredictedKL < best.PredictedKL {
				best = a
			}
			if a.OutputBytes+fileSlack >= bytes || a.PayloadBytes >= most+p.fixed {
				break
			}
		}
		next := min(most, a.PayloadBytes-p.fixed+bytes-a.OutputBytes)
		if next == budget {
			break
		}
		budget = next
	}
	return best, nil
}

// fileSlack is how many bytes a file may stay below its target before another allocation is tried.
const fileSlack = 64

func (p *Sensitivities) allocation(chosen []int) (*Allocation, error) {
	a := &Allocation{}
	for i, d := range p.Decisions {
		o := d.Options[chosen[i]]
		a.Rows = append(a.Rows, d.row(o))
		a.Rules = append(a.Rules, d.rules(o)...)
		a.PayloadBytes += o.Bytes
		a.PredictedKL += o.KL
	}
	a.PayloadBytes += p.fixed
	a.BitsPerWeight = packing.BitsPerWeight(a.PayloadBytes, p.weights)
	opts := p.job.Options
	opts.Rules = slices.Concat(a.Rules, opts.Rules)
	var err error
	if a.Plan, err = conversion.NewPlan(p.job.Checkpoint, p.job.Config, opts); err != nil {
		return nil, err
	}
	if a.OutputBytes, err = a.Plan.SizeWith(p.job.Calibration, p.job.Tuning); err != nil {
		return nil, err
	}
	return a, nil
}

// stored holds the errors of all decisions and the results of probes for a working directory.
type stored struct {
	Errors []*tensorErrors // in order of decisions; nil: not yet found
	KL     []float64       // of the first probes, in order of groups

	work *workdir.Dir // nil: nothing is stored
	key  string
}

const storedName = "probes"

// openStored reads the results of an earlier job with the same probes.
func (j *Job) openStored(list []*Decision, probes int) (*stored, error) {
	key, err := j.key(list)
	if err != nil {
		return nil, err
	}
	k := &stored{}
	if j.Work.GetJSON(storedName, key, k) && j.Resumed != nil {
		j.Resumed(len(k.KL), probes)
	}
	k.work, k.key = j.Work, key
	return k, nil
}

func (k *stored) put() error { return k.work.PutJSON(storedName, k.key, k) }

func (j *Job) key(list []*Decision) (string, error) {
	type probe struct {
		Name    string
		Tensors []string
		Heads   []string
		Scheme  rounding.Scheme
		Options []rounding.Scheme
		Solved  bool
	}
	var probes []probe
	for _, d := range list {
		p := probe{Name: d.Name, Tensors: d.Tensors, Heads: d.heads, Scheme: d.probeScheme(), Solved: d.solved}
		for _, o := range d.Options {
			p.Options = append(p.Options, o.scheme)
		}
		probes = append(probes, p)
	}
	return workdir.Key("probes", 7, j.Checkpoint.Stamps(), sha256.Sum256(j.Config), j.Reference.Sequences(), probes)
}
