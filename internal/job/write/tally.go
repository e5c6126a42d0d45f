package write

import (
	"cmp"
	"fmt"
	"strings"
	"sync"

	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/job/plan"
)

// tally joins the results of units into results of items. It adds them in the units' order, so that
// no figure depends on which worker was faster.
type tally struct {
	mu    sync.Mutex
	units *Units
	Items []ItemResult   // by the items' index
	Next  int            // the first unit that is not joined
	Early map[int]Result // of later units
	each  func(Result)   // gets the results in order; nil: nobody
}

// NewTally prepares the results of units from number first on.
func NewTally(j *Job, units *Units, first int) *tally {
	return &tally{units: units, Items: make([]ItemResult, len(j.Items)), Next: first, Early: map[int]Result{}}
}

// Add takes the result of unit i.
func (t *tally) Add(i int, r Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i != t.Next {
		t.Early[i] = r
		return
	}
	for ok := true; ok; r, ok = t.Early[t.Next] {
		delete(t.Early, t.Next)
		t.join(t.units.At(t.Next), r)
		t.Next++
	}
}

// join adds a unit's result to its item's: checksums of the source and sums of errors.
func (t *tally) join(u Unit, r Result) {
	if t.each != nil {
		t.each(r)
	}
	sum := &t.Items[u.Item.Common().Index]
	if n := u.sourceBytes(); n > 0 {
		sum.Crc, sum.Bytes = crc32c.Combine(sum.Crc, r.Crc, n), sum.Bytes+n
	}
	sum.ScaleCRC |= r.ScaleCRC
	sum.nonFinite += r.nonFinite
	sum.Noise += r.Noise
	sum.Signal += r.Signal
	sum.SmallScales += r.SmallScales
	sum.Recovered.Add(r.Recovered)
}

// checkFinite lists the unquantized tensors that hold values that are NaN or infinite.
func (t *tally) checkFinite(p *Job) error {
	if p.Recipe.AllowUnquantized {
		return nil
	}
	var found []string
	file := ""
	for i, r := range t.Items {
		if r.nonFinite > 0 {
			e := p.Items[i].Common()
			file = cmp.Or(file, p.fileOf(e))
			found = append(found, fmt.Sprintf("%q (%d of %d values)", e.Src.Name, r.nonFinite, e.Src.Numel()))
		}
	}
	if n := len(found); n > 0 {
		return fmt.Errorf("%s: values that are NaN or infinite in unquantized tensors: %s%s: the model is damaged; --allow-unquantized stores them as they are",
			file, strings.Join(found[:min(n, plan.MostListed)], ", "), plan.AndMore(n-min(n, plan.MostListed)))
	}
	return nil
}
