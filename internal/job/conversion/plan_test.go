package conversion

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/test/testrows"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// line finds a tensor in a plan.
func line(t *testing.T, p *write.Job, name string) *plan.Tensor {
	t.Helper()
	i := slices.IndexFunc(p.Tensors, func(l *plan.Tensor) bool { return l.Name == name })
	if i < 0 {
		t.Fatalf("the plan has no %q", name)
	}
	return p.Tensors[i]
}

func mustRules(t *testing.T, rules ...string) []quantizer.Rule {
	t.Helper()
	var rs []quantizer.Rule
	for _, s := range rules {
		r, err := quantizer.ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	return rs
}

const (
	tableName = "model.embed_tokens.weight"
	headName  = "lm_head.weight"
)

// TestTie covers every way in which a head can be, or seem, the embedding table.
func TestTie(t *testing.T) {
	same := func(i int) float32 { return float32(i%31) - 15 }
	weights := testrows.Gaussian(29, 40*64) // on no lattice
	other := func(i int) float32 { return weights[i] }
	config := func(tie string) string {
		return `{"model_type": "llama", "architectures": ["LlamaForCausalLM"]` + tie + `}`
	}
	const yes, no, unsaid = `, "tie_word_embeddings": true`, `, "tie_word_embeddings": false`, ``
	for _, tc := range []struct {
		name    string
		config  string
		head    func(int) float32 // nil: not in the checkpoint
		rules   []string
		shared  bool
		bits    int // of the table; 0: kept
		headBit int // of a head of its own
		warning string
	}{
		{name: "absent, config says tied", config: config(yes), shared: true, bits: 8},
		{name: "absent, config says nothing", config: config(unsaid), shared: true, bits: 8},
		{name: "absent, config denies", config: config(no), shared: true, bits: 8, warning: "holds no lm_head"},
		{name: "absent, no config", shared: true, bits: 8},
		{name: "absent, no head in this architecture", config: `{"model_type": "llama", "architectures": ["LlamaModel"]}`, bits: 8},
		{name: "equal", config: config(yes), head: same, shared: true, bits: 8},
		{name: "equal, config says nothing", config: config(unsaid), head: same, shared: true, bits: 8},
		{name: "equal, config denies", config: config(no), head: same, shared: true, bits: 8, warning: "contents are equal"},
		{name: "different", config: config(no), head: other, bits: 8, headBit: 4},
		{name: "different, config says tied", config: config(yes), head: other, bits: 8, headBit: 4, warning: "contents differ"},
		{name: "rule for the table", config: config(yes), head: same, rules: []string{tableName + "=6"}, shared: true, bits: 6},
		{name: "rule for the head", config: config(yes), head: same, rules: []string{"lm_head=5"}, shared: true, bits: 5},
		{name: "rule for an absent head", config: config(yes), rules: []string{"lm_head=5"}, shared: true, bits: 5},
		{name: "skip the head", config: config(yes), head: same, rules: []string{"lm_head=skip"}, shared: true},
		{name: "rules agree", config: config(yes), head: same, rules: []string{"lm_head=5", "model.embed_tokens=5"}, shared: true, bits: 5},
		{name: "rules disagree", config: config(yes), head: same, rules: []string{"lm_head=5", "model.embed_tokens=6"}, bits: 6, headBit: 5, warning: "stored twice, which costs"},
		{name: "rules disagree on an absent head", config: config(yes), rules: []string{"lm_head=5", "model.embed_tokens=6"}, bits: 6, headBit: 5, warning: "stored twice, which costs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ts := []testTensor{
				{name: tableName, dtype: packing.BF16, shape: []int64{40, 64}, value: same},
				{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.BF16, shape: []int64{48, 64}},
			}
			if tc.head != nil {
				ts = append(ts, testTensor{name: headName, dtype: packing.BF16, shape: []int64{40, 64}, value: tc.head})
			}
			dir := writeCheckpoint(t, tc.config, ts...)
			opts := Options{Rules: mustRules(t, tc.rules...)}
			p, _, f := runJob(t, dir, opts)
			if got := strings.Join(p.Warnings, "; "); !strings.Contains(got, tc.warning) || (tc.warning == "") != (got == "") {
				t.Errorf("warnings %q, want %q", got, tc.warning)
			}
			if l := line(t, p, tableName); l.Bits != tc.bits {
				t.Errorf("the table gets %d bits, want %d", l.Bits, tc.bits)
			}
			table, ok := f.Lookup(tableName)
			if !ok {
				t.Fatal("no table in the file")
			}
			head, ok := f.Lookup(headName)
			switch {
			case ok != (tc.shared || tc.head != nil || tc.headBit > 0):
				t.Errorf("the file has a head: %v", ok)
			case tc.shared && (head.Index != table.Index || line(t, p, headName).Action != plan.ActionShare):
				t.Errorf("head and table are not shared: tensors %d and %d", head.Index, table.Index)
			case !tc.shared && ok && (head.Index == table.Index || line(t, p, headName).Bits != tc.headBit):
				t.Errorf("the head of its own is tensor %d, the table %d, %d bits", head.Index, table.Index, line(t, p, headName).Bits)
			}
			checkNames(t, f, ts)
		})
	}
}

