package conversion

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/lowbit-go/gq/formats/part"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// PartOptions are the options of WritePart.
type PartOptions struct {
	Part
	// Shared writes the data to a file that all workers see, instead of the part file. Default: false.
	Shared bool
	// Store is where the parts make an object, for which the path of the file then stands in reports.
	// Default (nil): parts are files.
	Store PartStore
	// Maker names the version of the program. All parts of a file need the same one.
	Maker string
	// Begin is called with the bytes of the part's source before they are read, unless the part is there.
	// Default: none.
	Begin func(total int64)
}

// PartReport describes a part that WritePart made or found.
type PartReport struct {
	Part
	Plan   string `json:"plan"`             // the abbreviated digest of the plan, which all parts of a file share
	Output string `json:"output"`           // the part file
	Shared string `json:"shared,omitempty"` // the file with the data, if it is another one
	// Found reports whether the part was there already, complete and undamaged.
	Found bool `json:"found"`
	// Merged reports whether the parts are merged already in an object store. Found is set too, and the part
	// is not there.
	Merged      bool     `json:"merged,omitempty"`
	Units       int      `json:"units"`        // pieces of work of the part
	AllUnits    int      `json:"all_units"`    // of all parts
	SourceBytes int64    `json:"source_bytes"` // of the checkpoint's tensors, for which the part has data
	DataBytes   int64    `json:"data_bytes"`   // of the .gqf file
	OutputBytes int64    `json:"output_bytes"` // of the part file
	Warnings    []string `json:"warnings"`
	Seconds     float64  `json:"seconds"`
}

// WritePart makes one part of the file that Write puts at path; MergeParts joins all parts. A part that
// is there is made again only if it is of another plan, or damaged.
func (p *Plan) WritePart(ctx context.Context, path string, o PartOptions) (*PartReport, error) {
	r, err := p.writePart(ctx, path, o)
	if errors.Is(err, ErrUploadGone) { // the workers agreed on another upload: once more for that one
		r, err = p.writePart(ctx, path, o)
	}
	return r, err
}

