package alloc

import (
	"cmp"
	"slices"
)

// lowerHull returns the indices of the options on the lower convex hull of KL over bytes, from the
// fewest bytes to the least KL. Options must be in order of bytes.
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
		// An option is above the hull if the step to it saves no more KL per byte than the next
		// step.
		for n := len(hull); n > 1 && slope(options[hull[n-2]], options[hull[n-1]]) <= slope(options[hull[n-1]], o); n-- {
			hull = hull[:n-1]
		}
		hull = append(hull, i)
	}
	return hull
}

// slope is the KL saved per byte between options.
func slope(from, to Option) float64 { return (from.KL - to.KL) / float64(to.Bytes-from.Bytes) }

// choose returns the index of each decision's option for at most so many bytes. ok is false if the
// cheapest options need more.
func choose(list []*Decision, bytes int64) (chosen []int, ok bool) {
	chosen = make([]int, len(list))
	for i, d := range list {
		chosen[i] = d.hull[0]
		bytes -= d.Options[d.hull[0]].Bytes
	}
	if bytes < 0 {
		return chosen, false
	}
	// The slopes of a hull decrease, so all steps can be sorted by slope at once; no heap is
	// needed.
	type step struct {
		decision, to int // index into the hull
		slope        float64
	}
	var steps []step
	for i, d := range list {
		for k := 1; k < len(d.hull); k++ {
			steps = append(steps, step{i, k, slope(d.Options[d.hull[k-1]], d.Options[d.hull[k]])})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(b.slope, a.slope) })
	full := make([]bool, len(list))
	for _, s := range steps {
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

// fill spends the remaining bytes: each time it takes the change, to any option, that saves most.
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
