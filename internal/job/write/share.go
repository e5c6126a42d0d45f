package write

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/job/part"
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

// Share is the work of a part: the units from number first to end - 1.
type Share struct{ First, End int }

// Share cuts the list between units so that the parts of a job read about as many bytes each: a
// part has the units that begin in its part of all bytes. It depends on the list only.
func (l *Units) Share(t Part) Share {
	var total int64
	for i := range l.Runs {
		total += l.Runs[i].readBytes()
	}
	bound := func(i int) int64 { // total*i/t.Of, without overflow
		of, i64 := int64(t.Of), int64(i)
		return total/of*i64 + total%of*i64/of
	}
	return Share{l.begin(bound(t.Index)), l.begin(bound(t.Index + 1))}
}

// begin returns the first unit that begins at byte pos, or later, of all bytes that units read.
func (l *Units) begin(pos int64) int {
	for i := range l.Runs {
		r := &l.Runs[i]
		n := r.readBytes()
		if pos >= n {
			pos -= n
			continue
		}
		step := r.Units(0, 1).ReadBytes()
		return min(r.Before+int((pos+step-1)/step), r.End())
	}
	return l.N
}

// readBytes is how many bytes of the source the units of a run read.
func (r *unitRun) readBytes() int64 {
	return r.Units(0, r.End()-r.Before).ReadBytes()
}
