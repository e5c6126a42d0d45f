package alloc

import (
	"cmp"
	"slices"
)

// lowerHull returns the indices of the options on the lower convex hull of KL over bytes, from the
// fewest bytes to the least KL. Options are in order of bytes.
func lowerHull(options []Option) []int {
	var hull []int
	for i, o := range options {
		if n := len(hull); n > 0 {
			last := options[hull[n-1]]
			if o.KL >= last.KL {
				continue
			}
			if o.Bytes == last.Bytes {
				hull = hull[:n-1]
			}
		}
		// An option is above the hull if the step there saves no more KL per byte than the next step.
		for n := len(hull); n > 1 && slope(options[hull[n-2]], options[hull[n-1]]) <= slope(options[hull[n-1]], o); n-- {
			hull = hull[:n-1]
		}
		hull = append(hull, i)
	}
	return hull
}

// slope is the KL saved per byte between options.
func slope(from, to Option) float64 { return (from.KL - to.KL) / float64(to.Bytes-from.Bytes) }

// A step goes from an option on a decision's hull to the next.
type step struct {
	decision, to int // to is an index into the hull
	slope        float64
}

// steps returns the steps of all decisions, those that save the most KL per byte first. The slopes
// of a hull decrease, so a decision's steps are in order.
func steps(list []*Decision) []step {
	var all []step
	for i, d := range list {
		for k := 1; k < len(d.hull); k++ {
			all = append(all, step{i, k, slope(d.Options[d.hull[k-1]], d.Options[d.hull[k]])})
		}
	}
	slices.SortStableFunc(all, func(a, b step) int { return cmp.Compare(b.slope, a.slope) })
	return all
}

// fixedDecisions is how many decisions choose tries with each of their options.
const fixedDecisions = 8

// choose returns the index of each decision's option for at most so many bytes. ok is false if the
// cheapest options need more.
//
// Steps are taken in the order of the KL that they save per byte. The first step that does not fit
// is lost, and may be large, as an embedding's is. So each option of the decisions with the most
// bytes between their options is fixed in turn, and the choice with the least predicted KL wins.
func choose(list []*Decision, bytes int64) (chosen []int, ok bool) {
	all := steps(list)
	if chosen, ok = greedy(list, all, bytes, -1, 0); !ok {
		return chosen, false
	}
	least := predicted(list, chosen)
	for _, i := range widest(list, fixedDecisions) {
		for option := range list[i].Options {
			c, ok := greedy(list, all, bytes, i, option)
			if !ok {
				continue
			}
			if kl := predicted(list, c); kl < least {
				chosen, least = c, kl
			}
		}
	}
	return chosen, true
}

// widest returns up to n decisions, those with the most bytes between their hull's ends first.
func widest(list []*Decision, n int) []int {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	width := func(d *Decision) int64 { return d.Options[d.hull[len(d.hull)-1]].Bytes - d.Options[d.hull[0]].Bytes }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(width(list[b]), width(list[a])) })
	return order[:min(n, len(order))]
}

// greedy takes the steps that fit, in order. The decision fixed (-1: none) has the option at. ok is
// false if the cheapest options of the others need more bytes.
func greedy(list []*Decision, all []step, bytes int64, fixed, at int) (chosen []int, ok bool) {
	chosen = make([]int, len(list))
	for i, d := range list {
		if chosen[i] = d.hull[0]; i == fixed {
			chosen[i] = at
		}
		bytes -= d.Options[chosen[i]].Bytes
	}
	if bytes < 0 {
		return chosen, false
	}
	full := make([]bool, len(list))
	if fixed >= 0 {
		full[fixed] = true
	}
	for _, s := range all {
		d := list[s.decision]
		need := d.Options[d.hull[s.to]].Bytes - d.Options[chosen[s.decision]].Bytes
		if full[s.decision] || need > bytes {
			full[s.decision] = true
			continue
		}
		chosen[s.decision], bytes = d.hull[s.to], bytes-need
	}
	fill(list, chosen, bytes)
	return chosen, true
}

// fill spends the remaining bytes on the change that saves most, to any option, until none fits.
func fill(list []*Decision, chosen []int, bytes int64) {
	for {
		best, to, gain := -1, 0, 0.0
		for i, d := range list {
			from := d.Options[chosen[i]]
			for k, o := range d.Options {
				if o.Bytes-from.Bytes <= bytes && from.KL-o.KL > gain {
					best, to, gain = i, k, from.KL-o.KL
				}
			}
		}
		if best < 0 {
			return
		}
		bytes -= list[best].Options[to].Bytes - list[best].Options[chosen[best]].Bytes
		chosen[best] = to
	}
}

func predicted(list []*Decision, chosen []int) (kl float64) {
	for i, d := range list {
		kl += d.Options[chosen[i]].KL
	}
	return kl
}

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
	o := &Outline{Probes: len(p.job.groupsOf(p.Decisions)), MinBits: p.job.MaxBits, Plans: len(p.job.candidates())}
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
