package conversion

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/part"
	"github.com/lowbit-go/gq/internal/atomicfile"
)

// MergeOptions are the options of MergeParts. The zero value is ready to use.
type MergeOptions struct {
	// KeepParts leaves the part files. Default: they are removed when the file is complete.
	KeepParts bool
	// Store is where the parts make an object. Default (nil): they are files.
	Store PartStore
	// Progress is called with bytes of data that were done since the last call. Default: none.
	Progress func(n int64)
	// Begin is called with the bytes of data of all parts before the first of them is read. Default: none.
	Begin func(total int64)
}

// MergeReport describes a merge.
type MergeReport struct {
	*Report
	Parts int `json:"parts"`
	// Merged reports whether the file was complete already, so that at most leftover parts were removed.
	// Report has the output only then, and Parts is 0 if no part was left.
	Merged bool `json:"merged_before"`
	// Recorded is the job that the file records. It is nil if there was a part to compare the file with.
	Recorded *RecordedJob `json:"recorded,omitempty"`
}

// A PartsError lists the parts of a file that are missing or damaged.
type PartsError struct {
	Output  string
	Of      int
	Missing []int
	Damaged []error // one line each, with the path of the part
	Again   []int   // the parts to make again: missing and damaged ones
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

// partFlags are the flags that make some parts.
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

// MergeParts joins the parts that WritePart made of the file at path. The file appears when it is
// complete, with the bytes that Write would have given it. A file that is merged already is no error.
// A *PartsError lists missing and damaged parts, a *PlansError parts of several jobs.
func MergeParts(ctx context.Context, path string, o MergeOptions) (*MergeReport, error) {
	m := &merge{ctx: ctx, path: path, o: o, start: time.Now()}
	found, err := m.list()
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return m.withoutParts()
	}
	if err := m.openAll(found); err != nil {
		return nil, err
	}
	of := m.bad.Of
	done, err := m.mergedBefore()
	if err != nil {
		return nil, err
	}
	r := &MergeReport{Report: &Report{Output: path, OutputBytes: m.any.FileSize, Warnings: []string{}}, Parts: of, Merged: done}
	if !done {
		report, err := m.join()
		if err != nil && o.Store != nil && ctx.Err() == nil { // another merge may have been quicker
			if r.Merged, _ = isMerged(ctx, o.Store, path, &m.any, m.maker); r.Merged {
				report, err = r.Report, nil
			}
		}
		if err != nil {
			return nil, err
		}
		r.Report = report
	}
	if r.Merged && o.Store != nil {
		if err := m.abortUploads(); err != nil {
			return r, err
		}
	}
	if o.KeepParts {
		return r, nil
	}
	if o.Store == nil { // a killed worker's, whose part another worker made
		dir, base := filepath.Split(path)
		atomicfile.RemoveStale(dir, func(target string) bool { return len(part.Sort(base, []string{target})) > 0 })
	}
	for i := of - 1; i >= 0; i-- {
		if err := m.remove(Part{i, of}); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return r, err
		}
	}
	return r, m.removeShared()
}

// merge is a running MergeParts.
type merge struct {
	ctx    context.Context
	path   string
	o      MergeOptions
	start  time.Time
	any    part.Header // of the first part that could be opened
	maker  string
	upload string // ID, with a store
	bytes  int64  // of data, in all parts
	bad    PartsError
	image  *gqf.Image
	report *Report
	file   *atomicfile.File // nil for an object
	object *mergedObject    // nil for a file

	extents []part.Extent // of all parts
	found   []itemResult  // by tensor
	units   []unitRange   // by tensor: how many there are, and how many were merged
	hashes  map[uint32][32]byte
}

type unitRange struct{ next, of uint32 }

// list finds the parts of the file, as part.List does.
func (m *merge) list() (map[int][]bool, error) {
	if m.o.Store != nil {
		return m.o.Store.List(m.ctx)
	}
	return part.List(m.path)
}

// openAll reads the headers of all parts.
func (m *merge) openAll(found map[int][]bool) error {
	var plans []PlanParts
	for _, of := range slices.Sorted(maps.Keys(found)) {
		m.bad = PartsError{Output: m.path, Of: of}
		for i, ok := range found[of] {
			if !ok {
				m.bad.Missing, m.bad.Again = append(m.bad.Missing, i), append(m.bad.Again, i)
				continue
			}
			err := m.openPart(i, func(f *part.File) error {
				switch h := &f.Header; {
				case h.Index != i || h.Of != of:
					return badf("%s holds part %d of %d", part.Path(m.path, i, of), h.Index, h.Of)
				case h.Object != (m.o.Store != nil):
					return badf("%s: its data are elsewhere: it was made for another output", part.Path(m.path, i, of))
				}
				m.bytes += f.Data().Size()
				return m.sort(f, &plans)
			})
			if err := m.note(i, err); err != nil {
				return err
			}
		}
	}
	if len(plans) > 1 || len(found) > 1 {
		return &PlansError{Output: m.path, Plans: plans, found: found}
	}
	if m.any.Of == 0 {
		return &m.bad
	}
	return nil
}

// sort adds a part to the parts of its plan.
func (m *merge) sort(f *part.File, plans *[]PlanParts) error {
	at := slices.IndexFunc(*plans, func(p PlanParts) bool {
		return p.plan == f.Plan && p.Of == f.Of && p.Shared == f.Shared
	})
	if at < 0 {
		r, err := f.Record()
		if err != nil {
			return err
		}
		if len(*plans) == 0 {
			m.any, m.maker, m.upload = f.Header, r.Maker, r.Upload
		}
		at = len(*plans)
		*plans = append(*plans, PlanParts{Plan: f.PlanName(), Of: f.Of, Shared: f.Shared, Maker: r.Maker, plan: f.Plan})
	}
	if at == 0 && (f.FileSize != m.any.FileSize || f.DataStart != m.any.DataStart) {
		return badf("%s: its file has %d bytes with data from %d on, that of %s %d and %d", part.Path(m.path, f.Index, f.Of), f.FileSize, f.DataStart, part.Path(m.path, m.any.Index, m.any.Of), m.any.FileSize, m.any.DataStart)
	}
	p := &(*plans)[at]
	p.Parts = append(p.Parts, f.Index)
	return nil
}

// openPart calls use with an open part.
func (m *merge) openPart(i int, use func(f *part.File) error) error {
	f, err := m.partFile(Part{i, m.bad.Of})
	if err != nil {
		return err
	}
	defer f.Close()
	return use(f)
}

func (m *merge) partFile(t Part) (*part.File, error) {
	name := part.Path(m.path, t.Index, t.Of)
	if m.o.Store == nil {
		return part.Open(name)
	}
	r, size, err := m.o.Store.Open(m.ctx, t)
	if err != nil {
		return nil, err
	}
	return part.OpenReader(name, r, size)
}

func (m *merge) remove(t Part) error {
	if m.o.Store != nil {
		return m.o.Store.Remove(m.ctx, t)
	}
	return os.Remove(part.Path(m.path, t.Index, t.Of))
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
