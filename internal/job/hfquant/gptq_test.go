package hfquant

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// TestGPTQVectors reads what GPTQModel packed, in both conventions of zero points, and writes it
// back byte for byte.
func TestGPTQVectors(t *testing.T) {
	for _, v := range vectors(t, "gptq") {
		t.Run(v.name(), func(t *testing.T) {
			w := findOne(t, store(t, v.stored()...), string(v.Config))
			rows := readAll(t, w)
			v.check(t, w, rows)
			if got := sumOf(w.Scheme, rows, false); got != v.Dequantized {
				t.Errorf("the weights differ: SHA-256 %s, want %s", got, v.Dequantized)
			}
			l, err := GPTQ.NewLayout(w.Name, w.Shape, w.Scheme)
			if v.K%max(v.Group, 1) != 0 {
				wantError(t, err, "do not divide rows")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			parts := putAll(t, l, rows, l.RowStep)
			ownConfig(t, GPTQ, w, parts)
			if v2 := strings.Contains(string(v.Config), "gptq_v2"); v2 != (w.Scheme.Zeros == IntZeros) {
				parts[1].data = v.stored()[1].data // stored in the other way
			}
			v.equalParts(t, parts)
		})
	}
}

// TestGPTQBlocks writes a weight in several blocks of rows and reads it again.
func TestGPTQBlocks(t *testing.T) {
	for _, bits := range gptqBits {
		for _, k := range []int64{32, 6144} {
			s := Scheme{Bits: bits, Zeros: IntZeros, Scales: packing.F16}
			step := gptqStep(k)
			l, err := GPTQ.NewLayout("m.weight", []int64{2*step + 32, k}, s)
			if err != nil {
				t.Fatal(err)
			}
			if l.RowStep != step || step%32 != 0 || step*k > 1<<20 {
				t.Errorf("rows of %d columns are written in blocks of %d", k, l.RowStep)
			}
			low, high := limits(bits)
			rows := make([]Row, 2*step+32)
			for n := range rows {
				rows[n].resize(s, k)
				for i := range rows[n].Codes {
					rows[n].Codes[i] = int8(low + (n*31+i*7+n*i)%(high-low+1))
				}
				rows[n].Scales[0], rows[n].Zeros[0] = float32(n+1), int8(low+n%(high-low+1))
			}
			parts := putAll(t, l, rows, step)
			w := findOne(t, store(t, parts...), fmt.Sprintf(`{"quantization_config": {"quant_method": "gptq", "checkpoint_format": "gptq_v2", "bits": %d, "group_size": -1}}`, bits))
			for n, row := range readAll(t, w) {
				if !slices.Equal(row.Codes, rows[n].Codes) || !slices.Equal(row.Scales, rows[n].Scales) || !slices.Equal(row.Zeros, rows[n].Zeros) {
					t.Fatalf("%d bits, %d columns: row %d differs", bits, k, n)
				}
			}
		}
	}
}

// wantError fails unless err contains all of the words.
func wantError(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", words)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not contain %q", err, word)
		}
	}
}

const gptqTestConfig = `{"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}}`

// gptqTensors is a weight [32, 96] of 4 bits with zero points 7, 8 and 9 in groups of 32, whose
// scales are 1, 2 and 4.
func gptqTensors() []stored {
	u32 := func(n int, word func(i int) uint32) (b []byte) {
		for i := range n {
			b = binary.LittleEndian.AppendUint32(b, word(i))
		}
		return b
	}
	var scales []byte
	for i := range 3 * 32 {
		scales = binary.LittleEndian.AppendUint16(scales, uint16(0x3c00+0x400*(i/32)))
	}
	return []stored{
		{Part{Name: "m.qweight", Dtype: packing.I32, Shape: []int64{12, 32}}, u32(12*32, func(i int) uint32 { return uint32(i) * 0x9e3779b9 })},
		{Part{Name: "m.qzeros", Dtype: packing.I32, Shape: []int64{3, 4}}, u32(3*4, func(i int) uint32 { return 0x66666666 + 0x11111111*uint32(i/4) })},
		{Part{Name: "m.scales", Dtype: packing.F16, Shape: []int64{3, 32}}, scales},
		{Part{Name: "m.g_idx", Dtype: packing.I32, Shape: []int64{96}}, u32(96, func(i int) uint32 { return uint32(i / 32) })},
	}
}

