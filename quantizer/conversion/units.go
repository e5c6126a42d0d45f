package conversion

import (
	"sort"
	"sync"

	"github.com/lowbit-go/gq/formats/gqf"
)

// unitBytes is about how much of the checkpoint a worker takes at a time. Small
// enough that a unit's source and output stay in a core's L2 cache and that the
// last units end together, large enough that a unit's write is one cheap system call.
const unitBytes = 1 << 20

// blockRows is how many rows are quantized before they are packed: whole panels of
// every layout.
const blockRows = 8

// transposedRows is how many outputs are gathered at a time from a tensor stored
// in x out: 64 values of BF16 are 128 bytes, two cache lines of each input row.
const transposedRows = 64

// unit is the piece of work that one worker does at a time.
type unit struct {
	item  item
	sum   bool // only sum the bytes of a source that is stored transposed
	slice int
	first int64 // block of rows to quantize and pack; byte to copy or to sum
	count int64
}

// sourceBytes is how many bytes of the source the unit's checksum covers.
func (u unit) sourceBytes() int64 {
	q, ok := u.item.(*quantized)
	if ok && !u.sum && q.transposed {
		return 0
	}
	return u.readBytes()
}

// rows is how many rows the unit's blocks of q have.
func (u unit) rows(q *quantized) int64 {
	return min(q.rows, (u.first+u.count)*blockRows) - u.first*blockRows
}

// unitList lists the units of a plan in order. A checkpoint of 2 TB has two million of them, so that
// the list keeps runs of equal units and cuts a unit when somebody asks for it.
type unitList struct {
	runs []unitRun
	n    int
}

// unitRun is units like the first, which together cover total blocks or bytes in steps.
type unitRun struct {
	first       unit // without its count
	total, step int64
	before      int // units of earlier runs
}

// cut appends units like u that cover total blocks or bytes, from u.first on, in steps.
func (l *unitList) cut(u unit, total, step int64) {
	if total <= 0 {
		return
	}
	l.runs = append(l.runs, unitRun{first: u, total: total, step: step, before: l.n})
	l.n += int((total + step - 1) / step)
}

// end is the number of units of this run and of earlier ones.
func (r *unitRun) end() int { return r.before + int((r.total+r.step-1)/r.step) }

// units returns the run's units from number lo to hi - 1 as one.
func (r *unitRun) units(lo, hi int) unit {
	u, done := r.first, int64(lo)*r.step
	u.first, u.count = u.first+done, min(int64(hi)*r.step, r.total)-done
	return u
}

// at returns unit i.
func (l *unitList) at(i int) unit {
	r := &l.runs[sort.Search(len(l.runs), func(k int) bool { return l.runs[k].before > i })-1]
	return r.units(i-r.before, i-r.before+1)
}

// units cuts the plan into pieces that depend on shapes only.
func (p *Plan) units() *unitList {
	list := &unitList{runs: make([]unitRun, 0, len(p.items))}
	for _, it := range p.items {
		it.addUnits(list, p)
	}
	return list
}

// unitResult holds the findings of a unit.
type unitResult struct {
	crc           uint32  // CRC32C of the source
	bytes         int64   // of an item: that crc covers
	scaleCRC      uint32  // CRC32C of its block scales, from the first unit of an item
	noise, signal float64 // of the quantized weights
	smallScales   int64   // groups, see worker.countGroups
	recovered     Recovered
}

// itemResult holds the findings of all units of an item.
type itemResult = unitResult

// tally joins the results of units into results of items. It adds them in the units' order, so that no
// figure depends on which worker was faster.
type tally struct {
	mu    sync.Mutex
	units *unitList
	items []itemResult       // by the items' index
	next  int                // the first unit that is not joined
	early map[int]unitResult // of later units
	each  func(unitResult)   // gets the results in order; nil: nobody
}

// newTally prepares the results of units from number first on.
func newTally(p *Plan, units *unitList, first int) *tally {
	return &tally{units: units, items: make([]itemResult, len(p.items)), next: first, early: map[int]unitResult{}}
}

// add takes the result of unit i.
func (t *tally) add(i int, r unitResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i != t.next {
		t.early[i] = r
		return
	}
	for ok := true; ok; r, ok = t.early[t.next] {
		delete(t.early, t.next)
		t.join(t.units.at(t.next), r)
		t.next++
	}
}

// join adds a unit's result to its item's: checksums of the source and sums of errors.
func (t *tally) join(u unit, r unitResult) {
	if t.each != nil {
		t.each(r)
	}
	sum := &t.items[u.item.common().index]
	if n := u.sourceBytes(); n > 0 {
		sum.crc, sum.bytes = gqf.CombineCRC32C(sum.crc, r.crc, n), sum.bytes+n
	}
	sum.scaleCRC |= r.scaleCRC
	sum.noise += r.noise
	sum.signal += r.signal
	sum.smallScales += r.smallScales
	sum.recovered.add(r.recovered)
}
