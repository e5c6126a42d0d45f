package conversion

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/part"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/quantizer"
)

// withoutParts is the merge of a file without parts: it is complete, and a merge is repeated,
// or its parts were not made.
func (m *merge) withoutParts() (*MergeReport, error) {
	none := fmt.Sprintf("%s: there are no parts of it: %s and so on are expected; gq quantize --part makes them", m.path, part.Path(m.path, 0, 8))
	if output, ok := part.Output(m.path); ok {
		return nil, fmt.Errorf("%s is the name of a part: name the file that its parts make, %s", m.path, output)
	}
	begun, err := m.begun()
	if err != nil {
		return nil, err
	}
	if begun != "" {
		return nil, fmt.Errorf("%s. A worker has begun: %s", none, begun)
	}
	file, size, closer, err := m.output()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New(none)
	}
	if err != nil {
		return nil, err
	}
	defer closer()
	im, err := gqf.ReadFront(m.path, file, size)
	if err != nil {
		return nil, fmt.Errorf("%s. It is no complete .gqf file either: %w", none, err)
	}
	job := readJob(im)
	if why := job.indivisible(); why != "" {
		return nil, fmt.Errorf("%s. The .gqf file that is there is of another job, since %s: remove it, or choose another output", none, why)
	}
	return &MergeReport{Report: &Report{Output: m.path, OutputBytes: size, Warnings: []string{}}, Merged: true, Recorded: job}, nil
}

// RecordedJob is what a .gqf file says about the job that made it. It does not say whether there were parts.
type RecordedJob struct {
	Provenance *Provenance       `json:"provenance"` // nil: the file has none
	Recipe     *quantizer.Recipe `json:"recipe"`     // nil: the file has none
}

// readJob reads the provenance and the recipe in the front of a file. Files of parts store both without
// compression; if one of them is compressed or not there, it is nil in the result.
func readJob(im *gqf.Image) *RecordedJob {
	o := &RecordedJob{}
	_ = im.EditAsset(gqf.ProvenanceName, func(b []byte) error {
		p := &Provenance{}
		if json.Unmarshal(b, p) == nil {
			o.Provenance = p
		}
		return nil
	})
	_ = im.EditAsset(gqf.RecipeName, func(b []byte) error {
		if r, err := quantizer.ParseRecipe(gqf.RecipeName, b); err == nil {
			o.Recipe = &r
		}
		return nil
	})
	return o
}

// indivisible says why no parts can have made the file; "": they can.
func (o *RecordedJob) indivisible() string {
	p := o.Provenance
	switch {
	case p == nil:
	case p.Calibration != nil:
		return "its codes were calibrated, and parts are for search, rtn and hqq"
	case p.Tuning != nil:
		return "it was tuned, and parts are not"
	case p.Fold != nil:
		return "its checkpoint was folded, which parts cannot be"
	case p.Quantized != nil:
		return "its codes are of a quantized checkpoint, and parts are made of unquantized ones"
	}
	return ""
}

// begun names the shared file or the upload that a worker has begun; "": there is none.
func (m *merge) begun() (string, error) {
	if m.o.Store != nil {
		u, err := sharedUpload(m.ctx, m.o.Store)
		if err != nil || u == nil {
			return "", err
		}
		return "there is an unfinished upload", nil
	}
	shared := part.SharedPath(m.path)
	if _, err := os.Stat(shared); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return shared + " is there", nil
}

// mergedBefore reports whether the file is there, complete, of the parts' plan and with their data, and parts or the
// shared file are gone: an earlier merge was ended while it removed them. An object of the plan is enough.
func (m *merge) mergedBefore() (bool, error) {
	gone := len(m.bad.Missing) > 0
	if m.any.Shared {
		_, err := os.Stat(part.SharedPath(m.path))
		gone = gone || errors.Is(err, fs.ErrNotExist)
	}
	if m.o.Store != nil {
		merged, err := isMerged(m.ctx, m.o.Store, m.path, &m.any, m.maker)
		if merged || err != nil {
			return merged, err
		}
		if m.upload != "" {
			_, err := m.o.Store.Join(m.upload, "").Pieces(m.ctx)
			gone = gone || errors.Is(err, ErrUploadGone)
		}
	}
	if !gone {
		return false, m.verdict()
	}
	file, size, closer, err := m.output()
	if err != nil {
		return false, m.verdict()
	}
	defer closer()
	if size != m.any.FileSize || !hasPlan(m.path, file, &m.any, m.maker) {
		return false, m.verdict()
	}
	// The file does not record which weights it was made from.
	same, err := m.sameData(file)
	if err != nil {
		return false, err
	}
	if !same {
		return false, m.verdict()
	}
	return true, nil
}

// isMerged reports whether the complete object is there, by its mark, size and front. Stores that keep no
// metadata have no marks.
func isMerged(ctx context.Context, store PartStore, name string, h *part.Header, maker string) (bool, error) {
	r, size, has, err := store.Object(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || size != h.FileSize || has != mark(h) {
		return false, err
	}
	return hasPlan(name, r, h, maker), ctx.Err()
}

// abortUploads aborts the uploads that the parts were made for, once the object is complete.
func (m *merge) abortUploads() error {
	seen := map[string]bool{"": true}
	for i := range m.bad.Of {
		err := m.openPart(i, func(f *part.File) error {
			r, err := f.Record()
			if err != nil || seen[r.Upload] {
				return err
			}
			seen[r.Upload] = true
			return m.o.Store.Join(r.Upload, "").Abort(m.ctx)
		})
		_, malformed := errors.AsType[*part.FormatError](err)
		if err != nil && !malformed && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// hasPlan reports whether a complete .gqf file, of the size that h states, has the front that the plan of h
// gives it. It does not tell weights with equal headers apart.
func hasPlan(name string, file io.ReaderAt, h *part.Header, maker string) bool {
	im, err := gqf.ReadFront(name, file, h.FileSize)
	if err != nil {
		return false
	}
	im.ClearSums()
	if err := im.EditAsset(gqf.ProvenanceName, func(b []byte) error { return editHashes(b, nil) }); err != nil {
		return false
	}
	plan, _, err := part.HashPlan(h.Of, maker, h.Samples, im.WriteTemplate)
	return err == nil && plan == h.Plan
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

// output opens the file or the object that is there.
func (m *merge) output() (r io.ReaderAt, size int64, closer func(), err error) {
	if m.o.Store != nil {
		r, size, _, err := m.o.Store.Object(m.ctx)
		return r, size, func() {}, err
	}
	f, st, err := files.Open(m.path)
	if err != nil {
		return nil, 0, nil, err
	}
	return f, st.Size(), func() { f.Close() }, nil
}

// removeShared removes a shared file that is left after the merge: a worker that was started again then has
// made it anew.
func (m *merge) removeShared() error {
	if !m.any.Shared {
		return nil
	}
	name := part.SharedPath(m.path)
	f, _, err := files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = part.CheckShared(f, name, &m.any)
	f.Close()
	if err != nil { // it belongs to another job
		return nil
	}
	return os.Remove(name)
}
