package divide

import (
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
// error. A *PartsError lists missing and damaged parts, a *PlansError parts of several jobs.
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
				if f.Index != i || f.Of != of {
					return badf("%s holds part %d of %d", part.Path(m.path, i, of), f.Index, f.Of)
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
	if name := m.any.PlanName(); m.o.Plan != "" && name != m.o.Plan {
		return fmt.Errorf("%s: its parts are of plan %s, expected plan %s: make them with the options of that plan, or merge with --plan %s", m.path, name, m.o.Plan, name)
	}
	return nil
}

func (m *merge) sort(f *part.File, plans *[]PlanParts) error {
	at := slices.IndexFunc(*plans, func(p PlanParts) bool {
		return p.plan == f.Plan && p.Of == f.Of
	})
	if at < 0 {
		r, err := f.Record()
		if err != nil {
			return err
		}
		if len(*plans) == 0 {
			m.any, m.maker = f.Header, r.Maker
		}
		at = len(*plans)
		*plans = append(*plans, PlanParts{Plan: f.PlanName(), Of: f.Of, Maker: r.Maker, plan: f.Plan})
	}
	if at == 0 && (f.FileSize != m.any.FileSize || f.DataStart != m.any.DataStart) {
		return badf("%s: its file has %d bytes with data from %d on, that of %s %d and %d", part.Path(m.path, f.Index, f.Of), f.FileSize, f.DataStart, part.Path(m.path, m.any.Index, m.any.Of), m.any.FileSize, m.any.DataStart)
	}
	p := &(*plans)[at]
	p.Parts = append(p.Parts, f.Index)
	return nil
}
