package divide

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/part"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/write"
)

// withoutParts is the merge of a file without parts: it is complete, and a merge is repeated,
// or its parts were not made.
func (m *merge) withoutParts() (*MergeReport, error) {
	none := fmt.Sprintf("%s: there are no parts of it: %s and so on are expected; gq quantize --part makes them", m.path, part.Path(m.path, 0, 8))
	if output, ok := part.Output(m.path); ok {
		return nil, fmt.Errorf("%s is the name of a part: name the file that its parts make, %s", m.path, output)
	}
	file, err := m.store.Open(m.ctx, m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New(none)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	switch plan, err := filePlan(m.path, file, &part.Header{FileSize: file.Size}, m.o.Maker); {
	case err != nil:
		return nil, fmt.Errorf("%s. It is no complete .gqf file either: %w", none, err)
	case m.o.Plan == "" || !strings.HasPrefix(m.o.Plan, plan[:part.FileDigits]):
		return nil, fmt.Errorf("%s. The .gqf file that is there is of another job (plan %s..., expected %s): remove it, or choose another output", none, plan[:part.FileDigits], m.o.Plan)
	}
	return &MergeReport{Report: &write.Report{Output: m.path, OutputBytes: file.Size, Warnings: []string{}}, Merged: true}, nil
}

// mergedBefore reports whether the file is there, complete, of the parts' plan and with their data,
// and parts are gone: an earlier merge was ended while it removed them.
func (m *merge) mergedBefore() (bool, error) {
	if len(m.bad.Missing) == 0 {
		return false, m.verdict()
	}
	file, err := m.store.Open(m.ctx, m.path)
	if err != nil {
		return false, m.verdict()
	}
	defer file.Close()
	plan, err := filePlan(m.path, file, &m.any, m.maker)
	if err != nil || file.Size != m.any.FileSize || plan != m.any.PlanName() {
		return false, m.verdict()
	}
	// The file does not record which weights it was made from, and plans do not tell weights with
	// equal headers apart.
	same, err := m.sameData(file)
	if err == nil && !same {
		err = m.verdict()
	}
	return same, err
}

// filePlan returns the name of the plan of a complete .gqf file. h has the file's size, and what
// the file does not say: the number of parts and the samples.
func filePlan(name string, file io.ReaderAt, h *part.Header, maker string) (string, error) {
	im, err := gqf.ReadFront(name, file, h.FileSize)
	if err != nil {
		return "", err
	}
	im.ClearSums()
	if err := im.EditAsset(gqf.ProvenanceName, func(b []byte) error { return provenance.EditHashes(b, nil) }); err != nil {
		return "", err
	}
	plan, _, err := part.HashPlan(h.Of, maker, h.Samples, im.WriteTemplate)
	return (&part.Header{Plan: plan}).PlanName(), err
}

// sameData reports whether the file has the data of the parts that are there, at least of one with
// data.
func (m *merge) sameData(file io.ReaderAt) (same bool, err error) {
	for i := range m.bad.Of {
		if slices.Contains(m.bad.Again, i) {
			continue
		}
		err := m.openPart(i, func(f *part.File) error {
			r, err := f.Record()
			if err != nil {
				return err
			}
			same = same || len(r.Extents) > 0
			return r.CheckData(func(p []byte, off int64) error {
				_, err := file.ReadAt(p, off)
				return cmp.Or(m.ctx.Err(), err)
			}, nil)
		})
		if err != nil {
			return false, m.ctx.Err()
		}
	}
	return same, nil
}