// TestTiedHeadBias: the bias of a head that is the table is in the table's panels.
func TestTiedHeadBias(t *testing.T) {
	same := func(i int) float32 { return float32(i%31) - 15 }
	bias := testTensor{name: "lm_head.bias", dtype: packing.F32, shape: []int64{40}}
	_, _, f := runJob(t, writeCheckpoint(t, "",
		testTensor{name: tableName, dtype: packing.BF16, shape: []int64{40, 64}, value: same},
		testTensor{name: headName, dtype: packing.BF16, shape: []int64{40, 64}, value: same}, bias), Options{})
	table, _ := f.Lookup(headName)
	p := table.Payloads()[0]
	data, err := f.Data(p)
	if err != nil {
		t.Fatal(err)
	}
	lb, err := packing.NewLowbit(p.Header)
	if err != nil {
		t.Fatal(err)
	}
	if table.Name != tableName || p.Header.Flags != packing.FlagBias || lb.Bias(data, 39) != bias.values()[39] {
		t.Errorf("%s has flags %s, bias %v, want %v", table.Name, p.Header.Flags, lb.Bias(data, 39), bias.values()[39])
	}
	if table.Bias < 0 || f.Tensor(table.Bias).Name != bias.name {
		t.Errorf("the table is linked to tensor %d, want %s", table.Bias, bias.name)
	}
	_, _, again := repack(t, f, RepackOptions{Layouts: layoutsOf(t, "codes")})
	if again, _ := again.Lookup(headName); again.Bias != table.Bias {
		t.Errorf("repacked, it is linked to tensor %d, want %d", again.Bias, table.Bias)
	}
}

// checkNames dequantizes and demands the names of the original checkpoint, all and no others.
func checkNames(t *testing.T, f *gqf.File, want []testTensor) {
	t.Helper()
	dir := t.TempDir()
	if _, err := Dequantize(context.Background(), f, "", dir, DequantizeOptions{}); err != nil {
		t.Fatal(err)
	}
	ck := openCheckpoint(t, dir)
	if len(ck.Tensors()) != len(want) {
		t.Errorf("dequantized to %d tensors, want %d", len(ck.Tensors()), len(want))
	}
	for _, tt := range want {
		if st, ok := ck.Lookup(tt.name); !ok || !slices.Equal(st.Shape, tt.shape) {
			t.Errorf("dequantized %s: %v, %v", tt.name, ok, st.Shape)
		}
	}
}

