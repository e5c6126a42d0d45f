package alloc

import "slices"

// Outline describes what a Job does and the range of its results, without reading weights.
type Outline struct {
	// Tensors are the tensors of the checkpoint that get bits.
	Tensors []string
	// Probes is the number of probes, each a pass over the reference text.
	Probes int
	// MinBits and MaxBits bound the bits of the options; Groups are the group sizes, ascending.
	MinBits, MaxBits int
	Groups           []int
	// Plans is the number of plans that give options their bytes.
	Plans int
	// Least and Most are the allocations of the fewest and the most bytes, without predicted KL.
	Least, Most *Allocation
}

// Outline finds the decisions and their options. The Job needs no Reference.
func (j Job) Outline() (*Outline, error) {
	p, err := j.layOut()
	if err != nil {
		return nil, err
	}
	o := &Outline{Probes: len(p.job.groupsOf(p.Decisions)) * len(p.job.Widths), MinBits: p.job.MaxBits, Plans: len(p.job.candidates())}
	most := make([]int, len(p.Decisions))
	for i, d := range p.Decisions {
		o.Tensors = append(o.Tensors, d.Tensors...)
		most[i] = len(d.Options) - 1 // options are in order of bytes
		for _, option := range d.Options {
			o.MinBits, o.MaxBits = min(o.MinBits, option.Bits), max(o.MaxBits, option.Bits)
			o.Groups = append(o.Groups, option.Group)
		}
	}
	slices.Sort(o.Groups)
	o.Groups = slices.Compact(o.Groups)
	if o.Least, err = p.allocation(make([]int, len(p.Decisions))); err != nil {
		return nil, err
	}
	o.Most, err = p.allocation(most)
	return o, err
}

// Restore makes the allocation of a table from an earlier job with the same options, with the part
// of int8 activations in its divergence. The allocation is nil if the table has other tensors or
// options than the Job. The Job needs no Reference.
func (j Job) Restore(rows []Row, activationKL float64) (*Allocation, error) {
	p, err := j.layOut()
	if err != nil || len(rows) != len(p.Decisions) {
		return nil, err
	}
	chosen := make([]int, len(rows))
	for i, d := range p.Decisions {
		chosen[i] = slices.IndexFunc(d.Options, func(o Option) bool {
			row := d.row(o)
			row.KL = rows[i].KL
			return row == rows[i]
		})
		if chosen[i] < 0 {
			return nil, nil
		}
		d.Options[chosen[i]].KL = rows[i].KL
	}
	a, err := p.allocation(chosen)
	if err != nil {
		return nil, err
	}
	a.measured(Measured{ActivationKL: activationKL})
	return a, nil
}

func (d *Decision) row(o Option) Row {
	row := Row{Tensor: d.Name, Bits: o.Bits, Group: o.Group, Bytes: o.Bytes, KL: o.KL}
	if o.Type != 0 {
		row.Type = o.Type.String()
	} else {
		row.Mapping = o.scheme.Mapping.String()
	}
	return row
}
