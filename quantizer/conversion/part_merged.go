package conversion

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/part"
)

// mergedBefore reports whether the file is there, complete, of the parts' plan and with their data, and parts or the
// shared file are gone: an earlier merge was ended while it removed them.
func (m *merge) mergedBefore() (bool, error) {
	gone := len(m.bad.Missing) > 0
	if m.any.Shared {
		_, err := os.Stat(part.SharedPath(m.path))
		gone = gone || errors.Is(err, fs.ErrNotExist)
	}
	if m.o.Store != nil {
		_, err := m.o.Store.Join(m.upload).Pieces(m.ctx)
		gone = gone || err != nil // an upload that is complete is gone
	}
	if !gone {
		return false, m.verdict()
	}
	file, closer, err := m.openOutput()
	if err != nil {
		return false, m.verdict()
	}
	defer closer()
	front, err := io.ReadAll(io.NewSectionReader(file, 0, m.any.DataStart))
	if err != nil {
		return false, m.verdict()
	}
	im, err := gqf.ParseTemplate(m.path, front, gqf.Options{})
	if err != nil || im.Size() != m.any.FileSize {
		return false, m.verdict()
	}
	im.ClearSums()
	if err := im.EditAsset(gqf.ProvenanceName, func(b []byte) error { return editHashes(b, nil) }); err != nil {
		return false, m.verdict()
	}
	if plan, _, err := part.HashPlan(m.bad.Of, m.maker, m.any.Samples, im.WriteTemplate); err != nil || plan != m.any.Plan {
		return false, m.verdict()
	}
	// The file does not say of which weights it was made.
	same, err := m.sameData(file)
	if err != nil {
		return false, err
	}
	if !same {
		return false, m.verdict()
	}
	return true, nil
}

// sameData reports whether the file has the data of the parts that are there, at least of one with data.
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

// openOutput opens the file that is there, if it has the size of the parts' file.
func (m *merge) openOutput() (r io.ReaderAt, closer func(), err error) {
	if m.o.Store != nil {
		r, size, err := m.o.Store.Object(m.ctx)
		if err != nil || size != m.any.FileSize {
			return nil, nil, cmp.Or(err, errors.New("another size"))
		}
		return r, func() {}, nil
	}
	f, err := os.Open(m.path)
	if err != nil {
		return nil, nil, err
	}
	if st, err := f.Stat(); err != nil || st.Size() != m.any.FileSize {
		f.Close()
		return nil, nil, cmp.Or(err, errors.New("another size"))
	}
	return f, func() { f.Close() }, nil
}
