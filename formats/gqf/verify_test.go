package gqf

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/packing"
)

// TestEveryBit flips every single bit of a file's header and directory, and one bit of each byte of
// its data, which only checksums protect: OpenBytes or Verify must find it. With -short, as under
// emulation, it flips one bit in 97.
func TestEveryBit(t *testing.T) {
	good := build(t, sample())
	data := int(decodeHeader(good).dataOff)
	workers, step := runtime.GOMAXPROCS(0), 1
	if testing.Short() {
		step = 97
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			b := bytes.Clone(good)
			for i := w * step; i < 8*len(b); i += workers * step {
				if step == 1 && i/8 >= data && i%8 != i/8%8 {
					continue
				}
				b[i/8] ^= 1 << (i % 8)
				if f, err := OpenBytes(b, Options{}); err != nil {
					if _, ok := errors.AsType[*FormatError](err); !ok {
						t.Errorf("bit %d of byte %d: %v", i%8, i/8, err)
					}
				} else if r, err := f.Verify(context.Background(), VerifyOptions{Threads: 1}); err != nil || r.OK() {
					t.Errorf("bit %d of byte %d was not found: %v", i%8, i/8, err)
				} else if d := r.Damage[0]; int64(i/8) < d.Offset || int64(i/8) >= d.End {
					t.Errorf("bit %d of byte %d was found at %d..%d", i%8, i/8, d.Offset, d.End)
				}
				b[i/8] ^= 1 << (i % 8)
			}
		})
	}
	wg.Wait()
	t.Logf("%d bytes before the data, %d bytes of data", data, len(good)-data)
}

// exercise calls every method. Nothing may panic; errors are fine.
func exercise(t *testing.T, f *File) {
	for i := range f.Len() {
		tensor := f.Tensor(i)
		tensor.Names()
		if known := len(tensor.VariantsFor(CPUDotProd)) > 0; known != (tensor.Usable() == nil) {
			t.Errorf("tensor %d: known variants: %v, usable: %v", i, known, tensor.Usable())
		}
		for _, p := range tensor.Payloads() {
			f.Data(p)
		}
		InspectTensor(f, tensor.Name, 0)
	}
	f.Names()
	for _, a := range f.Assets() {
		f.Asset(a.Name)
	}
	Inspect(f)
	r, err := f.Verify(t.Context(), VerifyOptions{Threads: 1, Deep: true})
	if err == nil {
		for _, d := range r.Damage {
			_ = d.String()
		}
	}
}

// TestMutations opens 10,000 damaged files, 1000 with -short. A third of them have valid checksums,
// so that later checks are reached.
func TestMutations(t *testing.T) {
	good := build(t, sample())
	front := int(decodeHeader(good).sections[secChecksums].off) + 64
	opened, files := 0, uint64(10_000)
	if testing.Short() {
		files = 1000
	}
	for seed := range files {
		r := rand.New(rand.NewPCG(seed, 3))
		b := bytes.Clone(good)
		if seed%7 == 0 {
			b = b[:r.IntN(len(b))]
			b = b[:len(b):len(b)]
		}
		for range 1 + r.IntN(3) {
			if len(b) == 0 {
				break
			}
			at := r.IntN(len(b))
			if r.IntN(4) > 0 {
				at = r.IntN(min(front, len(b))) // in the header and the directory
			}
			switch r.IntN(4) {
			case 0:
				b[at] ^= 1 << r.IntN(8)
			case 1:
				b[at] = byte(r.Uint32())
			case 2: // a number that is close, huge or 0
				v := []uint32{0, 1, 0xFFFFFFFF, 1 << 31, uint32(len(b)), le.Uint32(append(bytes.Clone(b[at:]), 0, 0, 0, 0)) + uint32(r.IntN(5)) - 2}[r.IntN(6)]
				copy(b[at:], le.AppendUint32(nil, v))
			case 3: // move a run of bytes
				copy(b[at:min(at+r.IntN(100), len(b))], b[r.IntN(len(b)):])
			}
		}
		if seed%3 == 0 {
			reseal(b)
		}
		f, err := OpenBytes(b, Options{})
		if err != nil {
			_, format := errors.AsType[*FormatError](err)
			_, unsupported := errors.AsType[*UnsupportedError](err)
			_, foreign := errors.AsType[*ForeignError](err)
			if !format && !unsupported && !(foreign && !bytes.HasPrefix(b, []byte(magic))) {
				t.Fatalf("seed %d: %T: %v", seed, err, err)
			}
			continue
		}
		opened++
		exercise(t, f)
	}
	t.Logf("%d of %d could be opened", opened, files)
}

