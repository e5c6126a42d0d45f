package calib

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

// ggufTestTensor is a tensor of a file that a test writes.
type ggufTestTensor struct {
	name   string
	dims   []uint64
	values []float32
	kind   uint32 // 0: F32
}

// ggufTestFile makes a file as llama-imatrix does, or with another general.type.
type ggufTestFile struct {
	general string
	tensors []ggufTestTensor
}

func ggufText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func (f ggufTestFile) bytes() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte("GGUF"), 3)
	b = le.AppendUint64(le.AppendUint64(b, uint64(len(f.tensors))), 4)
	b = ggufText(le.AppendUint32(ggufText(b, "general.type"), 8), cmp.Or(f.general, "imatrix"))
	b = le.AppendUint32(ggufText(b, "imatrix.datasets"), 9)
	b = le.AppendUint64(le.AppendUint32(b, 8), 2)
	b = ggufText(ggufText(b, "wiki.train.raw"), "more.txt")
	b = le.AppendUint32(le.AppendUint32(ggufText(b, "imatrix.chunk_count"), 4), 12)
	b = le.AppendUint32(le.AppendUint32(ggufText(b, "imatrix.chunk_size"), 4), 512)
	pad := func(b []byte) []byte { return append(b, make([]byte, (32-len(b)%32)%32)...) }
	var data []byte
	for _, t := range f.tensors {
		b = le.AppendUint32(ggufText(b, t.name), uint32(len(t.dims)))
		for _, d := range t.dims {
			b = le.AppendUint64(b, d)
		}
		b = le.AppendUint64(le.AppendUint32(b, t.kind), uint64(len(data)))
		for _, v := range t.values {
			data = le.AppendUint32(data, math.Float32bits(v))
		}
		data = pad(data)
	}
	return append(pad(b), data...)
}

// ramp returns n numbers from first on.
func ramp(first float32, n int) []float32 {
	list := make([]float32, n)
	for i := range list {
		list[i] = first + float32(i)
	}
	return list
}

// dense is a matrix with one count, whose tensors have no dimension for experts.
func dense(name string, count float32, sums []float32) []ggufTestTensor {
	return []ggufTestTensor{
		{name: name + ".in_sum2", dims: []uint64{uint64(len(sums))}, values: sums},
		{name: name + ".counts", dims: []uint64{1}, values: []float32{count}},
	}
}

// fused has all experts in one entry, with the plain sums of newer files.
func fused(name string, counts, sums []float32) []ggufTestTensor {
	n := uint64(len(counts))
	dims := []uint64{uint64(len(sums)) / n, n}
	return []ggufTestTensor{
		{name: name + ".in_sum2", dims: dims, values: sums},
		{name: name + ".counts", dims: []uint64{1, n}, values: counts},
		{name: name + ".in_sum", dims: dims, values: make([]float32, len(sums))},
	}
}

type ggufEntry struct {
	name   string
	counts []int64
	sums   []float64
}

func ggufEntries(data []byte) (list []ggufEntry, err error) {
	_, err = readGGUF(data, func(name string, counts []int64, sums []float64) error {
		list = append(list, ggufEntry{name, counts, sums})
		return nil
	})
	return list, err
}

