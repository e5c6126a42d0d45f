package conversion

import (
	"path/filepath"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/model/llamacpp"
	"github.com/lowbit-go/gq/packing"
)

// gqfOutput makes a .gqf file: each item's payloads, with the directory, names and assets.
type gqfOutput struct {
	*Plan
	// assets are all but the provenance of a checkpoint, which is complete only when the file is written.
	assets []gqf.PackedAsset
}

func (o *gqfOutput) noun() string                            { return "the .gqf file" }
func (o *gqfOutput) paths(path string) ([]string, error)     { return []string{path}, nil }
func (o *gqfOutput) home(path string) string                 { return filepath.Dir(path) }
func (o *gqfOutput) begin(*planner, []llamacpp.Source) error { return nil }

// dataBytes counts all variants, companions and packed headers.
func (o *gqfOutput) dataBytes(it item) (n int64, err error) {
	slices := int64(1)
	if q, ok := it.(*quantized); ok {
		slices = int64(q.slices)
	}
	for _, h := range it.headers() {
		size, err := h.DataSize()
		if err != nil {
			return 0, err
		}
		n += slices * (size + packing.HeaderSize)
	}
	return n, nil
}

// layOut gives items, names and payloads the indices that newImage adds them by.
func (o *gqfOutput) layOut(pl *planner) (err error) {
	names, payloads := 0, 0
	for _, it := range pl.items {
		e := it.common()
		e.nameIndex = names
		names += 1 + len(e.aliases)
		switch it := it.(type) {
		case *unquantized:
			it.payload = payloads
			payloads++
		case *quantized:
			for j := range it.variants {
				v := &it.variants[j]
				v.payload = payloads
				payloads += it.slices * len(v.headers())
			}
		}
	}
	o.assets, err = o.in.assets(pl)
	return err
}

func (o *gqfOutput) copyUnits(list *unitList, it *unquantized) {
	list.cut(unit{item: it}, it.src.Size, unitBytes)
}

func (o *gqfOutput) target(c *CalibratedCodes, hashes []string) (target, error) {
	im, err := o.newImage(c, hashes)
	return &gqfTarget{image: im}, err
}

// newImage makes the directory of the file with everything's offset. hashes are the SHA-256 of the source files, if they
// are wanted and known.
func (p *gqfOutput) newImage(c *CalibratedCodes, hashes []string) (*gqf.Image, error) {
	b := gqf.NewBuilder()
	payloads := len(p.items)
	for it := range p.quantized() {
		payloads += it.slices*len(it.variants) - 1
	}
	b.Grow(len(p.items), payloads, 0)
	biases := p.biases()
	for i, it := range p.items {
		e := it.common()
		it.addTo(b, gqf.TensorSpec{Name: e.name(), Shape: e.src.Shape, Dtype: e.src.Dtype, Role: e.role, Algorithm: p.in.algorithm(it, c), Bias: biases[i]})
	}
	for _, a := range p.assets {
		b.AddPacked(a)
	}
	if err := p.in.addOrigin(b, c, hashes); err != nil {
		return nil, err
	}
	return b.Build()
}

// biases gives, for each item, 1 + the index of the item with the layer's bias; 0
// where there is none. A file that is repacked says so itself, if it does.
func (p *Plan) biases() []int {
	byName := make(map[string]int, len(p.items))
	for i, it := range p.items {
		byName[it.common().name()] = i + 1
	}
	list := make([]int, len(p.items))
	for i, it := range p.items {
		if list[i] = p.in.bias(it.common()); list[i] != 0 {
			continue
		}
		for _, name := range p.in.names(it.common()) {
			if list[i] = byName[biasName(name)]; list[i] != 0 {
				break
			}
		}
	}
	for i, b := range list {
		if b != 0 && list[b-1] != 0 {
			list[i] = 0 // a link leads to a tensor without one
		}
	}
	return list
}

// gqfTarget is a .gqf file that is written.
type gqfTarget struct {
	image  *gqf.Image
	stream *gqf.Stream // writes the headers of payloads; nil: finish writes them
}

func (t *gqfTarget) sizes() []int64                   { return []int64{t.image.Size()} }
func (t *gqfTarget) paths(path string) []string       { return []string{path} }
func (t *gqfTarget) output(path string) (string, int) { return path, 1 }
func (t *gqfTarget) written(off int64, b []byte)      { t.image.AddData(off, b) }

func (t *gqfTarget) sinks(list []sink, it *quantized) ([]sink, error) {
	for i := range it.variants {
		p, err := newLayoutPacking(it, &it.variants[i], t.image)
		if err != nil {
			return list, err
		}
		list = append(list, p)
	}
	return list, nil
}

func (t *gqfTarget) copy(w *worker, it *unquantized, u unit, r *unitResult) error {
	b, crc, err := w.job.piece(&it.entry, u.first, u.count, &w.piece)
	if err != nil {
		return err
	}
	r.crc = crc
	return w.write(0, b, t.image.PayloadOffset(it.payload)+packing.HeaderSize+u.first)
}

// finish records the checksums of the sources, and writes the headers of the payloads and the directory.
func (t *gqfTarget) finish(j *job) error {
	if j.found != nil {
		t.setSourceCRCs(j)
	}
	headers := func() error { return t.image.WritePayloadHeaders(j.out[0]) }
	if t.stream != nil {
		headers = t.stream.Finish
	}
	if err := headers(); err != nil {
		return err
	}
	return t.image.WriteFront(j.out[0])
}

func (t *gqfTarget) setSourceCRCs(j *job) {
	for _, it := range j.plan.items {
		e := it.common()
		sum := j.found[e.index].crc
		if e.name() == e.src.Name {
			t.image.SetSourceCRC(e.nameIndex, sum)
		}
		for i, n := range e.aliases {
			at := e.nameIndex + 1 + i
			switch {
			case n.absorbed:
				t.image.SetSourceCRC(at, j.found[e.index].scaleCRC)
			case !n.absent: // a second name is there only with the same content, so with the same sum
				t.image.SetSourceCRC(at, sum)
			}
		}
	}
}

// check does nothing: the file's own checksums are computed from the packed bytes.
func (o *gqfOutput) check(*job, *temporaries, string) error { return nil }
