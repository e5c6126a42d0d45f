package divide

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/job/part"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/write"
)

// join makes the file.
func (m *merge) join() (*write.Report, error) {
	if err := m.begin(); err != nil {
		return nil, err
	}
	defer m.sink.Abort()
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
	if err := m.sink.Commit(); err != nil {
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
	m.found, m.units = make([]write.ItemResult, m.image.Tensors()), make([]unitRange, m.image.Tensors())
	m.hashes = map[uint32][32]byte{}
	if m.sink, err = m.store.Create(m.ctx, m.path, m.any.FileSize, m.image.Gaps()); err != nil {
		return err
	}
	m.stream = m.image.NewStream(m.sink)
	if m.o.Begin != nil {
		m.o.Begin(m.bytes)
	}
	return nil
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

// add checks a part, and copies its data to the file.
func (m *merge) add(f *part.File) error {
	r, err := f.Record()
	if err != nil {
		return err
	}
	name := part.Path(m.path, r.Index, r.Of)
	err = r.CheckData(f.Find(r.Extents), func(p []byte, off int64) error {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		if _, err := m.stream.WriteAt(p, off); err != nil {
			return err
		}
		startWriteback(m.sink, off, int64(len(p)))
		if m.o.Progress != nil {
			m.o.Progress(int64(len(p)))
		}
		return nil
	})
	_, damaged := errors.AsType[*part.DamageError](err)
	if err != nil && !damaged {
		return err
	}
	// Record damaged data, too. The next part may continue the same tensor.
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
		sum.Crc = crc32c.Combine(sum.Crc, t.CRC, int64(t.Bytes))
		for _, e := range t.Errors {
			sum.Noise += e.Noise
			sum.Signal += e.Signal
		}
		sum.SmallScales += int64(t.SmallScales)
		sum.Recovered.Add(write.Recovered{Exact: int64(t.Exact), Groups: int64(t.Groups)})
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
			m.image.SetSourceCRC(i, m.found[n.Tensor].Crc)
		}
	}
	err := m.image.EditAsset(gqf.ProvenanceName, func(b []byte) error { return provenance.EditHashes(b, m.hashes) })
	if err != nil {
		return err
	}
	at := 0
	found := make([]write.ItemResult, len(m.report.Tensors))
	for i := range m.found {
		if at < len(found) && m.report.Tensors[at].Name == m.image.TensorName(i) {
			found[at] = m.found[i]
			at++
		}
	}
	if at != len(found) {
		return fmt.Errorf("%s: the report in part 0 has tensors that the file has not", m.path)
	}
	m.report.AddFound(found)
	if err := m.stream.Finish(); err != nil {
		return err
	}
	return m.image.WriteFront(m.sink)
}