func TestReadGGUF(t *testing.T) {
	tensors := append(dense("blk.0.attn_q.weight", 1536, ramp(1, 5)), fused("blk.1.ffn_up_exps.weight", []float32{7, 0}, []float32{1, 2.5, 0, 0})...)
	want := []ggufEntry{
		{"blk.0.attn_q.weight", []int64{1536}, []float64{1, 2, 3, 4, 5}},
		{"blk.1.ffn_up_exps.weight", []int64{7, 0}, []float64{1, 2.5, 0, 0}},
	}
	if got, err := ggufEntries(ggufTestFile{tensors: tensors}.bytes()); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestReadGGUFErrors(t *testing.T) {
	good := dense("w", 3, ramp(1, 4))
	tensors := func(edit func(t []ggufTestTensor)) ggufTestFile {
		list := dense("w", 3, ramp(1, 4))
		edit(list)
		return ggufTestFile{tensors: list}
	}
	whole := ggufTestFile{tensors: good}.bytes()
	description := int64(strings.Index(string(whole), "w.in_sum2") - 8)
	for _, c := range []struct {
		name   string
		file   ggufTestFile
		want   string
		offset int64 // -1: not tested
	}{
		{"a model", ggufTestFile{general: "model", tensors: good}, `a GGUF file of type "model", not of type "imatrix"`, 0},
		{"nothing", ggufTestFile{}, "it has no matrices", 0},
		{"type", tensors(func(t []ggufTestTensor) { t[0].kind = 24 }), `tensor "w.in_sum2" has type I8: an imatrix has tensors of F32`, description},
		{"no counts", ggufTestFile{tensors: good[:1]}, `tensor "w.in_sum2" has no "w.counts" beside it`, description},
		{"no sums", ggufTestFile{tensors: []ggufTestTensor{{name: "w.counts", dims: []uint64{1}, values: []float32{1}}}}, `tensor "w.counts" has no "w.in_sum2" beside it`, description},
		{"sums", ggufTestFile{tensors: []ggufTestTensor{
			{name: "w.in_sum2", dims: []uint64{5}, values: ramp(1, 5)}, {name: "w.counts", dims: []uint64{1, 2}, values: ramp(1, 2)}}},
			`5 sums of "w" are not those of 2 matrices`, description},
		{"negative", ggufTestFile{tensors: dense("w", 3, []float32{0, -1, 2})}, `element 1 of tensor "w.in_sum2" is -1: want a finite number`, -1},
		{"NaN", ggufTestFile{tensors: dense("w", float32(math.NaN()), ramp(1, 4))}, `element 0 of tensor "w.counts" is NaN: want a finite number`, -1},
		{"count", ggufTestFile{tensors: dense("w", 1e20, ramp(1, 4))}, `"w" has seen 1.0000000200408773e+20 tokens`, -1},
	} {
		_, err := ggufEntries(c.file.bytes())
		var bad *gguf.FormatError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v\nwant  %s", c.name, err, c.want)
		} else if c.offset >= 0 && bad.Offset != c.offset {
			t.Errorf("%s: at byte %d, want %d", c.name, bad.Offset, c.offset)
		}
	}
	for n := range whole[:len(whole)-28] { // the last tensor's padding may be missing
		if _, err := ggufEntries(whole[:n]); err == nil {
			t.Errorf("%d bytes of %d are an imatrix", n, len(whole))
		}
	}
}

