// Package divide makes a .gqf file by several workers: each writes a part of it, and [MergeParts]
// joins the parts.
package divide

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/lowbit-go/gq/internal/job/part"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/togqf"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/quantizer"
)

// PartOptions are the options of WritePart.
type PartOptions struct {
	write.Part
	// Store keeps the part. Default (nil): the file system.
	Store PartStore
	// Maker names the version of the program. All parts of a file need the same one.
	Maker string
	// Dry reports the part and its plan, and makes nothing. Default: false.
	Dry bool
	// Begin is called with the bytes of the part's source before they are read, unless the part is
	// there. Default: none.
	Begin func(total int64)
	// Progress is called, from any worker, with bytes of the source that were done since the last
	// call. Default: none.
	Progress func(n int64)
}

// PartReport describes a part that WritePart made or found.
type PartReport struct {
	write.Part
	// the abbreviated digest of the plan, which all parts of a file share
	Plan   string `json:"plan"`
	Output string `json:"output"` // the part file
	// Found reports whether the part was there already, complete and undamaged.
	Found    bool `json:"found"`
	Units    int  `json:"units"`     // pieces of work of the part
	AllUnits int  `json:"all_units"` // of all parts
	// of the checkpoint's tensors, for which the part has data
	SourceBytes int64    `json:"source_bytes"`
	DataBytes   int64    `json:"data_bytes"`   // of the .gqf file
	OutputBytes int64    `json:"output_bytes"` // of the part file
	Warnings    []string `json:"warnings"`
	Seconds     float64  `json:"seconds"`
}

// WritePart makes one part of the file that Write puts at path; MergeParts joins all parts. A part
// that is there is made again only if it is of another plan, or damaged.
func WritePart(ctx context.Context, j *write.Job, path string, o PartOptions) (*PartReport, error) {
	start := time.Now()
	w, err := newPartJob(j, path, o)
	if err != nil {
		return nil, err
	}
	if o.Dry {
		return &w.report, nil
	}
	found, err := w.find(ctx)
	if err == nil && !found {
		if o.Begin != nil {
			o.Begin(w.report.SourceBytes)
		}
		err = w.write(ctx)
	}
	if err != nil {
		return nil, err
	}
	r := &w.report
	r.Found, r.Seconds = found, time.Since(start).Seconds()
	return r, nil
}

type partJob struct {
	*write.Run
	o                 PartOptions
	store             PartStore
	target            *togqf.Target
	extents           []part.Extent
	header            part.Header
	outline, template part.Stream // of part 0, else empty
	errors            []part.UnitError
	report            PartReport
}

func newPartJob(j *write.Job, path string, o PartOptions) (*partJob, error) {
	if err := o.Check(); err != nil {
		return nil, quantizer.Requestf("%w", err)
	}
	r, err := j.RunWith(&plan.Codes{}, nil, o.Progress)
	if err != nil {
		return nil, err
	}
	target, ok := r.Target.(*togqf.Target)
	if !ok {
		return nil, quantizer.Requestf("parts are for .gqf files, not for %s: merge a .gqf file, and write the other one with gq export", j.Out.Noun())
	}
	w := &partJob{Run: r, o: o, store: o.Store, target: target}
	r.Share = r.Units.Share(o.Part)
	if w.extents, err = target.Extents(r.Units, r.Share); err != nil {
		return nil, err
	}
	im := w.target.Image
	w.header = part.Header{Index: o.Index, Of: o.Of, FileSize: im.Size(), DataStart: im.DataStart()}
	if j.Samples != nil {
		if w.header.Samples, err = j.Samples(); err != nil {
			return nil, err
		}
	}
	size := int64(0)
	if w.header.Plan, size, err = part.HashPlan(o.Of, o.Maker, w.header.Samples, im.WriteTemplate); err != nil {
		return nil, err
	}
	if o.Index == 0 {
		w.template = part.Stream{Size: size, Write: im.WriteTemplate}
		if w.outline, err = part.NewStream(w.writeOutline); err != nil {
			return nil, err
		}
	}
	report := &w.report
	report.Plan = w.header.PlanName()
	report.Part, report.Output, report.Warnings = o.Part, part.Path(path, o.Index, o.Of), append([]string{}, j.Warnings...)
	report.Units, report.AllUnits, report.DataBytes = r.Share.End-r.Share.First, r.Units.N, part.DataBytes(w.extents)
	for i := r.Share.First; i < r.Share.End; i++ {
		report.SourceBytes += r.Units.At(i).ProgressBytes()
	}
	if o.Store != nil {
		return w, nil
	}
	w.store = partFiles{}
	return w, j.CheckPlace(path, o.String()+" of "+j.Out.Noun(), report.DataBytes, path, report.Output)
}

