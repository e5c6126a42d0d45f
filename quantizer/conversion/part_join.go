package conversion

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/part"
	"github.com/lowbit-go/gq/internal/atomicfile"
)

// join makes the file.
func (m *merge) join() (*Report, error) {
	if err := m.begin(); err != nil {
		return nil, err
	}
	defer func() {
		if m.file != nil {
			m.file.Abort()
		}
		if m.object != nil {
			m.object.abort(m.ctx)
		}
	}()
	for i := range m.bad.Of {
		if i == 0 && m.image == nil {
			continue // begin found it damaged
		}
		if err := m.note(i, m.openPart(i, m.add)); err != nil {
			return nil, err
		}
		if i == 0 && len(m.bad.Again) > 0 {
			break // the others are checked only against part 0
		}
	}
	if err := m.verdict(); err != nil {
		return nil, err
	}
	if err := m.complete(); err != nil {
		return nil, err
	}
	if err := m.finish(); err != nil {
		return nil, err
	}
	work := time.Since(m.start)
	if m.object != nil {
		if err := m.object.complete(m.ctx); err != nil {
			return nil, err
		}
	} else if err := m.file.Commit(); err != nil {
		return nil, err
	}
	r := m.report
	r.Output, r.Seconds = m.path, time.Since(m.start).Seconds()
	r.SyncSeconds, r.BytesPerSecond = r.Seconds-work.Seconds(), 0
	return r, nil
}

// begin reads from part 0 the plan of the whole file, and makes room for the file.
func (m *merge) begin() error {
	var first *part.Record
	err := m.openPart(0, func(f *part.File) (err error) {
		if first, err = f.Record(); err == nil {
			err = m.readFirst(first)
		}
		return err
	})
	if err := m.note(0, err); err != nil {
		return err
	}
	if err := m.verdict(); err != nil {
		return err
	}
	m.found, m.units = make([]itemResult, m.image.Tensors()), make([]unitRange, m.image.Tensors())
	m.hashes = map[uint32][32]byte{}
	total := m.bytes
	switch {
	case m.o.Store != nil:
		if m.object, err = newMergedObject(m.ctx, m.o.Store, m.image, &m.any); err != nil {
			return err
		}
	case m.any.Shared:
		if m.file, err = m.adopt(); err != nil {
			return err
		}
		total = m.image.Size() - m.image.DataStart()
	default:
		if err := m.checkSpace(); err != nil {
			return err
		}
		if m.file, err = atomicfile.Create(m.path); err != nil {
			return err
		}
		if err := m.file.Truncate(m.any.FileSize); err != nil {
			return err
		}
	}
	if m.o.Begin != nil {
		m.o.Begin(total)
	}
	return nil
}

// checkSpace refuses, before any work, a file that the parts leave no room for.
func (m *merge) checkSpace() error {
	dir := filepath.Dir(m.path)
	free, err := atomicfile.FreeSpace(dir)
	if err == nil && free < m.any.FileSize {
		err = fmt.Errorf("%s: the .gqf file needs %d bytes, %s has %d free: free some space, or make the parts with --shared", m.path, m.any.FileSize, dir, free)
	}
	return err
}

// readFirst makes the image of the file of the template in part 0.
func (m *merge) readFirst(r *part.Record) (err error) {
	name := part.Path(m.path, 0, m.bad.Of)
	if m.image, err = gqf.ParseTemplate(name, r.Template, gqf.Options{}); err != nil {
		return badf("its template: %w", err)
	}
	if m.image.Size() != r.FileSize || m.image.DataStart() != r.DataStart {
		return badf("%s: its template is of a file of %d bytes, the header says %d", name, m.image.Size(), r.FileSize)
	}
	if err := json.Unmarshal(r.Report, &m.report); err != nil || m.report == nil {
		return badf("%s: its report cannot be read: %v", name, err)
	}
	plan, _, err := part.HashPlan(r.Of, r.Maker, r.Samples, m.image.WriteTemplate)
	if err == nil && plan != r.Plan {
		err = badf("%s: its template is of another plan", name)
	}
	return err
}

// adopt opens the shared file, in which the data are at their places.
func (m *merge) adopt() (*atomicfile.File, error) {
	shared := part.SharedPath(m.path)
	f, err := atomicfile.Adopt(m.path, shared)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: it should have the data of all parts and is not there: make the parts again", shared)
	}
	if err != nil {
		return nil, err
	}
	if err := part.CheckShared(f, shared, &m.any); err != nil && !errors.Is(err, part.ErrMerging) {
		f.Abort()
		return nil, err
	}
	return f, nil
}

