package alloc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/model/eval"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// Job is a checkpoint whose tensors are to get bits. The first five fields have to be set.
type Job struct {
	Checkpoint *safetensors.Checkpoint
	Config     []byte // config.json
	Options    conversion.Options
	// Model is the checkpoint's; its tensors are replaced one at a time while a Job runs.
	Model *model.Model
	// Reference is the float model's predictions of a text. Divergences are measured against it, and moments of inputs are
	// collected on its sequences.
	Reference *eval.Reference
	// MinBits and MaxBits bound the bits. Default: 2 and 8; without data, 1 bit destroys a model.
	MinBits, MaxBits int
	// Groups are those to choose from. Default: 32, 64, 128.
	Groups []int
	// Widths are the bits of probes, ascending. Default: 3. With 2, 3, 4 and 5 the choice loses up to a tenth less at 2 and
	// 3 bits, and next to nothing less at 4; it takes four times as long.
	Widths []int
	// Calibration is an account of calibration that the sizes of files have room for. Default: none.
	Calibration *conversion.Calibration
	// TableFixed leaves the table of tokens as the recipe has it. Default: false.
	TableFixed bool
	// Work keeps what probes measured; a job with the same probes resumes from them. Default: nothing is kept.
	Work *workdir.Dir
	// Resumed is called with the number of probes that Work holds and the number of all, if it holds any. Default: none.
	Resumed func(probes, of int)
	// Progress is called, from several goroutines, with the number of steps done since the last call; Start with how many
	// there will be.
	Start    func(steps int)
	Progress func(n int)

	block [2]int // of FP8 scales
}

func (j *Job) progress(n int) {
	if j.Progress != nil {
		j.Progress(n)
	}
}

// Probed is a checkpoint of which it is known what each tensor's bits cost and are worth.
type Probed struct {
	Decisions []*Decision
	// Measured counts the probes that were measured; the others were in WorkFile.
	Measured int

	job     Job
	weights int64 // quantized, those of fixed tensors too
	fixed   int64 // bytes of quantized tensors that are not decisions
}