// FuzzOpen takes a file apart at its data region, so that the fuzzer need not work
// on the zeros before it; sealed files have right checksums in front. Run it with
// -fuzzminimizetime 10x: minimizing the inputs, whose coverage varies with the
// scheduling of goroutines, takes all the time otherwise.
func FuzzOpen(f *testing.F) {
	small := NewBuilder()
	i := small.AddTensor(TensorSpec{Name: "w", Shape: []int64{2, 9, 33}, Dtype: packing.BF16, Experts: 2})
	small.AddName(NameSpec{Name: "w", Tensor: i, SourceFile: -1})
	small.AddPayload(PayloadSpec{Tensor: i, Header: asymmetric(lowbit(9, 33, 16, 5))})
	small.AddPayload(PayloadSpec{Tensor: i, Slice: 1, Header: asymmetric(lowbit(9, 33, 16, 5))})
	small.AddAsset(AssetSpec{Kind: AssetFile, Name: "t", Data: bytes.Repeat([]byte("text"), 1000)})
	files := [][]byte{build(f, NewBuilder()), build(f, small), build(f, sample())}
	for _, p := range newerPayloads {
		files = append(files, newer(f, func(x *newerFile) { p.edit(x.record(secPayloads, projPayload)[payloadHeader:]) }))
	}
	files = append(files, newer(f, func(x *newerFile) { x.record(secAssets, 0)[36] = 77 }))
	for _, file := range files {
		h := decodeHeader(file)
		end := h.sections[secChecksums].off + h.sections[secChecksums].length
		f.Add(file[:end], file[h.dataOff:], true)
		f.Add(file[:end], file[h.dataOff:], false)
	}
	f.Fuzz(func(t *testing.T, front, data []byte, sealed bool) {
		b := make([]byte, alignUp(uint64(len(front)), dataAlign), alignUp(uint64(len(front)), dataAlign)+uint64(len(data)))
		copy(b, front)
		b = append(b, data...)
		if sealed {
			reseal(b)
		}
		if file, err := OpenBytes(b, Options{}); err == nil {
			exercise(t, file)
		}
	})
}

func TestVerifyReport(t *testing.T) {
	b := NewBuilder()
	// Three blocks: a in the first, b in all, c in the last; the last payload ends in a gap.
	for i, rows := range []int64{1000, 2_500_000, 333} {
		name := string(rune('a' + i))
		ti := b.AddTensor(TensorSpec{Name: name, Shape: []int64{rows}, Dtype: packing.U8})
		b.AddName(NameSpec{Name: name, Tensor: ti, SourceFile: -1})
		b.AddPayload(PayloadSpec{Tensor: ti, Header: packing.PlainHeader(packing.U8, 1, uint64(rows))})
	}
	li := b.AddTensor(TensorSpec{Name: "low", Shape: []int64{16, 32}, Dtype: packing.F32})
	b.AddName(NameSpec{Name: "low", Tensor: li, SourceFile: -1})
	b.AddPayload(PayloadSpec{Tensor: li, Header: lowbit(16, 32, 32, 4)})
	b.AddAsset(AssetSpec{Kind: AssetFile, Name: "t", Data: bytes.Repeat([]byte("text"), 1000)})
	good := build(t, b)
	f := open(t, good)
	pay := func(i int) int { return int(f.Payload(i).Offset) }
	tests := []struct {
		name   string
		at     int
		reseal bool // the block's checksum is right
		want   []string
	}{
		{"nothing", -1, false, nil},
		{"data of b in block 1", int(f.h.dataOff) + 1<<20 + 5, false, []string{`data block 1, bytes 1114112..2162687: checksum is`, `in tensor "b"`}},
		{"data of a", pay(0) + 70, false, []string{`data block 0, bytes 65536..1114111: checksum is`, `in tensor "a", "b"`}},
		{"packed header", pay(2) + 16, true, []string{`packed header differs from its copy in the directory; in tensor "c"`}},
		{"gap", pay(1) - 3, true, []string{`in the gap between payloads`}},
		{"sum of a panel", pay(3) + 64 + 16*8 + 2*8, true, []string{`panel 0 (data byte 144)`, `in tensor "low"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bad := bytes.Clone(good)
			if test.at >= 0 {
				bad[test.at] ^= 0x10
			}
			if test.reseal {
				h := decodeHeader(bad)
				for i := range int(h.sections[secChecksums].count) {
					from := int(h.dataOff) + i<<20
					le.PutUint32(bad[int(h.sections[secChecksums].off)+4*i:], crc32c.Checksum(bad[from:min(from+1<<20, len(bad))]))
				}
				reseal(bad)
			}
			f, err := Open(writeFile(t, bad), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var done int64
			o := VerifyOptions{Threads: 2, Deep: true, Progress: func(n int64) { done += n }}
			r, err := f.Verify(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if done != f.VerifyBytes(o) {
				t.Errorf("progress told of %d bytes, want %d", done, f.VerifyBytes(o))
			}
			if r.OK() != (test.want == nil) || len(r.Damage) > 1 {
				t.Fatalf("damage %v", r.Damage)
			}
			for _, want := range test.want {
				if s := r.Damage[0].String(); !strings.Contains(s, want) {
					t.Errorf("damage %q, want %q", s, want)
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Verify(ctx, VerifyOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestReport demands the form of a report for a file that cannot be opened.
func TestReport(t *testing.T) {
	bad := build(t, sample())
	bad[300] ^= 1
	_, err := OpenBytes(bad, Options{})
	fe, ok := errors.AsType[*FormatError](err)
	if !ok {
		t.Fatal(err)
	}
	if r := fe.Report(); r.OK() || r.Damage[0].Section != "tensors" || !strings.Contains(r.Damage[0].String(), "is damaged") {
		t.Errorf("%+v", r)
	}
}