// add checks a part, and copies its data to the file unless they are there.
func (m *merge) add(f *part.File) error {
	r, err := f.Record()
	if err != nil {
		return err
	}
	name := part.Path(m.path, r.Index, r.Of)
	if m.object != nil {
		err = m.object.add(m.ctx, f, r, m.o.Progress)
		if _, bad := errors.AsType[badPart](err); err == nil || bad {
			err = cmp.Or(err, m.addRecord(r)) // see below
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return err
	}
	read := f.Find(r.Extents)
	if r.Shared {
		read = func(p []byte, off int64) error {
			_, err := m.file.ReadAt(p, off)
			return err
		}
	}
	var write error // of the merged file, not of the part
	err = r.CheckData(read, func(p []byte, off int64) error {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		if !r.Shared {
			if _, write = m.file.WriteAt(p, off); write != nil {
				return write
			}
			m.file.StartWriteback(off, int64(len(p)))
		}
		if m.o.Progress != nil {
			m.o.Progress(int64(len(p)))
		}
		return nil
	})
	_, damaged := errors.AsType[*part.DamageError](err)
	if err != nil && !damaged {
		return err
	}
	// Of damaged data too: the next part may go on within the same tensor.
	found := m.addRecord(r)
	if damaged {
		return badf("%s: %w", name, err)
	}
	if found != nil {
		return fmt.Errorf("%s: %w", name, found)
	}
	return nil
}

// addRecord adds a part's findings, in the order in which a single job adds them.
func (m *merge) addRecord(r *part.Record) error {
	sums := make([]gqf.BlockSum, len(r.Sums))
	for i, b := range part.Blocks(r.Extents, r.DataStart) {
		sums[i] = gqf.BlockSum{Block: b, Register: r.Sums[i]}
	}
	m.image.AddSums(part.DataBytes(r.Extents), sums)
	m.extents = append(m.extents, r.Extents...)
	for _, t := range r.Tensors {
		if int64(t.Index) >= int64(len(m.found)) {
			return badf("it has units of tensor %d, the file has %d tensors", t.Index, len(m.found))
		}
		u, sum := &m.units[t.Index], &m.found[t.Index]
		if t.First != u.next || u.next > 0 && t.Of != u.of {
			return badf("it has units from %d of %d of tensor %q, and earlier parts end at %d", t.First, t.Of, m.image.TensorName(int(t.Index)), u.next)
		}
		u.next, u.of = t.First+t.Units, t.Of
		sum.crc = gqf.CombineCRC32C(sum.crc, t.CRC, int64(t.Bytes))
		for _, e := range t.Errors {
			sum.noise += e.Noise
			sum.signal += e.Signal
		}
		sum.smallScales += int64(t.SmallScales)
		sum.recovered.add(Recovered{int64(t.Exact), int64(t.Groups)})
	}
	for _, a := range r.Absorbed {
		if int64(a.Name) >= int64(m.image.Names()) || !m.image.NameAt(int(a.Name)).Absorbed {
			return badf("it has the checksum of name %d, which is not absorbed", a.Name)
		}
		m.image.SetSourceCRC(int(a.Name), a.CRC)
	}
	for _, h := range r.Hashes {
		m.hashes[h.File] = h.SHA256
	}
	return nil
}

// complete checks that the parts together have all data, each byte once, and all units.
func (m *merge) complete() error {
	for i, u := range m.units {
		if u.next != u.of {
			return fmt.Errorf("%s: the parts have %d of %d units of tensor %q: they were not made by the same program", m.path, u.next, u.of, m.image.TensorName(i))
		}
	}
	slices.SortFunc(m.extents, func(a, b part.Extent) int { return cmp.Compare(a.Off, b.Off) })
	at := 0
	for i := range m.image.Payloads() {
		off, size := m.image.PayloadExtent(i)
		for end := off + size; off < end; at++ {
			if at == len(m.extents) || m.extents[at].Off != off || m.extents[at].Len > end-off {
				return fmt.Errorf("%s: no part, or more than one, has the data at byte %d: the parts were not made by the same program", m.path, off)
			}
			off += m.extents[at].Len
		}
	}
	if at != len(m.extents) {
		return fmt.Errorf("%s: a part has data at byte %d, where no payload is", m.path, m.extents[at].Off)
	}
	return nil
}

// finish writes everything but the data.
func (m *merge) finish() error {
	for i := range m.image.Names() {
		if n := m.image.NameAt(i); n.InCheckpoint && !n.Absorbed {
			m.image.SetSourceCRC(i, m.found[n.Tensor].crc)
		}
	}
	err := m.image.EditAsset(gqf.ProvenanceName, func(b []byte) error { return editHashes(b, m.hashes) })
	if err != nil {
		return err
	}
	at := 0
	found := make([]itemResult, len(m.report.Tensors))
	for i := range m.found {
		if at < len(found) && m.report.Tensors[at].Name == m.image.TensorName(i) {
			found[at] = m.found[i]
			at++
		}
	}
	if at != len(found) {
		return fmt.Errorf("%s: the report in part 0 has tensors that the file has not", m.path)
	}
	m.report.addFound(found)
	if m.object != nil { // its pieces have the packed headers
		if err := m.image.WritePayloadHeaders(discard{}); err != nil {
			return err
		}
		return m.image.WriteFront(m.object)
	}
	if err := m.image.WritePayloadHeaders(m.file); err != nil {
		return err
	}
	if m.any.Shared {
		if err := m.image.WriteGaps(m.file); err != nil {
			return err
		}
		return m.image.WriteFront(headLast{m.file})
	}
	return m.image.WriteFront(m.file)
}

// headLast syncs a file before its first bytes are written: a shared file that begins as a .gqf file is
// complete, even after a power failure.
type headLast struct{ *atomicfile.File }

func (f headLast) WriteAt(p []byte, off int64) (int, error) {
	if off == 0 {
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return f.File.WriteAt(p, off)
}

// discard takes bytes that are elsewhere already.
type discard struct{}

func (discard) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// editHashes puts the hashes of source files into a provenance in place. nil: it removes them.
func editHashes(b []byte, hashes map[uint32][32]byte) error {
	var p Provenance
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	for i := range p.Sources {
		s := &p.Sources[i]
		if s.SHA256 == "" {
			continue
		}
		h, ok := hashes[uint32(i)]
		if hashes != nil && !ok {
			return fmt.Errorf("no part has the hash of %s", s.Name)
		}
		s.SHA256 = hex.EncodeToString(h[:])
	}
	edited, err := json.MarshalIndent(p, "", "  ")
	if err == nil && len(edited) != len(b) {
		err = fmt.Errorf("the provenance would have %d bytes, not %d", len(edited), len(b))
	}
	copy(b, edited)
	return err
}