func TestRules(t *testing.T) {
	dir := writeCheckpoint(t, llamaConfig, llama()...)
	for _, tc := range []struct {
		name  string
		rules []string
		want  map[string]int // bits; 0: kept
		err   string
	}{
		{name: "module", rules: []string{"model.layers.3.mlp.down_proj=6,64,asymmetric"}, want: map[string]int{"model.layers.3.mlp.down_proj.weight": 6, "model.layers.4.mlp.down_proj.weight": 4}},
		{name: "exact before re", rules: []string{`re:.*down_proj=2`, "model.layers.3.mlp.down_proj.weight=6"}, want: map[string]int{"model.layers.3.mlp.down_proj.weight": 6, "model.layers.4.mlp.down_proj.weight": 2}},
		{name: "first of two", rules: []string{`re:.*\.3\..*_proj=2`, `re:.*down_proj=5`}, want: map[string]int{"model.layers.3.mlp.down_proj.weight": 2, "model.layers.4.mlp.down_proj.weight": 5}},
		{name: "skip", rules: []string{"model.layers.3.mlp.down_proj=skip"}, want: map[string]int{"model.layers.3.mlp.down_proj.weight": 0}},
		{name: "a pattern leaves vectors alone", rules: []string{`re:model\.layers\.3\..*=3`}, want: map[string]int{"model.layers.3.mlp.down_proj.weight": 3, "model.layers.3.input_layernorm.weight": 0}},
		{name: "nothing matches", rules: []string{"re:down_proj=6"}, err: "matches no tensor"},
		{name: "only vectors match", rules: []string{`re:.*norm=6`}, err: "matches no tensor"},
		{name: "a vector by name", rules: []string{"model.norm=6"}, err: "cannot be quantized"},
		{name: "refused at 1 bit", rules: []string{"model.layers.3.mlp.down_proj=1,symmetric"}, err: "1 bit"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := newPlan(t, dir, Options{Rules: mustRules(t, tc.rules...)})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for name, bits := range tc.want {
				if l := line(t, p, name); l.Bits != bits {
					t.Errorf("%s gets %d bits, want %d", name, l.Bits, bits)
				}
			}
		})
	}
}

// TestSizeIsExact: the plan's size is the file's, with hashes too, and the hash is in it.
func TestSizeIsExact(t *testing.T) {
	dir := writeCheckpoint(t, llamaConfig, llama()...)
	out := filepath.Join(t.TempDir(), "model.gqf")
	for _, hash := range []bool{false, true} {
		p, err := newPlan(t, dir, Options{Recipe: quantizer.Recipe{HashFiles: hash}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Write(context.Background(), out)
		if err != nil {
			t.Fatal(err)
		}
		fi, err := os.Stat(out)
		if err != nil || fi.Size() != p.OutputBytes || r.OutputBytes != p.OutputBytes {
			t.Errorf("planned %d bytes, reported %d, file %v %v", p.OutputBytes, r.OutputBytes, fi, err)
		}
		f, err := gqf.Open(out, gqf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		prov, err := f.Asset(gqf.ProvenanceName)
		if err != nil || bytes.Contains(prov, []byte(`"sha256"`)) != hash || bytes.Contains(prov, bytes.Repeat([]byte("0"), 64)) {
			t.Errorf("provenance with hashes %v: %s, %v", hash, prov, err)
		}
		f.Close()
	}
}

// TestKeepsWhatItCannotHold: integers, scalars, empty tensors, small matrices and tensors of four
// dimensions are kept.
func TestKeepsWhatItCannotHold(t *testing.T) {
	kept := []testTensor{
		{name: "layers.0.index.weight", dtype: packing.U8, shape: []int64{40, 40}},
		{name: "scalar", dtype: packing.F32, shape: []int64{}},
		{name: "layers.0.empty.weight", dtype: packing.F32, shape: []int64{40, 0}},
		{name: "layers.0.small.weight", dtype: packing.F32, shape: []int64{31, 64}},
		{name: "layers.0.conv.weight", dtype: packing.F32, shape: []int64{40, 3, 3, 3}},
		{name: "layers.0.wide", dtype: packing.F64, shape: []int64{7}},
	}
	p, _, f := runJob(t, writeCheckpoint(t, "", kept...), Options{})
	for _, tt := range kept {
		if l := line(t, p, tt.name); l.Action != plan.ActionUnquantized || l.Reason == "" {
			t.Errorf("%s: %s, reason %q", tt.name, l.Action, l.Reason)
		}
		checkKept(t, f, tt)
	}
}

// TestSharedModels quantizes every real checkpoint there is and compares each
// quantized tensor with the quantizer's own reconstruction.
func TestSharedModels(t *testing.T) {
	models := filepath.Join(testshared.Dir(t), "models")
	for _, path := range []string{
		"stories260K-f32", "stories260K-bf16", "books1.3M-bf16", "books3.7M-bf16",
		"weights/templategpt-llama3-1m-f32.safetensors", "weights/ppocrv4-rec-f32.safetensors",
	} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			if testing.Short() && path != "stories260K-f32" {
				t.Skip("-short: one model is enough under emulation")
			}
			src := filepath.Join(models, path)
			ck := openCheckpoint(t, src)
			p, _, f := runJob(t, src, Options{})
			quantized := 0
			for it := range p.Quantized() {
				quantized++
				if it.Transposed { // TestFusedExperts reconstructs these
					continue
				}
				checkRows(t, f, it.Src.Name, func(_, row int) []float32 {
					x := make([]float32, it.Cols)
					if err := ck.ReadRows(x, *it.Src, row, 1); err != nil {
						t.Fatal(err)
					}
					return reconstruct(t, it.Scheme, x)
				})
			}
			if quantized == 0 {
				t.Error("nothing was quantized")
			}
			checkCRCs(t, ck, f)
		})
	}
}

