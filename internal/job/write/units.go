package write

import (
	"sort"

	"github.com/lowbit-go/gq/internal/job/plan"
)

// UnitBytes is about how much of the checkpoint a worker takes at a time. Small
// enough that a unit's source and output stay in a core's L2 cache and that the
// last units end together, large enough that a unit's write is one cheap system call.
const UnitBytes = 1 << 20

// BlockRows is how many rows are quantized before they are packed: whole panels of
// every layout.
const BlockRows = 8

// transposedRows is how many outputs are gathered at a time from a tensor stored
// in x out: 64 values of BF16 are 128 bytes, two cache lines of each input row.
const transposedRows = 64

// Unit is the piece of work that one worker does at a time.
type Unit struct {
	Item  plan.Item
	Sum   bool // only sum the bytes of a source that is stored transposed
	Slice int
	First int64 // block of rows to quantize and pack; byte to copy or to sum
	Count int64
}

// sourceBytes is how many bytes of the source the unit's checksum covers.
func (u Unit) sourceBytes() int64 {
	q, ok := u.Item.(*plan.Quantized)
	if ok && !u.Sum && q.Transposed {
		return 0
	}
	return u.ReadBytes()
}

// Rows is how many rows the unit's blocks of q have.
func (u Unit) Rows(q *plan.Quantized) int64 {
	return min(q.Rows, (u.First+u.Count)*BlockRows) - u.First*BlockRows
}

// Units lists the units of a plan in order. A checkpoint of 2 TB has two million of them, so that
// the list keeps runs of equal units and cuts a unit when somebody asks for it.
type Units struct {
	Runs []unitRun
	N    int
}

// unitRun is units that together cover the blocks or bytes of first in steps.
type unitRun struct {
	First  Unit
	step   int64
	Before int // units of earlier runs
}

// Cut appends units like u that cover total blocks or bytes, from u.first on, in steps.
func (l *Units) Cut(u Unit, total, step int64) {
	if total <= 0 {
		return
	}
	u.Count = total
	l.Runs = append(l.Runs, unitRun{First: u, step: step, Before: l.N})
	l.N += int((total + step - 1) / step)
}

// End is the number of units of this run and of earlier ones.
func (r *unitRun) End() int { return r.Before + int((r.First.Count+r.step-1)/r.step) }

// Units returns the run's units from number lo to hi - 1 as one.
func (r *unitRun) Units(lo, hi int) Unit {
	u, done := r.First, int64(lo)*r.step
	u.First, u.Count = u.First+done, min(int64(hi)*r.step, u.Count)-done
	return u
}

// At returns unit i.
func (l *Units) At(i int) Unit {
	r := &l.Runs[sort.Search(len(l.Runs), func(k int) bool { return l.Runs[k].Before > i })-1]
	return r.Units(i-r.Before, i-r.Before+1)
}

// Result holds the findings of a unit.
type Result struct {
	Crc           uint32  // CRC32C of the source
	ScaleCRC      uint32  // CRC32C of its block scales, from the first unit of an item
	Bytes         int64   // of an item: that crc covers
	Noise, Signal float64 // of the quantized weights
	nonFinite     int64   // values of an unquantized tensor
	SmallScales   int64   // groups, see worker.countGroups
	Recovered     Recovered
}

// ItemResult holds the findings of all units of an item.
type ItemResult = Result

// addBlocks appends the units of a quantized item. strided tells that its rows are gathered, and
// its bytes summed apart.
func (l *Units) addBlocks(it *plan.Quantized, strided bool) {
	blocks := (it.Rows + BlockRows - 1) / BlockRows
	step := max(1, UnitBytes/(it.RowBytes()*BlockRows))
	if strided {
		step = transposedRows / BlockRows
	}
	if it.Layout != nil { // which takes whole steps of rows
		blocksPerStep := leastMultiple(it.Layout.RowStep, BlockRows) / BlockRows
		step = (step + blocksPerStep - 1) / blocksPerStep * blocksPerStep
	}
	sliceBytes := it.Src.Size / int64(it.Slices)
	for s := range it.Slices {
		l.Cut(Unit{Item: it, Slice: s}, blocks, step)
		if strided { // at once, so that a remote slice is fetched once
			l.Cut(Unit{Item: it, Sum: true, Slice: s, First: int64(s) * sliceBytes}, sliceBytes, UnitBytes)
		}
	}
}

// leastMultiple is the least common multiple of two numbers above 0.
func leastMultiple(a, b int64) int64 {
	n := a
	for n%b != 0 {
		n += a
	}
	return n
}

// EachSum calls do with each name that the checkpoint has, its number in a .gqf file, and the
// checksum of the tensor's bytes; 0 before they are found.
func EachSum(items []plan.Item, found []ItemResult, do func(at int, name string, crc uint32)) {
	for _, it := range items {
		e, sum := it.Common(), ItemResult{}
		if found != nil {
			sum = found[e.Index]
		}
		if e.Name() == e.Src.Name {
			do(e.NameIndex, e.Src.Name, sum.Crc)
		}
		for i, n := range e.Aliases {
			switch {
			case n.Absorbed:
				do(e.NameIndex+1+i, n.Src.Name, sum.ScaleCRC)
			case !n.Absent: // a second name is there only with the same content, so with the same sum
				do(e.NameIndex+1+i, n.Src.Name, sum.Crc)
			}
		}
	}
}

// Recovered says how many groups of a tensor, or of all quantized tensors, were on a lattice of the
// scheme: their weights are codes times scales, rounded to the checkpoint's dtype. The codes are
// taken over, see rounding.RowQuantizer.Recover.
type Recovered struct {
	Exact  int64 `json:"groups"`
	Groups int64 `json:"of"` // all groups that are not all zero
}

func (r *Recovered) Add(o Recovered) { r.Exact, r.Groups = r.Exact+o.Exact, r.Groups+o.Groups }

// some is r, or nil if no group was recovered.
func (r Recovered) some() *Recovered {
	if r.Exact == 0 {
		return nil
	}
	return &r
}

// ReadBytes is how many bytes of the source the unit reads.
func (u Unit) ReadBytes() int64 {
	if q, ok := u.Item.(*plan.Quantized); ok && !u.Sum {
		return u.Rows(q) * q.RowBytes()
	}
	return u.Count
}

// ProgressBytes is how much of the checkpoint is done after the unit. Other units count bytes that
// the unit only sums.
func (u Unit) ProgressBytes() int64 {
	if u.Sum {
		return 0
	}
	return u.ReadBytes()
}