// reshape gives tensor i another shape, and as many zero bytes.
func reshape(all []stored, i int, d packing.Dtype, shape ...int64) []stored {
	all[i].Dtype, all[i].Shape = d, shape
	all[i].data = make([]byte, all[i].bytes())
	return all
}

func TestGPTQErrors(t *testing.T) {
	with := func(fields string) string { return strings.Replace(gptqTestConfig, `"bits": 4`, fields, 1) }
	for name, c := range map[string]struct {
		config  string
		change  func(all []stored) []stored
		want    []string
		allowed bool
	}{
		"no g_idx":              {change: func(all []stored) []stored { return all[:3] }, allowed: true},
		"no scales":             {change: func(all []stored) []stored { return slices.Delete(all, 2, 3) }, want: []string{`"m.weight"`, `no tensor "m.scales"`}},
		"no zero points":        {change: func(all []stored) []stored { return slices.Delete(all, 1, 2) }, want: []string{`no tensor "m.qzeros"`}},
		"codes as bytes":        {change: func(all []stored) []stored { return reshape(all, 0, packing.U8, 12, 32) }, want: []string{`"m.qweight"`, "dtype U8, expected I32"}},
		"integer scales":        {change: func(all []stored) []stored { return reshape(all, 2, packing.I8, 3, 32) }, want: []string{`"m.scales"`, "dtype I8, expected BF16, F16 or F32"}},
		"scales of a vector":    {change: func(all []stored) []stored { return reshape(all, 2, packing.F16, 96) }, want: []string{`"m.scales"`, "2 dimensions"}},
		"no rows":               {change: func(all []stored) []stored { return reshape(all, 2, packing.F16, 3, 0) }, want: []string{`"m.scales"`, "2 dimensions that are not 0"}},
		"codes of other rows":   {change: func(all []stored) []stored { return reshape(all, 0, packing.I32, 12, 64) }, want: []string{`"m.qweight"`, "[12 64]", "[12 32]"}},
		"other number of bits":  {change: func(all []stored) []stored { return reshape(all, 1, packing.I32, 3, 8) }, want: []string{`"m.qzeros"`, "[3, 8] is of 8 bits, but quantization_config says 4"}},
		"no number of bits":     {change: func(all []stored) []stored { return reshape(all, 1, packing.I32, 3, 9) }, want: []string{`"m.qzeros"`, "[3, 9], expected [3, 32*bits/32] with 2 to 8 bits"}},
		"zeros of other groups": {change: func(all []stored) []stored { return reshape(all, 1, packing.I32, 2, 4) }, want: []string{`"m.qzeros"`, "[2, 4], expected [3,"}},
		"short g_idx":           {change: func(all []stored) []stored { return reshape(all, 3, packing.I32, 95) }, want: []string{`"m.g_idx"`, "[95]", "[96]"}},
		"groups":                {config: strings.Replace(gptqTestConfig, "32}", "64}", 1), want: []string{"3 groups, but group_size of quantization_config makes 2 of 96 columns"}},
		"groups of a rule":      {config: with(`"dynamic": {"+:m": {"group_size": 32}}, "bits": 8`), allowed: true},
		"symmetric":             {config: with(`"sym": true, "bits": 4`), want: []string{`"m.qzeros"`, "says sym, but not all zero points"}},
		"marlin":                {config: with(`"is_marlin_format": true, "bits": 4`), want: []string{"config.json", "is_marlin_format"}},
		"rotation":              {config: with(`"rotation": "hadamard", "bits": 4`), want: []string{"config.json", `rotation "hadamard"`}},
		"planar":                {config: with(`"checkpoint_format": "gptq_p", "bits": 4`), want: []string{`"gptq_p" is not read: only gptq and gptq_v2 are`}},
		"format":                {config: with(`"format": "bitblas", "bits": 4`), want: []string{`"bitblas" is not read`}},
		"bits in words":         {config: with(`"bits": "four"`), want: []string{"config.json: quantization_config: json"}},
		"a group that is not there": {change: func(all []stored) []stored {
			binary.LittleEndian.PutUint32(all[3].data[4*40:], 3)
			return all
		}, want: []string{`"m.g_idx"`, `column 40 belongs to group 3, but "m.weight" has 3 groups`}},
	} {
		t.Run(name, func(t *testing.T) {
			all := gptqTensors()
			if c.change != nil {
				all = c.change(all)
			}
			if c.config == "" {
				c.config = gptqTestConfig
			}
			q, err := Find(store(t, all...), []byte(c.config))
			if !c.allowed {
				wantError(t, err, c.want...)
				return
			}
			if err != nil || len(q.Weights) != 1 || q.Weights[0].Scheme != (Scheme{Bits: 4, Group: 32, Zeros: IntZeros, Scales: packing.F16}) {
				t.Errorf("Find gives %+v, %v", q, err)
			}
		})
	}
}