// checkCRCs holds the source checksums in the file against the checkpoint.
func checkCRCs(t *testing.T, ck *safetensors.Checkpoint, f *gqf.File) {
	t.Helper()
	n := 0
	for _, name := range f.Names() {
		if !name.InCheckpoint {
			continue
		}
		n++
		st, _ := ck.Lookup(name.Name)
		b, err := ck.Bytes(st)
		if err != nil {
			t.Fatal(err)
		}
		if got := crc32c.Checksum(b); got != name.SourceCRC || int64(len(b)) != name.SourceBytes {
			t.Errorf("%s: source CRC %08x of %d bytes, want %08x of %d", name.Name, name.SourceCRC, name.SourceBytes, got, len(b))
		}
	}
	if n != len(ck.Tensors()) {
		t.Errorf("the file names %d tensors of the checkpoint, which has %d", n, len(ck.Tensors()))
	}
}

// TestPlanCancelled ends a plan whose rules would be matched with every tensor.
func TestPlanCancelled(t *testing.T) {
	ck, err := safetensors.Open("../../../testdata/books1.3M-bf16", safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := quantizing(ck, nil, Options{Context: ctx}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

// TestSharedFields: what the tensors of a plan have in common is in memory once, so that 200,000
// tensors fit.
func TestSharedFields(t *testing.T) {
	p, err := newPlan(t, writeCheckpoint(t, llamaConfig, llama()...), Options{})
	if err != nil {
		t.Fatal(err)
	}
	forms, schemes := map[plan.Form]*plan.Form{}, map[plan.Scheme]*plan.Scheme{}
	n := 0
	for it := range p.Quantized() {
		if f := forms[*it.Form]; f != nil && f != it.Form {
			t.Errorf("%s has a copy of %+v", it.Name(), *f)
		}
		if s := schemes[*it.Line.Scheme]; s != nil && s != it.Line.Scheme {
			t.Errorf("%s has a copy of %+v", it.Name(), *s)
		}
		forms[*it.Form], schemes[*it.Line.Scheme] = it.Form, it.Line.Scheme
		n++
	}
	if len(forms) >= n || len(schemes) >= n {
		t.Errorf("%d tensors have %d forms and %d schemes: nothing is shared", n, len(forms), len(schemes))
	}
}
