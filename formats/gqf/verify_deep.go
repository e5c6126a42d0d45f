package gqf

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// deepBytes returns the number of bytes that deep reads: codes, and companions with scales.
func (f *File) deepBytes() (n int64) {
	for i := range f.NumPayloads() {
		if p := f.Payload(i); p.Variant >= 0 && (p.Header.Layout != packing.LayoutPlain || p.Kind == KindScales) {
			n += p.Length - packing.HeaderSize
		}
	}
	return n
}

func (v *verifier) deep(ctx context.Context, threads int) error {
	var units []panelRun
	err := v.f.Guard(func() (err error) { units, err = v.panelRuns(); return err })
	if err != nil {
		return err
	}
	if err := v.f.parallel(ctx, threads, len(units), func(i int) { v.panels(&units[i]) }); err != nil {
		return err
	}
	return v.f.parallel(ctx, threads, v.f.NumPayloads(), v.companion)
}

// panelRun is a unit of deep verification: some panels of a payload.
type panelRun struct {
	pk       packing.Packer
	payload  int
	data     int64 // offset of the first panel in the file
	from, to int   // panels
}

// panelRuns divides the payloads of codes into units of about a MiB.
func (v *verifier) panelRuns() ([]panelRun, error) {
	var runs []panelRun
	var pk packing.Packer // shared by consecutive payloads with equal headers
	for k := range v.f.NumPayloads() {
		p := v.f.Payload(k)
		if p.Variant < 0 {
			if p.Slice == 0 && p.Kind == KindWeights {
				v.skipped++
			}
			continue
		}
		if p.Header.Layout == packing.LayoutPlain {
			continue
		}
		if pk == nil || pk.Header() != p.Header {
			var err error
			if pk, err = layouts.New(p.Header); err != nil {
				return nil, &UnsupportedError{v.f.name, fmt.Sprintf("tensor %q: %s", v.f.tensorName(p.Tensor), err)}
			}
		}
		data := p.Offset + packing.HeaderSize
		if prefix := pk.Prefix(); !bytes.Equal(v.f.b[data:data+int64(len(prefix))], prefix) {
			block := int((data - int64(v.f.h.dataOff)) / v.blockBytes)
			v.report(Damage{"data", block, data, data + int64(len(prefix)), v.shares([]int{k}), 0, "the layout's own header is not that of the packed header"})
		}
		data += int64(len(pk.Prefix()))
		v.done(int64(len(pk.Prefix())))
		step := max(1, 1<<20/pk.PanelBytes())
		for from := 0; from < pk.Panels(); from += step {
			runs = append(runs, panelRun{pk, k, data, from, min(from+step, pk.Panels())})
		}
	}
	return runs, nil
}

func (v *verifier) panels(u *panelRun) {
	size := int64(u.pk.PanelBytes())
	for i := u.from; i < u.to; i++ {
		off := u.data + int64(i)*size
		if err := u.pk.CheckPanel(i, v.f.b[off:off+size]); err != nil {
			at := off
			if pe, ok := errors.AsType[*packing.PanelError](err); ok {
				at = u.data - int64(len(u.pk.Prefix())) + pe.Offset
			}
			block := int((at - int64(v.f.h.dataOff)) / v.blockBytes)
			v.report(Damage{"data", block, at, off + size, v.shares([]int{u.payload}), 0, err.Error()})
		}
	}
	v.done(int64(u.to-u.from) * size)
}

// companion checks payload k for scales. Zero points cannot be wrong: every byte is valid.
func (v *verifier) companion(k int) {
	if p := v.f.Payload(k); p.Variant < 0 || p.Kind != KindScales {
		return
	}
	// Payloads are sorted by kind: weights come before scales, zero points behind.
	h, scales, zeros := v.f.Payload(k-1).Header, v.payloadData(k), []byte(nil)
	if h.ZeroKind.IsInt8() {
		zeros = v.payloadData(k + 1)
	}
	if at, msg := checkScales(h, scales, zeros); msg != "" {
		end := int64(v.f.payload(k).off) + packing.HeaderSize + int64(len(scales))
		at += end - int64(len(scales))
		block := int((at - int64(v.f.h.dataOff)) / v.blockBytes)
		v.report(Damage{"data", block, at, end, v.shares([]int{k}), 0, msg})
	}
	v.done(int64(len(scales)))
}

// payloadData returns the data of a payload, in place.
func (v *verifier) payloadData(k int) []byte {
	r := v.f.payload(k)
	return v.f.b[r.off+packing.HeaderSize : r.off+r.length]
}

// checkScales returns what the packer of weights with header h finds wrong with their companions,
// and the offset in the scales; or "".
func checkScales(h packing.Header, scales, zeros []byte) (at int64, msg string) {
	pk, err := layouts.New(h)
	if err == nil {
		pk, err = layouts.WithCompanions(pk, scales, zeros)
	}
	if c, ok := pk.(interface{ CheckCompanions() error }); ok && err == nil {
		err = c.CheckCompanions()
	}
	if pe, ok := errors.AsType[*packing.PanelError](err); ok {
		return pe.Offset, pe.Msg
	}
	if err != nil {
		return 0, err.Error()
	}
	return 0, ""
}