// TestImatrixGGUF reads names of llama.cpp, dense and fused experts; no token reached expert 0.
func TestImatrixGGUF(t *testing.T) {
	root := filepath.Join(testshared.Root(t), "internal", "lm", "forward", "testdata", "torch")
	r := quantizer.Recipe{Bits: 4, Group: new(16), Algorithm: gqf.AlgorithmImatrix, Rules: []quantizer.Rule{{Match: `re:.*(_proj|w[123])(\.weight)?`, Bits: 4}}}
	for _, tc := range []struct{ dir, up, down string }{
		{"mixtral", "model.layers.0.block_sparse_moe.experts.%.w3.weight", "model.layers.0.block_sparse_moe.experts.%.w2.weight"},
		{"qwen3-moe", "model.layers.0.mlp.experts.%.up_proj.weight", "model.layers.0.mlp.experts.%.down_proj.weight"},
	} {
		p := testplan.New(t, filepath.Join(root, tc.dir), r)
		cols, experts := map[string]int{}, 0
		for _, m := range p.Matrices() {
			cols[m.Name()] = m.Cols
		}
		name := func(pattern string, i int) string { return strings.ReplaceAll(pattern, "%", string(rune('0'+i))) }
		for cols[name(tc.up, experts)] > 0 {
			experts++
		}
		if experts < 2 {
			t.Fatalf("%s has %d experts", tc.dir, experts)
		}
		k, down := cols[name(tc.up, 0)], cols[name(tc.down, 0)]
		const q = "model.layers.0.self_attn.q_proj.weight"
		counts := ramp(0, experts) // no token reached expert 0
		tensors := dense("blk.0.attn_q.weight", 40, ramp(0, cols[q]))
		tensors = append(tensors, fused("blk.0.ffn_up_exps.weight", counts, ramp(0, experts*k))...)
		// One count for all.
		tensors = append(tensors, dense("blk.0.ffn_down_exps.weight", 9, ramp(0, experts*down))...)
		// Not quantized.
		tensors = append(tensors, dense("blk.0.ffn_gate_inp.weight", 40, ramp(0, 8))...)
		im, err := ReadImatrix(ggufTestFile{tensors: tensors}.bytes(), p)
		if err != nil {
			t.Fatalf("%s: %v", tc.dir, err)
		}
		if m := im.Linears[q]; m == nil || m.Rows != 40 || m.Sum[3] != 3 {
			t.Errorf("%s: q: %+v", tc.dir, m)
		}
		for i := range experts {
			up, d := im.Linears[name(tc.up, i)], im.Linears[name(tc.down, i)]
			if d == nil || d.Rows != 9 || len(d.Sum) != down || d.Sum[0] != float64(i*down) {
				t.Errorf("%s: down of expert %d: %+v", tc.dir, i, d)
			}
			if i == 0 {
				if up != nil {
					t.Errorf("%s: an expert without tokens has moments", tc.dir)
				}
			} else if up == nil || up.Rows != int64(i) || len(up.Sum) != k || up.Sum[1] != float64(i*k+1) {
				t.Errorf("%s: up of expert %d: %+v", tc.dir, i, up)
			}
		}
		if err := im.Choose(t.Context(), p, Options{}); err != nil {
			t.Fatal(err)
		}
		codes, err := im.Codes(p, provenance.Calibration{})
		if err != nil || len(codes.Warnings) != 1 || !strings.Contains(codes.Warnings[0], "no calibration token reached it") {
			t.Errorf("%s: %+v, %v", tc.dir, codes, err)
		}
		for _, bad := range [][]ggufTestTensor{
			fused("blk.0.ffn_up_exps.weight", ramp(1, experts+1), ramp(0, (experts+1)*k)),
			fused("blk.0.attn_q.weight", ramp(1, 2), ramp(0, 2*cols[q])),
		} {
			if _, err := ReadImatrix(ggufTestFile{tensors: bad}.bytes(), p); err == nil || !strings.Contains(err.Error(), "in the checkpoint") {
				t.Errorf("%s: %s: %v", tc.dir, bad[0].name, err)
			}
		}
	}
}

// FuzzReadGGUF reads any bytes: an error, or matrices with consistent numbers that read the same
// when written again.
func FuzzReadGGUF(f *testing.F) {
	f.Add(ggufTestFile{tensors: dense("blk.0.attn_q.weight", 3, ramp(1, 8))}.bytes())
	f.Add(ggufTestFile{tensors: fused("blk.0.ffn_up_exps.weight", []float32{3, 0}, ramp(1, 8))}.bytes())
	f.Add(ggufTestFile{tensors: append(dense("a", 3, ramp(1, 3)), dense("b", 4, ramp(1, 40))...)}.bytes())
	f.Add(ggufTestFile{general: "model"}.bytes())
	f.Add([]byte("GGUF\x03\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := ggufEntries(data)
		var bad *gguf.FormatError
		if err != nil {
			if errors.As(err, new(*gguf.UnsupportedError)) {
				return
			}
			if !errors.As(err, &bad) || bad.Offset < 0 || bad.Offset > int64(len(data)) {
				t.Fatalf("error %v", err)
			}
			return
		}
		var again ggufTestFile
		for _, e := range list {
			if len(e.counts) == 0 || len(e.sums)%len(e.counts) != 0 || 4*len(e.sums) > len(data) {
				t.Fatalf("%q: %d counts, %d sums", e.name, len(e.counts), len(e.sums))
			}
			var counts, sums []float32
			for _, v := range e.counts {
				counts = append(counts, float32(v))
			}
			for _, v := range e.sums {
				sums = append(sums, float32(v))
			}
			again.tensors = append(again.tensors, fused(e.name, counts, sums)...)
		}
		same, err := ggufEntries(again.bytes())
		if err != nil || !reflect.DeepEqual(list, same) {
			t.Fatalf("%v written and read are %v, %v", list, same, err)
		}
	})
}
