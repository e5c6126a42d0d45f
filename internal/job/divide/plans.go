package divide

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/job/part"
)

// PlanParts are the parts of one job.
type PlanParts struct {
	Plan  string // the abbreviated digest of the plan, which WritePart reports
	Maker string // the version of the program that made the parts
	Of    int    // so many parts make the file
	Parts []int  // the parts that are there, in ascending order

	plan [32]byte
}

// A PlansError says that the parts beside a file are of several jobs.
type PlansError struct {
	Output string
	Plans  []PlanParts

	found map[int][]bool // all parts that are there, readable or not, as part.List finds them
}

// Error lists the parts of each plan, and then how to go on with each of the plans.
func (e *PlansError) Error() string {
	var have, keep []string
	for i := range e.Plans {
		p := &e.Plans[i]
		have = append(have, fmt.Sprintf("plan %s%s has %d of its %d parts (%s)", p.Plan, e.difference(p), len(p.Parts), p.Of, ranges(p.Parts)))
		keep = append(keep, fmt.Sprintf("for plan %s %s", p.Plan, e.resolve(p)))
	}
	for _, of := range slices.Sorted(maps.Keys(e.found)) {
		if !slices.ContainsFunc(e.Plans, func(p PlanParts) bool { return p.Of == of }) {
			have = append(have, fmt.Sprintf("no file %s can be read", e.pattern(of)))
		}
	}
	if len(keep) == 0 {
		keep = []string{"remove them, and make the parts again"}
	}
	return fmt.Sprintf("%s: the parts are of several jobs (other sources, options, numbers of parts or versions of gq), and one job's parts make a file: %s. Choose one: %s",
		e.Output, strings.Join(have, "; "), strings.Join(keep, "; "))
}

// difference names the version of gq where the plans have several.
func (e *PlansError) difference(p *PlanParts) string {
	if slices.ContainsFunc(e.Plans, func(o PlanParts) bool { return o.Maker != p.Maker }) {
		return " of gq " + p.Maker
	}
	return ""
}

// resolve says what makes the parts of p a file: other files are removed, and parts are made. A
// part that is made replaces the part with the same name of another plan.
func (e *PlansError) resolve(p *PlanParts) string {
	var do []string
	for _, of := range slices.Sorted(maps.Keys(e.found)) {
		if of != p.Of {
			do = append(do, "remove "+e.pattern(of))
		}
	}
	var missing []int
	for i := range p.Of {
		if _, ok := slices.BinarySearch(p.Parts, i); !ok {
			missing = append(missing, i)
		}
	}
	if len(missing) > 0 {
		do = append(do, "run gq quantize with this job's options and "+partFlags(missing, p.Of))
	}
	return strings.Join(append(do, "merge again"), ", ")
}

// pattern matches the files of jobs of so many parts.
func (e *PlansError) pattern(of int) string {
	name := part.Path(e.Output, 0, of)
	return name[:len(e.Output)] + strings.Replace(name[len(e.Output):], "-0-", "-*-", 1)
}

func partFlags(list []int, of int) string {
	const most = 5
	flags := make([]string, 0, most+1)
	for i, k := range list {
		if i == most {
			flags = append(flags, "...")
			break
		}
		flags = append(flags, fmt.Sprintf("--part %d/%d", k, of))
	}
	return strings.Join(flags, ", ")
}

// ranges spells ascending numbers: "2, 5-7".
func ranges(list []int) string {
	var s []string
	for i := 0; i < len(list); {
		k := i
		for k+1 < len(list) && list[k+1] == list[k]+1 {
			k++
		}
		if k == i {
			s = append(s, fmt.Sprint(list[i]))
		} else {
			s = append(s, fmt.Sprintf("%d-%d", list[i], list[k]))
		}
		i = k + 1
	}
	return strings.Join(s, ", ")
}