// TestGPTQSymmetric reads symmetric weights whose zero points are stored in either convention,
// whatever checkpoint_format says.
func TestGPTQSymmetric(t *testing.T) {
	for _, format := range []string{"gptq", "gptq_v2"} {
		for _, stored := range []byte{0x77, 0x88} {
			all := gptqTensors()
			all[1].data = bytes.Repeat([]byte{stored}, len(all[1].data))
			config := strings.Replace(gptqTestConfig, `"bits"`, `"sym": true, "checkpoint_format": "`+format+`", "bits"`, 1)
			if w := findOne(t, store(t, all...), config); w.Scheme.Zeros != NoZeros {
				t.Errorf("%s, zero points stored as %x: %v", format, stored, w.Scheme)
			}
		}
	}
}

// scatteredTensors is the weight of gptqTensors with columns of the three groups in turn.
func scatteredTensors() []stored {
	all := gptqTensors()
	for i := range 96 {
		binary.LittleEndian.PutUint32(all[3].data[4*i:], uint32(i%3))
	}
	return all
}

// TestGPTQScattered reads a weight of which columns of several groups alternate, as desc_act makes
// them: each column has the scale and the zero point of its group.
func TestGPTQScattered(t *testing.T) {
	w := findOne(t, store(t, scatteredTensors()...), gptqTestConfig)
	if want := (Scheme{Bits: 4, Group: 1, Zeros: IntZeros, Scales: packing.F16}); w.Scheme != want {
		t.Fatalf("the scheme is %v, want %v", w.Scheme, want)
	}
	for n, row := range readAll(t, w) {
		for k := range 96 {
			if scale, zero := float32(int(1)<<(k%3)), int8(k%3-1); row.Scales[k] != scale || row.Zeros[k] != zero {
				t.Fatalf("row %d, column %d: scale %g and zero point %d, want %g and %d", n, k, row.Scales[k], row.Zeros[k], scale, zero)
			}
		}
	}
}

// TestGPTQOrder reads a weight whose groups are stored in another order than columns have them.
func TestGPTQOrder(t *testing.T) {
	all := gptqTensors()
	for i := range 96 {
		binary.LittleEndian.PutUint32(all[3].data[4*i:], uint32([]int{2, 0, 1}[i/32]))
	}
	for n, row := range readAll(t, findOne(t, store(t, all...), gptqTestConfig)) {
		if !slices.Equal(row.Scales, []float32{4, 1, 2}) || !slices.Equal(row.Zeros, []int8{1, -1, 0}) {
			t.Fatalf("row %d: scales %v, zero points %v", n, row.Scales, row.Zeros)
		}
	}
}

