package divide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/part"
	"github.com/lowbit-go/gq/internal/job/write"
)

// MergeOptions are the options of MergeParts. The zero value is ready to use.
type MergeOptions struct {
	// Plan is the plan of the job as WritePart reports it: parts of another plan are refused.
	// Default (""): the first part's plan, and a file without parts is refused.
	Plan string
	// Maker is PartOptions.Maker.
	Maker string
	// KeepParts leaves the part files. Default: they are removed when the file is complete.
	KeepParts bool
	// Store keeps the parts and the file. Default (nil): the file system.
	Store PartStore
	// Progress is called with bytes of data that were done since the last call. Default: none.
	Progress func(n int64)
	// Begin is called with the bytes of data of all parts before the first of them is read. Default:
	// none.
	Begin func(total int64)
}

// MergeReport describes a merge.
type MergeReport struct {
	*write.Report
	Parts int `json:"parts"`
	// Merged reports whether the file was complete already, so that at most leftover parts were
	// removed. Report has the output only then, and Parts is 0 if no part was left.
	Merged bool `json:"merged_before"`
}

// A PartsError lists the parts of a file that are missing, damaged or of another plan.
type PartsError struct {
	Output  string
	Of      int
	Missing []int
	Damaged []error // or of another plan: one line each, with the path of the part
	Again   []int   // the parts to make again
}

func (e *PartsError) Error() string {
	var what []string
	if len(e.Missing) > 0 {
		what = append(what, fmt.Sprintf("%s: of its %d parts, counted from 0, these are missing: %s", e.Output, e.Of, ranges(e.Missing)))
	}
	const most = 5
	for i, err := range e.Damaged {
		if i == most {
			what = append(what, fmt.Sprintf("and %d more are damaged", len(e.Damaged)-most))
			break
		}
		what = append(what, err.Error())
	}
	return strings.Join(what, "; ") + ": run gq quantize again with " + partFlags(e.Again, e.Of) + ", then merge"
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

type merge struct {
	ctx    context.Context
	path   string
	o      MergeOptions
	start  time.Time
	store  PartStore
	any    part.Header // of the first part that could be opened
	maker  string
	bytes  int64 // of data, in all parts
	bad    PartsError
	image  *gqf.Image
	report *write.Report
	sink   write.Sink  // the file
	stream *gqf.Stream // writes to sink

	extents []part.Extent      // of all parts
	found   []write.ItemResult // by tensor
	units   []unitRange        // by tensor: how many there are, and how many were merged
	hashes  map[uint32][32]byte
}

type unitRange struct{ next, of uint32 }

func (m *merge) openPart(i int, use func(f *part.File) error) error {
	name := part.Path(m.path, i, m.bad.Of)
	stored, err := m.store.Open(m.ctx, name)
	if err != nil {
		return err
	}
	defer stored.Close()
	f, err := part.Open(name, stored, stored.Size)
	if err != nil {
		return err
	}
	return use(f)
}

// badPart is why a part has to be made again.
type badPart struct{ error }

func badf(format string, args ...any) error { return badPart{fmt.Errorf(format, args...)} }

// note collects the error of a part, and returns an error that another part would not mend.
func (m *merge) note(i int, err error) error {
	_, bad := errors.AsType[badPart](err)
	_, malformed := errors.AsType[*part.FormatError](err)
	switch {
	case err == nil:
		return nil
	case m.ctx.Err() != nil:
		return m.ctx.Err()
	case !bad && !malformed:
		return err
	}
	m.bad.Damaged, m.bad.Again = append(m.bad.Damaged, err), append(m.bad.Again, i)
	return nil
}

// verdict is the error for missing and damaged parts; nil if there are none.
func (m *merge) verdict() error {
	if len(m.bad.Again) == 0 {
		return nil
	}
	slices.Sort(m.bad.Again)
	return &m.bad
}
