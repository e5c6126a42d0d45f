package conversion

import (
	"fmt"

	"github.com/lowbit-go/gq/formats/part"
)

// MaxParts is the greatest number of parts of a job.
const MaxParts = part.MaxParts

// Part is one of the parts that several workers make of a file. Each takes a share of the units.
type Part struct {
	Index int `json:"part"`  // from 0
	Of    int `json:"parts"` // at most MaxParts
}

// String describes the part: "part 3 of 8". Parts are counted from 0.
func (t Part) String() string { return fmt.Sprintf("part %d of %d", t.Index, t.Of) }

// Check refuses a part that cannot be.
func (t Part) Check() error {
	switch {
	case t.Of < 1 || t.Of > MaxParts:
		return fmt.Errorf("%d parts: use 1 to %d", t.Of, MaxParts)
	case t.Index < 0 || t.Index >= t.Of:
		return fmt.Errorf("part %d of %d: parts are counted from 0 to %d", t.Index, t.Of, t.Of-1)
	}
	return nil
}

// share is the work of a part: the units from number first to end - 1.
type share struct{ first, end int }

// share cuts the list between units so that the parts of a job read about as many bytes each: a part
// has the units that begin in its part of all bytes. It depends on the list only.
func (l *unitList) share(t Part) share {
	var total int64
	for i := range l.runs {
		total += l.runs[i].readBytes()
	}
	bound := func(i int) int64 { // total*i/t.Of, without overflow
		of, i64 := int64(t.Of), int64(i)
		return total/of*i64 + total%of*i64/of
	}
	return share{l.begin(bound(t.Index)), l.begin(bound(t.Index + 1))}
}

// begin returns the first unit that begins at byte pos, or later, of all bytes that units read.
func (l *unitList) begin(pos int64) int {
	for i := range l.runs {
		r := &l.runs[i]
		n := r.readBytes()
		if pos >= n {
			pos -= n
			continue
		}
		step := r.units(0, 1).readBytes()
		return min(r.before+int((pos+step-1)/step), r.end())
	}
	return l.n
}

// readBytes is how many bytes of the source the units of a run read.
func (r *unitRun) readBytes() int64 {
	return r.units(0, r.end()-r.before).readBytes()
}

// readBytes is how many bytes of the source the unit reads.
func (u unit) readBytes() int64 {
	if q, ok := u.item.(*quantized); ok && !u.sum {
		return u.rows(q) * q.rowBytes()
	}
	return u.count
}

// progressBytes is how much of the checkpoint is done after the unit. Other units count bytes that the
// unit only sums.
func (u unit) progressBytes() int64 {
	if u.sum {
		return 0
	}
	return u.readBytes()
}