// TestGPTQRead reads rows whose zero points or scales cannot be used.
func TestGPTQRead(t *testing.T) {
	for name, c := range map[string]struct {
		change func(all []stored)
		want   []string
	}{
		// In v1, 15 stands for zero point 16 or 0, as libraries differ.
		"zero point": {func(all []stored) { all[1].data[16+5] |= 0xf0 }, []string{`"m.qzeros"`, "row 11", "group 1", "stored as 15", "16 or 0", "at most 14"}},
		"scale":      {func(all []stored) { binary.LittleEndian.PutUint16(all[2].data[2*(32+11):], 0x7c00) }, []string{`"m.scales"`, "row 11", "group 1", "+Inf"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := gptqTensors()
			c.change(all)
			w := findOne(t, store(t, all...), gptqTestConfig)
			for n := range w.Shape[0] {
				if err := w.Read(new(Row), n); n == 11 {
					wantError(t, err, c.want...)
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestOldConfig reads what AutoGPTQ and AutoAWQ wrote before config.json described quantization.
func TestOldConfig(t *testing.T) {
	for file, c := range map[string]struct {
		content, format string
		tensors         []stored
	}{
		"quantize_config.json": {`{"bits": 4, "group_size": 32, "desc_act": false}`, "gptq", gptqTensors()},
		"quant_config.json":    {`{"zero_point": true, "q_group_size": 32, "w_bit": 4, "version": "GEMM"}`, "awq", awqTensors()},
	} {
		dir := t.TempDir()
		ck := storeIn(t, dir, nil, c.tensors...)
		_, err := Find(ck, []byte(`{"model_type": "llama"}`))
		wantError(t, err, "it looks like a weight of GPTQ or AWQ")
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, []byte(c.content), 0o666); err != nil {
			t.Fatal(err)
		}
		q, err := Find(ck, []byte(`{"model_type": "llama"}`))
		if err != nil || string(q.Format) != c.format || len(q.Weights) != 1 {
			t.Errorf("%s: %+v, %v", file, q, err)
		}
		if err := os.WriteFile(path, []byte(`{"group_size": "x"}`), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err = Find(ck, nil)
		wantError(t, err, dir+": "+file+": json")
	}
}

func TestGPTQHolds(t *testing.T) {
	for _, c := range []struct {
		shape  []int64
		scheme Scheme
		want   string // "" for none
	}{
		{[]int64{64, 96}, Scheme{Bits: 4, Group: 32, Scales: packing.BF16}, ""},
		{[]int64{4, 96}, Scheme{Bits: 8, Scales: packing.F32, Zeros: IntZeros}, ""},
		{[]int64{64, 96}, Scheme{Bits: 5, Group: 32, Scales: packing.BF16}, "codes have 2, 3, 4 or 8 bits"},
		{[]int64{64, 96}, Scheme{Bits: 4, Group: 48, Scales: packing.BF16}, "groups have 16, 32"},
		{[]int64{64, 96}, Scheme{Bits: 4, Group: 64, Scales: packing.BF16}, "groups of 64 columns do not divide rows of 96"},
		{[]int64{64, 80}, Scheme{Bits: 4, Group: 16, Scales: packing.BF16}, "a multiple of 8 rows and of 32 columns"},
		{[]int64{48, 96}, Scheme{Bits: 3, Group: 32, Scales: packing.BF16}, "a multiple of 32 rows"},
		{[]int64{64, 96}, Scheme{Bits: 4, Group: 32, Scales: packing.BF16, Zeros: Offsets}, "zero points are integers"},
		{[]int64{2, 64, 96}, Scheme{Bits: 4, Group: 32, Scales: packing.BF16}, "expected [rows, columns]"},
	} {
		_, err := GPTQ.NewLayout("m.weight", c.shape, c.scheme)
		if c.want == "" && err != nil {
			t.Error(err)
		}
		if c.want != "" {
			wantError(t, err, `"m.weight"`, "gptq", c.want)
		}
	}
	_, err := GPTQ.NewLayout("experts.up", []int64{64, 96}, Scheme{Bits: 4, Group: 32, Scales: packing.BF16})
	wantError(t, err, "names end in .weight")
}

// TestGPTQPut writes rows that checkpoint_format gptq does not hold.
func TestGPTQPut(t *testing.T) {
	for name, c := range map[string]struct {
		scales packing.Dtype
		change func(*Row)
		want   []string
	}{
		"large scale": {packing.BF16, func(r *Row) { r.Scales[1] = 0x1p20 }, []string{"row 517", "group 1", "not an F16 number"}},
		"small scale": {packing.BF16, func(r *Row) { r.Scales[1] = 0x1.02p-24 }, []string{"row 517", "group 1", "not an F16 number"}},
		"wrong dtype": {packing.BF16, func(r *Row) { r.Scales[1] = 1 + 0x1p-10 }, []string{"row 517", "not a finite BF16 number"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Scheme{Bits: 4, Group: 32, Zeros: IntZeros, Scales: c.scales}
			l, err := GPTQ.NewLayout("m.weight", []int64{1024, 96}, s)
			if err != nil {
				t.Fatal(err)
			}
			rows := make([]Row, 512)
			for i := range rows {
				rows[i].resize(s, 96)
				rows[i].Scales[0], rows[i].Scales[1], rows[i].Scales[2] = 1, 0x1p-24, -65280
			}
			write := func(int, int64, []byte) error { return nil }
			if err := l.Put(rows, 512, write); err != nil {
				t.Fatal(err)
			}
			c.change(&rows[5])
			wantError(t, l.Put(rows, 512, write), append(c.want, `"m.weight"`)...)
		})
	}
}

func TestGPTQConfig(t *testing.T) {
	four, eight := &Scheme{Bits: 4, Group: 32, Scales: packing.BF16}, &Scheme{Bits: 8, Scales: packing.F16}
	weights := []ModelWeight{
		{Name: "model.embed_tokens.weight"},
		{Name: "model.layers.0.a.weight", Scheme: four, Linear: true},
		{Name: "model.layers.0.b.weight", Scheme: eight, Linear: true},
		{Name: "model.layers.0.c.weight", Linear: true},
		{Name: "model.layers.0.d.weight", Scheme: four, Linear: true},
		{Name: "lm_head.weight", Linear: true},
	}
	out, metadata, err := GPTQ.Config([]byte(`{"a": 1}`), weights)
	if err != nil || metadata != nil {
		t.Fatal(metadata, err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, out); err != nil {
		t.Fatal(err)
	}
	const want = `{"a":1,"quantization_config":{"bits":4,"group_size":32,"desc_act":false,"sym":true,"lm_head":false,"quant_method":"gptq","checkpoint_format":"gptq",` +
		`"pack_dtype":"int32","dynamic":{"+:^model\\.layers\\.0\\.b$":{"bits":8,"group_size":-1},"-:^model\\.layers\\.0\\.c$":{}},"meta":{"quantizer":["gq"]}}}`
	if compact.String() != want {
		t.Errorf("config:\n%s\nwant\n%s", &compact, want)
	}
	// vLLM merges some layers: all of q, k and v are alike, gate and up are not.
	merged := []ModelWeight{
		{Name: "a.q_proj.weight", Scheme: eight, Linear: true},
		{Name: "a.k_proj.weight", Scheme: eight, Linear: true},
		{Name: "a.v_proj.weight", Scheme: eight, Linear: true},
		{Name: "a.gate_proj.weight", Linear: true},
		{Name: "a.up_proj.weight", Scheme: eight, Linear: true},
	}
	for range 5 {
		merged = append(merged, weights[1])
	}
	out, _, err = GPTQ.Config([]byte(`{}`), merged)
	var config struct {
		Entry gptqEntry `json:"quantization_config"`
	}
	if err := errors.Join(err, json.Unmarshal(out, &config)); err != nil {
		t.Fatal(err)
	}
	want8 := gptqRule{Bits: 8, GroupSize: -1}
	if want := map[string]gptqRule{`+:^a\.q_proj$`: want8, `+:^a\.k_proj$`: want8, `+:^a\.v_proj$`: want8, `+:^a\.qkv_proj$`: want8, `+:^a\.up_proj$`: want8, `-:^a\.gate_proj$`: {}}; !maps.Equal(config.Entry.Dynamic, want) {
		t.Errorf("dynamic is %v, want %v", config.Entry.Dynamic, want)
	}
	out, _, err = GPTQ.Config([]byte(`{}`), []ModelWeight{{Name: "lm_head.weight", Scheme: four, Linear: true}})
	if err != nil || !strings.Contains(string(out), `"lm_head": true`) || !strings.Contains(string(out), `"sym": true`) || strings.Contains(string(out), "dynamic") {
		t.Errorf("config %s, %v", out, err)
	}
	_, _, err = GPTQ.Config([]byte(`{}`), []ModelWeight{{Name: "model.embed_tokens.weight", Scheme: four}})
	wantError(t, err, "config.json", `"model.embed_tokens.weight" is not the weight of a linear layer`)
	asymmetric := &Scheme{Bits: 4, Group: 32, Zeros: IntZeros, Scales: packing.BF16}
	weights = append(weights[:1], ModelWeight{Name: "model.layers.0.a.weight", Scheme: asymmetric, Linear: true})
	out, _, err = GPTQ.Config([]byte(`{}`), weights)
	if err != nil || !strings.Contains(string(out), `"checkpoint_format": "gptq_v2"`) || !strings.Contains(string(out), `"sym": false`) {
		t.Errorf("config %s, %v", out, err)
	}
	_, _, err = GPTQ.Config([]byte(`{}`), append(weights, ModelWeight{Name: "b.weight", Scheme: four, Linear: true}))
	wantError(t, err, `"b.weight" is symmetric and "model.layers.0.a.weight" has zero points`, "the same mapping")
	_, _, err = GPTQ.Config([]byte(`{}`), weights[:1])
	wantError(t, err, "no weight is quantized")
}