// layOut finds the decisions and what each option of theirs takes. It reads no weights.
func (j Job) layOut() (*Probed, error) {
	if j.MinBits == 0 {
		j.MinBits = 2
	}
	if j.MaxBits == 0 {
		j.MaxBits = 8
	}
	if j.Groups == nil {
		j.Groups = []int{32, 64, 128}
	}
	if j.Widths == nil {
		j.Widths = []int{3}
	}
	facts, err := arch.ParseConfig(j.Config)
	if err != nil {
		return nil, err
	}
	j.block = facts.WeightBlockSize
	plan, err := conversion.NewPlan(j.Checkpoint, j.Config, j.Options)
	if err != nil {
		return nil, err
	}
	p := &Probed{}
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

// Probe measures what each decision's options are worth.
func (j Job) Probe(ctx context.Context) (*Probed, error) {
	p, err := j.layOut()
	if err != nil {
		return nil, err
	}
	j = p.job
	if j.Start != nil {
		j.Start(len(j.Reference.Sequences()) + (1+len(j.Widths))*len(p.Decisions))
	}
	return p, j.Checkpoint.Guard(func() error { return j.measure(ctx, p) })
}

// Smallest is the allocation of the fewest bytes. It takes no probe, and predicts no KL.
func (j Job) Smallest() (*Allocation, error) {
	p, err := j.layOut()
	if err != nil {
		return nil, err
	}
	return p.allocation(make([]int, len(p.Decisions))) // options are in order of bytes
}

// CheckBitsPerWeight is a *TargetError if the allocation, the smallest, has more bits per weight than bpw.
func (a *Allocation) CheckBitsPerWeight(bpw float64) error {
	if a.BitsPerWeight > bpw {
		return &TargetError{fmt.Sprintf("%g bits per weight: the least that the tensors can take is %.3f", bpw, a.BitsPerWeight)}
	}
	return nil
}

// CheckFileBytes is a *TargetError if the file of the allocation, the smallest, has more than so many bytes.
func (a *Allocation) CheckFileBytes(bytes int64) error {
	if a.OutputBytes > bytes {
		return &TargetError{fmt.Sprintf("a file of %d bytes: the smallest has %d", bytes, a.OutputBytes)}
	}
	return nil
}

func (j *Job) measure(ctx context.Context, p *Probed) error {
	list := p.Decisions
	moments, err := j.moments(ctx)
	if err != nil {
		return err
	}
	known, err := j.openKept(list)
	if err != nil {
		return err
	}
	for _, d := range list {
		for _, bits := range j.Widths {
			kl, ok := known.kl[probeName(d, bits)]
			if !ok {
				if kl, err = j.probe(ctx, d, d.probeScheme(bits)); err != nil {
					return err
				}
				if err := known.put(probeName(d, bits), kl); err != nil {
					return err
				}
				p.Measured++
			}
			d.ProbeKL = append(d.ProbeKL, kl)
			j.progress(1)
		}
	}
	return j.errors(ctx, list, moments)
}

// count finds the bytes that are not to be decided.
func (p *Probed) count(plan *conversion.Plan) {
	open := map[string]bool{}
	for _, d := range p.Decisions {
		for _, t := range d.Tensors {
			open[t] = true
		}
	}
	for _, t := range plan.Tensors {
		if t.Action != conversion.ActionQuantize {
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

// Row is a line of an allocation's table.
type Row struct {
	Tensor string `json:"tensor"` // with * for the experts of a layer
	Bits   int    `json:"bits"`
	Group  int    `json:"group"` // 0: per channel
	Bytes  int64  `json:"bytes"`
	// KL is what the tensor adds to the divergence, as predicted.
	KL float64 `json:"predicted_kl"`
}

// Allocation is bits and group of every decision.
type Allocation struct {
	Rows []Row `json:"tensors"`
	// PayloadBytes and BitsPerWeight are of all quantized tensors, OutputBytes is the size of the file.
	PayloadBytes  int64   `json:"payload_bytes"`
	BitsPerWeight float64 `json:"bits_per_weight"`
	OutputBytes   int64   `json:"output_bytes"`
	// PredictedKL is the sum over the table.
	PredictedKL float64 `json:"predicted_kl"`
	// Rules come before those that the job had.
	Rules []quantizer.Rule `json:"-"`
	// Plan is the job with these rules.
	Plan *conversion.Plan `json:"-"`
}

// TargetError tells that a target cannot be met.
type TargetError struct{ msg string }

func (e *TargetError) Error() string { return e.msg }

// Bytes gives the least and the greatest number of bytes that the decisions can take.
func (p *Probed) Bytes() (least, most int64) {
	for _, d := range p.Decisions {
		least += d.Options[d.hull[0]].Bytes
		most += d.Options[d.hull[len(d.hull)-1]].Bytes
	}
	return least, most
}

// Budget chooses for so many bytes of the decisions' payloads at most.
func (p *Probed) Budget(bytes int64) (*Allocation, error) {
	chosen, ok := choose(p.Decisions, bytes)
	if !ok {
		least, _ := p.Bytes()
		return nil, &TargetError{fmt.Sprintf("%d bits take %d bytes", p.job.MinBits, least)}
	}
	return p.allocation(chosen)
}

// BitsPerWeight chooses for so many bits of payload per quantized weight at most.
func (p *Probed) BitsPerWeight(bpw float64) (*Allocation, error) {
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

// FileBytes chooses for a file of so many bytes at most.
func (p *Probed) FileBytes(bytes int64) (*Allocation, error) {
	least, most := p.Bytes()
	smallest, err := p.Budget(least)
	if err != nil {
		return nil, err
	}
	if err := smallest.CheckFileBytes(bytes); err != nil {
		return nil, err
	}
	// What is not payload depends a little on the rules, which the file records: the budget is brought to it.
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

// fileSlack is what a file may be smaller than its target before another allocation is tried.
const fileSlack = 64

func (p *Probed) allocation(chosen []int) (*Allocation, error) {
	a := &Allocation{}
	for i, d := range p.Decisions {
		o := d.Options[chosen[i]]
		a.Rows = append(a.Rows, Row{Tensor: d.Name, Bits: o.Bits, Group: o.Group, Bytes: o.Bytes, KL: o.KL})
		group := o.Group
		if group == 0 {
			group = quantizer.PerChannel
		}
		a.Rules = append(a.Rules, d.rules(o.Bits, group)...)
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
	if a.OutputBytes, err = a.Plan.SizeWith(p.job.Calibration); err != nil {
		return nil, err
	}
	return a, nil
}
