package divide

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lowbit-go/gq/internal/job/part"
	"github.com/lowbit-go/gq/internal/job/write"
)

// MergeParts joins the parts that WritePart made of the file at path. The file appears when it is
// complete, with the bytes that Write would have given it. A file that is merged already is no
// error. A *PartsError lists the parts that are missing, damaged or of another plan.
func MergeParts(ctx context.Context, path string, o MergeOptions) (*MergeReport, error) {
	m := &merge{ctx: ctx, path: path, o: o, start: time.Now(), store: o.Store}
	if m.store == nil {
		m.store = partFiles{}
	}
	found, err := m.store.List(ctx, path)
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
	r := &MergeReport{Report: &write.Report{Output: path, OutputBytes: m.any.FileSize, Warnings: []string{}}, Parts: of, Merged: done}
	if !done {
		if r.Report, err = m.join(); err != nil {
			return nil, err
		}
	}
	if o.KeepParts {
		return r, nil
	}
	return r, m.store.RemoveParts(ctx, path, of)
}

// openAll reads the headers of all parts, and finds the number of parts of the plan. Parts of other
// plans have to be made again, or are ignored if their number is another one.
func (m *merge) openAll(found map[int][]bool) error {
	other := "" // plan
	for _, of := range slices.Sorted(maps.Keys(found)) {
		m.bad, m.bytes = PartsError{Output: m.path, Of: of}, 0
		for i, ok := range found[of] {
			if !ok {
				m.bad.Missing, m.bad.Again = append(m.bad.Missing, i), append(m.bad.Again, i)
				continue
			}
			err := m.openPart(i, func(f *part.File) error {
				if f.Index != i || f.Of != of {
					return badf("%s holds part %d of %d", part.Path(m.path, i, of), f.Index, f.Of)
				}
				m.bytes += f.Data().Size()
				if name := f.PlanName(); name != cmp.Or(m.o.Plan, name) {
					other = name
				}
				return m.sort(f)
			})
			if err := m.note(i, err); err != nil {
				return err
			}
		}
		if m.any.Of == of {
			return nil
		}
	}
	if other != "" {
		return fmt.Errorf("%s: its parts are of plan %s, expected plan %s: make them with the options of that plan, or merge with --plan %s", m.path, other, m.o.Plan, other)
	}
	return &m.bad
}

// sort refuses a part of another plan than the stated plan, or than the first part's.
func (m *merge) sort(f *part.File) error {
	name, plan := part.Path(m.path, f.Index, f.Of), f.PlanName()
	m.o.Plan = cmp.Or(m.o.Plan, plan)
	if plan == m.o.Plan && m.any.Of != 0 {
		if f.FileSize != m.any.FileSize || f.DataStart != m.any.DataStart {
			return badf("%s: its file has %d bytes with data from %d on, that of %s %d and %d", name, f.FileSize, f.DataStart, part.Path(m.path, m.any.Index, m.any.Of), m.any.FileSize, m.any.DataStart)
		}
		return nil
	}
	r, err := f.Record()
	switch {
	case err != nil:
		return err
	case plan != m.o.Plan:
		return badf("%s is of plan %s of gq %s, expected plan %s (another source, options, number of parts or version of gq)", name, plan, r.Maker, m.o.Plan)
	}
	m.any, m.maker = f.Header, r.Maker
	return nil
}
