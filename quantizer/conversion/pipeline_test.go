package conversion

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// testTensor is a tensor of a checkpoint that a test makes up.
type testTensor struct {
	name  string
	dtype packing.Dtype
	shape []int64
	// value gives element i; nil: heavy-tailed pseudo-random numbers, the same for the same name.
	value func(i int) float32
}

func (tt testTensor) numel() int {
	n := int64(1)
	for _, d := range tt.shape {
		n *= d
	}
	return int(n)
}

// values are the elements, rounded to the dtype.
func (tt testTensor) values() []float32 {
	x := make([]float32, tt.numel())
	seed := uint64(14695981039346656037)
	for _, c := range []byte(tt.name) {
		seed = (seed ^ uint64(c)) * 1099511628211
	}
	for i := range x {
		if tt.value != nil {
			x[i] = tt.value(i)
		} else {
			seed = seed*6364136223846793005 + 1442695040888963407
			u := float32(int32(seed>>32)) / (1 << 31)
			x[i] = float32(float32(u*u)*u) * 10
		}
		switch tt.dtype {
		case packing.BF16:
			x[i] = floats.BF16ToF32(floats.BF16FromF32(x[i]))
		case packing.F16:
			x[i] = floats.F16ToF32(floats.F16FromF32(x[i]))
		}
	}
	return x
}

func (tt testTensor) bytes() []byte {
	var b []byte
	for _, v := range tt.values() {
		switch tt.dtype {
		case packing.BF16:
			b = binary.LittleEndian.AppendUint16(b, floats.BF16FromF32(v))
		case packing.F16:
			b = binary.LittleEndian.AppendUint16(b, floats.F16FromF32(v))
		case packing.F32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		case packing.F64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
		default: // one byte an element
			b = append(b, byte(v))
		}
	}
	return b
}