func (p *Plan) writePart(ctx context.Context, path string, o PartOptions) (*PartReport, error) {
	start := time.Now()
	w, err := p.newPartJob(path, o)
	if err != nil {
		return nil, err
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

// partJob makes one part.
type partJob struct {
	*job
	o            PartOptions
	path         string // of the .gqf file
	target       *gqfTarget
	extents      []part.Extent
	header       part.Header
	templateSize int64 // in part 0, else 0
	errors       []part.UnitError
	report       PartReport
}

func (p *Plan) newPartJob(path string, o PartOptions) (*partJob, error) {
	out, ok := p.out.(*gqfOutput)
	if !ok {
		return nil, quantizer.Requestf("parts are for .gqf files, not for %s: merge a .gqf file, and write the other one with gq export", p.out.noun())
	}
	if err := o.Check(); err != nil {
		return nil, quantizer.Requestf("%w", err)
	}
	j, err := p.jobWith(&CalibratedCodes{}, nil)
	if err != nil {
		return nil, err
	}
	w := &partJob{job: j, o: o, path: path, target: j.target.(*gqfTarget)}
	if o.Shared && o.Store != nil {
		return nil, quantizer.Requestf("a shared file is no object: leave it out")
	}
	j.share = j.units.share(o.Part)
	if w.extents, err = w.target.extents(j.units, j.share); err != nil {
		return nil, err
	}
	im := w.target.image
	w.header = part.Header{Shared: o.Shared, Object: o.Store != nil, Index: o.Index, Of: o.Of, FileSize: im.Size(), DataStart: im.DataStart()}
	if p.ck != nil {
		if w.header.Samples, err = p.ck.SampleDigest(); err != nil {
			return nil, err
		}
	}
	if w.header.Plan, w.templateSize, err = part.HashPlan(o.Of, o.Maker, w.header.Samples, im.WriteTemplate); err != nil {
		return nil, err
	}
	if o.Index != 0 {
		w.templateSize = 0
	}
	r := &w.report
	r.Plan = w.header.PlanName()
	r.Part, r.Output, r.Warnings = o.Part, part.Path(path, o.Index, o.Of), append([]string{}, p.Warnings...)
	if o.Shared {
		r.Shared = part.SharedPath(path)
	}
	r.Units, r.AllUnits, r.DataBytes = j.share.end-j.share.first, j.units.n, part.DataBytes(w.extents)
	for i := j.share.first; i < j.share.end; i++ {
		r.SourceBytes += j.units.at(i).progressBytes()
	}
	if o.Store != nil {
		return w, nil
	}
	paths := []string{path, r.Output}
	if o.Shared {
		paths = append(paths, r.Shared)
	}
	return w, p.checkPlace(path, o.String()+" of "+out.noun(), out.home(path), r.DataBytes, paths...)
}

// extents lists the bytes of the file that the units of a share write, in ascending order.
func (t *gqfTarget) extents(units *unitList, s share) ([]part.Extent, error) {
	var list []part.Extent
	var sinks []sink
	var of *quantized // whose sinks these are
	for _, r := range units.runs {
		lo, hi := max(r.before, s.first), min(r.end(), s.end)
		if lo >= hi {
			continue
		}
		u := r.units(lo-r.before, hi-r.before)
		switch it := u.item.(type) {
		case *unquantized:
			list = append(list, part.Extent{Off: t.image.PayloadOffset(it.payload) + packing.HeaderSize + u.first, Len: u.count})
		case *quantized:
			if u.sum {
				continue
			}
			var err error
			if of != it {
				if sinks, err = t.sinks(sinks[:0], it); err != nil {
					return nil, err
				}
				of = it
			}
			for _, k := range sinks {
				if list, err = k.(*layoutPacking).extents(list, it, u); err != nil {
					return nil, err
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b part.Extent) int { return cmp.Compare(a.Off, b.Off) })
	return list, nil
}

// open opens the part if it is there.
func (w *partJob) open(ctx context.Context) (*part.File, error) {
	if w.o.Store == nil {
		return part.Open(w.report.Output)
	}
	r, size, err := w.o.Store.Open(ctx, w.o.Part)
	if err != nil {
		return nil, err
	}
	return part.OpenReader(w.report.Output, r, size)
}

// find reports whether the part is there, of this plan and undamaged, or merged already.
func (w *partJob) find(ctx context.Context) (bool, error) {
	found, err := w.findPart(ctx)
	if found || err != nil || w.o.Store == nil {
		return found, err
	}
	w.report.Merged, err = w.merged(ctx)
	return w.report.Merged, err
}

// merged reports whether the object that the parts make is complete.
func (w *partJob) merged(ctx context.Context) (bool, error) {
	return isMerged(ctx, w.o.Store, w.path, &w.header, w.o.Maker)
}

// findPart reports whether the part is there, of this plan and undamaged.
func (w *partJob) findPart(ctx context.Context) (bool, error) {
	f, err := w.open(ctx)
	if err != nil {
		if _, damaged := errors.AsType[*part.FormatError](err); damaged || errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	defer f.Close()
	if f.Plan != w.header.Plan || f.Index != w.o.Index || f.Of != w.o.Of || f.Shared != w.o.Shared || f.Object != (w.o.Store != nil) {
		return false, nil
	}
	r, err := f.Record()
	if err != nil || !slices.Equal(r.Extents, w.extents) {
		return false, nil
	}
	w.report.OutputBytes = f.Size()
	if w.o.Store != nil {
		if ok, err := sent(ctx, w.o.Store, r); err != nil || !ok {
			return false, err
		}
		return r.CheckStored(f.Find(r.StoredExtents()), nil) == nil, ctx.Err()
	}
	read := f.Find(r.Extents)
	if w.o.Shared {
		s, err := w.sharedData()
		if s == nil || err != nil {
			return false, err
		}
		defer s.Close()
		read = func(p []byte, off int64) error {
			_, err := s.ReadAt(p, off)
			return err
		}
	}
	err = r.CheckData(func(p []byte, off int64) error { return cmp.Or(ctx.Err(), read(p, off)) }, nil)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return err == nil, nil
}

// sharedData opens the file that has the data of all parts: the shared file, or the .gqf file that a merge
// has made of it. It returns nil if neither is there.
func (w *partJob) sharedData() (*os.File, error) {
	name := part.SharedPath(w.path)
	f, _, err := files.Open(name)
	switch {
	case err == nil:
		err = part.CheckShared(f, name, &w.header)
		if errors.Is(err, part.ErrMerging) && w.hasPlan(f) {
			err = nil
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	f, _, err = files.Open(w.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && !w.hasPlan(f) { // an older file
		f.Close()
		return nil, nil
	}
	return f, err
}

// hasPlan reports whether a file begins with the front of the complete .gqf file.
func (w *partJob) hasPlan(file io.ReaderAt) bool { return hasPlan(w.path, file, &w.header, w.o.Maker) }

// write makes the part.
func (w *partJob) write(ctx context.Context) error {
	if w.o.Store != nil {
		return w.upload(ctx)
	}
	out, err := part.Create(w.report.Output, w.header, w.extents)
	if err != nil {
		return err
	}
	defer out.Abort()
	w.out = []io.WriterAt{out}
	w.writeback = func(_ int, off, n int64) { out.StartWriteback(off, n) }
	var shared *part.Shared
	if w.o.Shared {
		if shared, err = part.OpenShared(w.path, &w.header, w.hasPlan); err != nil {
			return err
		}
		defer shared.Close()
		w.out, w.writeback = []io.WriterAt{shared}, nil
	}
	r, err := w.make(ctx)
	if err != nil {
		return err
	}
	if shared != nil { // the part file says that its data are there
		if err := shared.Sync(); err != nil {
			return err
		}
	}
	w.report.OutputBytes, err = out.Commit(r, w.templateSize, w.target.image.WriteTemplate)
	return err
}

// upload makes the part of an object.
func (w *partJob) upload(ctx context.Context) error {
	u, err := newPartUpload(ctx, w.o.Store, w.target.image, &w.header, w.extents)
	if err != nil {
		return err
	}
	w.out = []io.WriterAt{&u.objectPieces}
	r, err := w.make(ctx)
	if err = cmp.Or(u.Wait(), err); err == nil {
		err = u.describe(r)
	}
	if err != nil {
		return err
	}
	b, err := r.Encode(w.header, u.data, w.templateSize, w.target.image.WriteTemplate)
	if err != nil {
		return err
	}
	w.report.OutputBytes = int64(len(b))
	if err := w.o.Store.Write(ctx, w.o.Part, b); err != nil {
		return err
	}
	return w.checkUpload(ctx, r.Upload)
}

// checkUpload finds that the upload of a part was ended while the part was made: by a merge of the part that
// another worker has made at the same time, or by another job.
func (w *partJob) checkUpload(ctx context.Context, id string) (err error) {
	if w.report.Merged, err = w.merged(ctx); err != nil {
		return err
	}
	if w.report.Merged {
		return w.o.Store.Remove(ctx, w.o.Part)
	}
	if id == "" {
		return nil
	}
	if u, err := sharedUpload(ctx, w.o.Store); err != nil || u == nil || u.ID() != id {
		return cmp.Or(err, ErrUploadGone)
	}
	return nil
}

// make writes the data of the part, and returns its record.
func (w *partJob) make(ctx context.Context) (r *part.Record, err error) {
	var hashes []string
	if w.plan.opts.Recipe.HashFiles {
		if hashes, err = w.plan.hashShare(ctx, w.o.Part); err != nil {
			return nil, err
		}
	}
	w.errors = make([]part.UnitError, 0, w.report.Units)
	w.each = func(r unitResult) { w.errors = append(w.errors, part.UnitError{Noise: r.noise, Signal: r.signal}) }
	if err := w.run(ctx); err != nil {
		return nil, err
	}
	if r, err = w.record(hashes); err != nil {
		return nil, err
	}
	return r, cmp.Or(ctx.Err(), w.plan.in.unchanged())
}

// record collects the part file's description of its data.
func (w *partJob) record(hashes []string) (*part.Record, error) {
	r := &part.Record{Maker: w.o.Maker, Extents: w.extents}
	for _, b := range part.Blocks(w.extents, w.header.DataStart) {
		r.Sums = append(r.Sums, w.target.image.BlockSum(b).Register)
	}
	for i, runs := 0, w.units.runs; i < len(runs); {
		it, first := runs[i].first.item, runs[i].before
		for ; i < len(runs) && runs[i].first.item == it; i++ {
		}
		end := w.units.n
		if i < len(runs) {
			end = runs[i].before
		}
		lo, hi := max(first, w.share.first), min(end, w.share.end)
		if lo >= hi {
			continue
		}
		e := it.common()
		sum := &w.tally.items[e.index]
		r.Tensors = append(r.Tensors, part.Tensor{
			Index: uint32(e.index), First: uint32(lo - first), Units: uint32(hi - lo), Of: uint32(end - first), CRC: sum.crc, Bytes: uint64(sum.bytes),
			SmallScales: uint64(sum.smallScales), Exact: uint64(sum.recovered.Exact), Groups: uint64(sum.recovered.Groups),
			Errors: w.errors[lo-w.share.first : hi-w.share.first],
		})
		if lo > first { // the part with the first unit sums absorbed tensors
			continue
		}
		for k, n := range e.aliases {
			if !n.absorbed {
				continue
			}
			r.Absorbed = append(r.Absorbed, part.NameSum{Name: uint32(w.target.image.NameIndex(e.nameIndex + 1 + k)), CRC: sum.scaleCRC})
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
	if w.o.Index != 0 {
		return r, nil
	}
	var err error
	r.Report, err = json.Marshal(w.outline())
	return r, err
}