// find reports whether the part is there, of this plan and undamaged.
func (w *partJob) find(ctx context.Context) (bool, error) {
	stored, err := w.store.Open(ctx, w.report.Output)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer stored.Close()
	f, err := part.Open(w.report.Output, stored, stored.Size)
	if _, damaged := errors.AsType[*part.FormatError](err); damaged {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if f.Plan != w.header.Plan || f.Index != w.o.Index || f.Of != w.o.Of {
		return false, nil
	}
	r, err := f.Record()
	if err != nil || !slices.Equal(r.Extents, w.extents) {
		return false, nil
	}
	w.report.OutputBytes = f.Size()
	read := f.Find(r.Extents)
	err = r.CheckData(func(p []byte, off int64) error { return cmp.Or(ctx.Err(), read(p, off)) }, nil)
	return err == nil, ctx.Err()
}

func (w *partJob) write(ctx context.Context) (err error) {
	var hashes []string
	if w.Job.Hash != nil {
		if hashes, err = w.Job.Hash(ctx, w.o.Part); err != nil {
			return err
		}
	}
	// The file's size is known before the units are done: their figures have fixed sizes.
	w.errors = make([]part.UnitError, w.report.Units)
	w.Tally = write.NewTally(w.Job, w.Units, w.Share.First)
	r, err := w.record(hashes)
	if err != nil {
		return err
	}
	if w.report.OutputBytes, err = r.PartSize(w.outline, w.template); err != nil {
		return err
	}
	sink, err := w.store.Create(ctx, w.report.Output, w.report.OutputBytes, nil)
	if err != nil {
		return err
	}
	defer sink.Abort()
	file := part.NewWriter(sink, w.header, w.extents)
	w.Out = []io.WriterAt{file}
	w.Writeback = func(_ int, off, n int64) {
		if at, err := file.Place(off, n); err == nil {
			startWriteback(sink, at, n)
		}
	}
	w.errors = w.errors[:0]
	w.Each = func(r write.Result) { w.errors = append(w.errors, part.UnitError{Noise: r.Noise, Signal: r.Signal}) }
	if err := w.DoUnits(ctx); err != nil {
		return err
	}
	if r, err = w.record(hashes); err != nil {
		return err
	}
	if err := cmp.Or(ctx.Err(), w.Job.In.Unchanged()); err != nil {
		return err
	}
	if err := file.Finish(r, w.outline, w.template); err != nil {
		return err
	}
	return sink.Commit()
}

func (w *partJob) record(hashes []string) (*part.Record, error) {
	r := &part.Record{Maker: w.o.Maker, Extents: w.extents, Tensors: make([]part.Tensor, 0, min(w.report.Units, len(w.Job.Items)))}
	for _, b := range part.Blocks(w.extents, w.header.DataStart) {
		r.Sums = append(r.Sums, w.target.Image.BlockSum(b).Register)
	}
	for i, runs := 0, w.Units.Runs; i < len(runs); {
		it, first := runs[i].First.Item, runs[i].Before
		for ; i < len(runs) && runs[i].First.Item == it; i++ {
		}
		end := w.Units.N
		if i < len(runs) {
			end = runs[i].Before
		}
		lo, hi := max(first, w.Share.First), min(end, w.Share.End)
		if lo >= hi {
			continue
		}
		e := it.Common()
		sum := &w.Tally.Items[e.Index]
		r.Tensors = append(r.Tensors, part.Tensor{TensorSums: part.TensorSums{
			Index: uint32(e.Index), First: uint32(lo - first), Units: uint32(hi - lo), Of: uint32(end - first), CRC: sum.Crc, Bytes: uint64(sum.Bytes),
			SmallScales: uint64(sum.SmallScales), Exact: uint64(sum.Recovered.Exact), Groups: uint64(sum.Recovered.Groups),
		}, Errors: w.errors[lo-w.Share.First : hi-w.Share.First]})
		if lo > first { // the part with the first unit sums absorbed tensors
			continue
		}
		for k, n := range e.Aliases {
			if !n.Absorbed {
				continue
			}
			r.Absorbed = append(r.Absorbed, part.NameSum{Name: uint32(w.target.Image.NameIndex(e.NameIndex + 1 + k)), CRC: sum.ScaleCRC})
		}
	}
	for i, h := range hashes {
		if h == "" {
			continue
		}
		f := part.FileHash{File: uint32(i)}
		if _, err := hex.Decode(f.SHA256[:], []byte(h)); err != nil {
			return nil, err
		}
		r.Hashes = append(r.Hashes, f)
	}
	return r, nil
}

// writeOutline writes the report without figures, tensor by tensor: its JSON is larger than all
// names.
func (w *partJob) writeOutline(to io.Writer) error {
	r := w.Run.Outline()
	tensors := r.Tensors
	r.Tensors = []write.TensorSQNR{}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	end := b[len(b)-len("]}"):] // of the list of tensors, which is the last member
	if _, err := to.Write(b[:len(b)-len(end)]); err != nil {
		return err
	}
	for i := range tensors {
		line, err := json.Marshal(&tensors[i])
		if err != nil {
			return err
		}
		if i > 0 {
			line = slices.Insert(line, 0, ',')
		}
		if _, err := to.Write(line); err != nil {
			return err
		}
	}
	_, err = to.Write(end)
	return err
}