// writeCheckpoint makes a checkpoint in a new directory; config "" makes no config.json.
func writeCheckpoint(t testing.TB, config string, tensors ...testTensor) string {
	t.Helper()
	dir := t.TempDir()
	specs := make([]safetensors.TensorSpec, len(tensors))
	for i, tt := range tensors {
		specs[i] = safetensors.TensorSpec{Name: tt.name, Dtype: tt.dtype, Shape: tt.shape}
	}
	w, err := safetensors.Create(dir, specs, safetensors.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i, tt := range tensors {
		if err := w.WriteAt(i, tt.bytes(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if config != "" {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func openCheckpoint(t testing.TB, path string) *safetensors.Checkpoint {
	t.Helper()
	ck, err := safetensors.Open(path, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	return ck
}

func newPlan(t testing.TB, path string, opts Options) (*Plan, error) {
	t.Helper()
	ck := openCheckpoint(t, path)
	config, err := ReadConfig(ck)
	if err != nil {
		t.Fatal(err)
	}
	return NewPlan(ck, config, opts)
}

// memory is a file in memory.
type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

// runJob quantizes in memory and opens the result.
func runJob(t testing.TB, path string, opts Options) (*Plan, []byte, *gqf.File) {
	t.Helper()
	p, err := newPlan(t, path, opts)
	if err != nil {
		t.Fatal(err)
	}
	return fillPlan(t, p)
}

// fillPlan runs a plan in memory and opens the result, which must verify.
func fillPlan(t testing.TB, p *Plan) (*Plan, []byte, *gqf.File) {
	t.Helper()
	m := make(memory, p.OutputBytes)
	j, err := p.newJob(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	j.out = []io.WriterAt{m}
	if err := j.fill(context.Background()); err != nil {
		t.Fatal(err)
	}
	f, err := gqf.OpenBytes(m, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	report, err := f.Verify(context.Background(), gqf.VerifyOptions{Deep: true})
	if err != nil || !report.OK() {
		t.Fatalf("the new file does not verify: %v, %+v", err, report)
	}
	return p, m, f
}

// reconstruct is what the quantizer itself says a row of weights becomes.
func reconstruct(t testing.TB, s rounding.Scheme, x []float32) []float32 {
	t.Helper()
	q, err := rounding.NewRowQuantizer(s, len(x))
	if err != nil {
		t.Fatal(err)
	}
	codes, scales := make([]int8, len(x)), make([]float32, s.Groups(len(x)))
	var zeros []int8
	if s.Mapping == gqf.MappingAsymmetric {
		zeros = make([]int8, len(scales))
	}
	if err := q.Quantize(codes, scales, zeros, x, nil); err != nil {
		t.Fatal(err)
	}
	group := s.Group
	if group == 0 {
		group = len(x)
	}
	w := make([]float32, len(x))
	for k := range w {
		z := float32(0)
		switch {
		case zeros != nil:
			z = float32(zeros[k/group]) * s.ZeroUnit()
		case s.Mapping == gqf.MappingHalfStep:
			z = -0.5
		}
		w[k] = float32((float32(codes[k]) - z) * scales[k/group])
	}
	return w
}

// checkRows compares every row of a quantized tensor with want(slice, row), bit for bit.
func checkRows(t *testing.T, f *gqf.File, name string, want func(slice, row int) []float32) {
	t.Helper()
	gt, ok := f.Lookup(name)
	if !ok {
		t.Fatalf("no tensor %q in the file", name)
	}
	for _, p := range gt.Payloads() {
		lb, err := packing.NewLowbit(p.Header)
		if err != nil {
			t.Fatal(err)
		}
		data, err := f.Data(p)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, p.Header.Cols)
		for r := range int(p.Header.Rows) {
			lb.DequantizeRow(got, data, r)
			w := want(p.Slice, r)
			for k := range got {
				if math.Float32bits(got[k]) != math.Float32bits(w[k]) {
					t.Fatalf("%s slice %d row %d column %d: the file says %v, the quantizer %v", name, p.Slice, r, k, got[k], w[k])
				}
			}
		}
	}
}

// TestRoundTrip: what the file holds is what the quantizer chose, for every scheme and tile.
func TestRoundTrip(t *testing.T) {
	tensors := []testTensor{
		{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{37, 172}},
		{name: "layers.0.o_proj.weight", dtype: packing.BF16, shape: []int64{32, 96}},
		{name: "layers.0.up_proj.weight", dtype: packing.F16, shape: []int64{33, 341}},
		{name: "layers.0.norm.weight", dtype: packing.BF16, shape: []int64{96}},
	}
	dir := writeCheckpoint(t, "", tensors...)
	groups := []int{16, 32, 48, 128, 0}
	mappings := []gqf.Mapping{gqf.MappingFullRange, gqf.MappingSymmetric, gqf.MappingSymmetricNoClip, gqf.MappingAsymmetric, gqf.MappingHalfStep}
	tiles := []string{"4x8x2", "4x16x2", "8x8x2", "8x16x2"}
	scales := []packing.ScaleDtype{packing.ScaleBF16, packing.ScaleF16, packing.ScaleF32}
	algorithms := []gqf.Algorithm{gqf.AlgorithmSearch, gqf.AlgorithmRTN, gqf.AlgorithmHQQ, gqf.AlgorithmGPTQ}
	for bits := 1; bits <= 8; bits++ {
		for mi, mapping := range mappings {
			for gi, group := range groups {
				for ti, tile := range tiles {
					if testing.Short() && (bits+4*mi+5*gi+3*ti)%17 != 0 {
						continue
					}
					s := rounding.Scheme{Bits: bits, Group: group, Mapping: mapping, ScaleDtype: scales[(bits+gi+ti)%3], Algorithm: algorithms[(gi+ti)%len(algorithms)]}
					if s.ValidateCommand() != nil {
						continue
					}
					tl, err := packing.ParseTile(tile)
					if err != nil {
						t.Fatal(err)
					}
					_, _, f := runJob(t, dir, Options{Recipe: recipeOf(s, tl), Threads: 1 + ti%2})
					s.Fractions = mapping == gqf.MappingAsymmetric && bits < 8 && s.Algorithm != gqf.AlgorithmRTN
					for _, tt := range tensors[:3] {
						x := tt.values()
						k := int(tt.shape[1])
						checkRows(t, f, tt.name, func(_, row int) []float32 { return reconstruct(t, s, x[row*k:(row+1)*k]) })
					}
					checkKept(t, f, tensors[3])
				}
			}
		}
	}
}

func checkKept(t *testing.T, f *gqf.File, tt testTensor) {
	t.Helper()
	gt, ok := f.Lookup(tt.name)
	if !ok {
		t.Fatalf("no tensor %q in the file", tt.name)
	}
	p := gt.Payloads()[0]
	data, err := f.Data(p)
	if err != nil {
		t.Fatal(err)
	}
	if p.Header.Layout != packing.LayoutPlain || !bytes.Equal(data, tt.bytes()) {
		t.Errorf("%s is not the checkpoint's bytes in layout plain", tt.name)
	}
}

// llama is a small tied Llama-like checkpoint with biases.
func llama() []testTensor {
	ts := []testTensor{
		{name: "model.embed_tokens.weight", dtype: packing.BF16, shape: []int64{70, 64}},
		{name: "model.norm.weight", dtype: packing.BF16, shape: []int64{64}},
	}
	for l := range 11 { // two digits: layers in order of number
		p := fmt.Sprintf("model.layers.%d.", l)
		ts = append(ts,
			testTensor{name: p + "self_attn.q_proj.weight", dtype: packing.BF16, shape: []int64{64, 64}},
			testTensor{name: p + "self_attn.q_proj.bias", dtype: packing.BF16, shape: []int64{64}},
			testTensor{name: p + "mlp.down_proj.weight", dtype: packing.BF16, shape: []int64{64, 172}},
			testTensor{name: p + "input_layernorm.weight", dtype: packing.BF16, shape: []int64{64}})
	}
	return ts
}

const llamaConfig = `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": true}`

func TestSameBytesForAnyThreadCount(t *testing.T) {
	dir := writeCheckpoint(t, llamaConfig, llama()...)
	_, want, f := runJob(t, dir, Options{Threads: 1})
	for _, threads := range []int{2, 3, 16} {
		if _, got, _ := runJob(t, dir, Options{Threads: threads}); !bytes.Equal(got, want) {
			t.Errorf("%d threads give another file than 1", threads)
		}
	}
	// Layers lie in the order of their numbers.
	var order []string
	for i := range f.Len() {
		if n := f.Tensor(i).Name; strings.HasSuffix(n, "q_proj.weight") {
			order = append(order, n)
		}
	}
	if len(order) != 11 || order[2] != "model.layers.2.self_attn.q_proj.weight" || order[10] != "model.layers.10.self_attn.q_proj.weight" {
		t.Errorf("order of layers: %v", order)
	}
	// The bias is in the panels and kept as a tensor.
	gt, _ := f.Lookup("model.layers.3.self_attn.q_proj.weight")
	p := gt.Payloads()[0]
	data, err := f.Data(p)
	if err != nil {
		t.Fatal(err)
	}
	lb, err := packing.NewLowbit(p.Header)
	if err != nil {
		t.Fatal(err)
	}
	bias := testTensor{name: "model.layers.3.self_attn.q_proj.bias", dtype: packing.BF16, shape: []int64{64}}
	if p.Header.Flags&packing.FlagBias == 0 || lb.Bias(data, 17) != bias.values()[17] {
		t.Errorf("row 17's bias is %v, want %v", lb.Bias(data, 17), bias.values()[17])
	}
	checkKept(t, f, bias)
	if link := gt.Bias; link < 0 || f.Tensor(link).Name != bias.name {
		t.Errorf("the weight is linked to tensor %d, want %s", link, bias.name)
	}
	if norm, ok := f.Lookup("model.norm.weight"); !ok || norm.Bias != -1 {
		t.Errorf("the norm, which has no bias, is linked to tensor %d", norm.Bias)
	}
}

// TestWriteIsAtomic: an error leaves the old file and no temporary.
func TestWriteIsAtomic(t *testing.T) {
	bad := testTensor{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{40, 64}, value: func(i int) float32 {
		if i == 33*64+7 {
			return float32(math.NaN())
		}
		return float32(i%13) - 6
	}}
	p, err := newPlan(t, writeCheckpoint(t, "", bad), Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out := filepath.Join(dir, "model.gqf")
	if err := os.WriteFile(out, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = p.Write(context.Background(), out)
	var te *quantizer.TensorError
	var nf *rounding.NonFiniteError
	if !errors.As(err, &te) || !errors.As(err, &nf) || te.Tensor != bad.name || te.Row != 33 || nf.Column != 7 {
		t.Errorf("error %v, want one that names tensor, row 33, column 7", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.opts.Progress = func(int64) { cancel() }
	cancel()
	if _, err := p.Write(ctx, out); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled job: %v", err)
	}
	p.opts.Progress = nil
	if _, err := p.Write(context.Background(), out); !errors.As(err, &te) { // a plan can be written again
		t.Errorf("the second job: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if old, _ := os.ReadFile(out); string(old) != "old" || len(entries) != 1 {
		t.Errorf("the old file holds %q, the directory %v", old, entries)
	}
}

func TestOutputIsInput(t *testing.T) {
	dir := writeCheckpoint(t, "", llama()...)
	p, err := newPlan(t, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(dir, "model.safetensors")
	before, _ := os.ReadFile(src)
	if _, err := p.Write(context.Background(), src); err == nil || !strings.Contains(err.Error(), "is an input") {
		t.Errorf("writing over the input: %v", err)
	}
	if after, _ := os.ReadFile(src); !bytes.Equal(before, after) {
		t.Error("the input was changed")
	}
}

// TestTruncatedSource: a checkpoint that shrinks while it is read is an error, and nothing is written.
func TestTruncatedSource(t *testing.T) {
	big := testTensor{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{4096, 1024}, value: func(i int) float32 { return float32(i%29) - 14 }}
	dir := writeCheckpoint(t, "", big)
	p, err := newPlan(t, dir, Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	first := true
	p.opts.Progress = func(int64) {
		if first {
			first = false
			if err := os.Truncate(filepath.Join(dir, "model.safetensors"), 4<<20); err != nil {
				t.Error(err)
			}
		}
	}
	out := filepath.Join(t.TempDir(), "model.gqf")
	_, err = p.Write(context.Background(), out)
	var fe *safetensors.FormatError
	if !errors.As(err, &fe) {
		t.Errorf("error %v, want a FormatError that says that the file was truncated", err)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Error("an output was left")
	}
}

// TestFusedExperts: each expert is a payload whose rows are outputs, whichever order the architecture stores.
func TestFusedExperts(t *testing.T) {
	const e, hidden, inter = 3, 64, 48
	for _, tc := range []struct {
		modelType  string
		transposed bool
	}{{"qwen3_5_moe", false}, {"llama4_text", true}} {
		t.Run(tc.modelType, func(t *testing.T) {
			shape := []int64{e, 2 * inter, hidden}
			if tc.transposed {
				shape = []int64{e, hidden, 2 * inter}
			}
			name := "model.layers.0.mlp.experts.gate_up_proj"
			if tc.transposed {
				name = "model.layers.0.feed_forward.experts.gate_up_proj"
			}
			tt := testTensor{name: name, dtype: packing.BF16, shape: shape}
			dir := writeCheckpoint(t, fmt.Sprintf(`{"model_type": %q, "num_experts": 3}`, tc.modelType), tt)
			_, _, f := runJob(t, dir, Options{})
			x := tt.values()
			row := func(slice, r int) []float32 {
				w := make([]float32, hidden)
				for k := range w {
					if tc.transposed {
						w[k] = x[(slice*hidden+k)*2*inter+r]
					} else {
						w[k] = x[(slice*2*inter+r)*hidden+k]
					}
				}
				return w
			}
			gt, _ := f.Lookup(name)
			if gt.Experts != e || gt.Transposed != tc.transposed || len(gt.Payloads()) != e {
				t.Fatalf("%d experts, transposed %v, %d payloads", gt.Experts, gt.Transposed, len(gt.Payloads()))
			}
			s := quantizer.Recipe{}.Scheme(gqf.RoleExpert, nil)
			checkRows(t, f, name, func(slice, r int) []float32 { return reconstruct(t, s, row(slice, r)) })
			checkDequantized(t, f, tt, func(i int) float32 {
				per := 2 * inter * hidden
				sl, in := i/per, i%per
				if tc.transposed {
					return reconstruct(t, s, row(sl, in%(2*inter)))[in/(2*inter)]
				}
				return reconstruct(t, s, row(sl, in/hidden))[in%hidden]
			})
		})
	}
}

// checkDequantized runs Dequantize and compares a tensor of the new checkpoint, every 7th element.
func checkDequantized(t *testing.T, f *gqf.File, tt testTensor, want func(i int) float32) {
	t.Helper()
	dir := t.TempDir()
	if _, err := Dequantize(context.Background(), f, "", dir, DequantizeOptions{Dtype: packing.F32}); err != nil {
		t.Fatal(err)
	}
	ck := openCheckpoint(t, dir)
	st, ok := ck.Lookup(tt.name)
	if !ok || !slices.Equal(st.Shape, tt.shape) {
		t.Fatalf("dequantized %s: %+v", tt.name, st)
	}
	b, err := ck.Bytes(st)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < tt.numel(); i += 7 {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])); got != want(i) {
			t.Fatalf("dequantized %s[%d] = %v, want %v", tt.name, i, got, want(i))
		}
	}
}

// TestFP8 multiplies block scales into the weights, partial edge blocks too, and folds their tensor away.
func TestFP8(t *testing.T) {
	w := testTensor{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.F8E4M3, shape: []int64{150, 200},
		value: func(i int) float32 { return float32(i * 37 % 120) }} // bytes 0..119: finite E4M3
	s := testTensor{name: w.name + "_scale_inv", dtype: packing.F32, shape: []int64{2, 2}, value: func(i int) float32 { return float32(i+1) * 0.01 }}
	dir := writeCheckpoint(t, `{"model_type": "deepseek_v3", "quantization_config": {"weight_block_size": [128, 128]}}`, w, s)
	p, _, f := runJob(t, dir, Options{})
	row := func(r int) []float32 {
		x := make([]float32, 200)
		for k := range x {
			x[k] = float32(floats.F8E4M3ToF32(byte((r*200+k)*37%120)) * (float32(r/128*2+k/128+1) * 0.01))
		}
		return x
	}
	checkRows(t, f, w.name, func(_, r int) []float32 {
		return reconstruct(t, quantizer.Recipe{}.Scheme(gqf.RoleProjection, nil), row(r))
	})
	i := slices.IndexFunc(p.Tensors, func(l *PlanTensor) bool { return l.Name == s.name })
	if i < 0 || p.Tensors[i].Action != ActionAbsorb {
		t.Errorf("the plan says of the scales: %+v", p.Tensors)
	}
	if _, ok := f.Lookup(s.name); ok {
		t.Error("the folded scales can be looked up")
	}
	out := t.TempDir()
	if _, err := Dequantize(context.Background(), f, "", out, DequantizeOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(out, "config.json"))
	if err != nil || strings.Contains(string(config), "quantization_config") {
		t.Errorf("dequantized config.json: %s, %v", config, err)
	}
}

// recipeOf makes every tensor get scheme s.
func recipeOf(s rounding.Scheme, tile packing.Tile) quantizer.Recipe {
	group := s.Group
	if group == 0 {
		group = quantizer.PerChannel
	}
	return quantizer.Recipe{Algorithm: cmp.Or(s.Algorithm, gqf.AlgorithmRTN), Bits: s.Bits, Group: group, Mapping: s.Mapping, ScaleDtype: s.ScaleDtype, PositiveScales: s.PositiveScales, Tile: tile, EmbeddingBits: s.Bits}
}
