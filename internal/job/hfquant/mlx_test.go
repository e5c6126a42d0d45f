package hfquant

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// TestMLXVectors reads what MLX quantized, and writes it back byte for byte. Where q * scale + bias
// is 0, (code - zero) * scale may be -0.
func TestMLXVectors(t *testing.T) {
	for _, v := range vectors(t, "mlx") {
		t.Run(v.name(), func(t *testing.T) {
			w := findOne(t, store(t, v.stored()...), string(v.Config))
			rows := readAll(t, w)
			v.check(t, w, rows)
			if got := sumOf(w.Scheme, rows, true); got != v.Dequantized {
				t.Errorf("the weights differ: SHA-256 %s, want %s", got, v.Dequantized)
			}
			l, err := MLX.NewLayout(w.Name, w.Shape, w.Scheme)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []int64{1, 3, v.N} {
				v.equalParts(t, putAll(t, l, rows, step))
			}
			ownConfig(t, MLX, w, v.stored())
		})
	}
}

const mlxTestConfig = `{"quantization": {"group_size": 32, "bits": 4}}`

// mlxTensors is the weight of module, of shape [2, 64] and 4 bits in groups of 32, with scales and
// biases in F32.
func mlxTensors(module string, scales, biases [4]float32) []stored {
	all := []stored{
		{Part: Part{Name: module + ".weight", Dtype: packing.U32, Shape: []int64{2, 8}}, data: make([]byte, 64)},
		{Part: Part{Name: module + ".scales", Dtype: packing.F32, Shape: []int64{2, 2}}},
		{Part: Part{Name: module + ".biases", Dtype: packing.F32, Shape: []int64{2, 2}}},
	}
	for i := range 4 {
		all[1].data = binary.LittleEndian.AppendUint32(all[1].data, math.Float32bits(scales[i]))
		all[2].data = binary.LittleEndian.AppendUint32(all[2].data, math.Float32bits(biases[i]))
	}
	return all
}

// TestMLXZeros tells zero points from offsets.
func TestMLXZeros(t *testing.T) {
	third := float32(1) / 3
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		scales, biases [4]float32
		kind           Zeros
		zeros          []int8    // of row 1
		offsets        []float32 // of row 1
		err            []string  // of row 1
	}{
		"symmetric":          {scales: [4]float32{1, 2, third, -third}, biases: [4]float32{-8, -16, -8 * third, 8 * third}},
		"zero points":        {scales: [4]float32{1, 2, 0.75, -0.75}, biases: [4]float32{-8, -16, 0, 15 * 0.75}, kind: IntZeros, zeros: []int8{-8, 7}},
		"zeros":              {scales: [4]float32{1, 2, 0, 1}, biases: [4]float32{-8, -16, 0, -7}, kind: IntZeros, zeros: []int8{0, -1}},
		"sum rounds":         {scales: [4]float32{1, 1, third, 1}, biases: [4]float32{-8, -8, -0.1, -8}, kind: Offsets, err: []string{`"m.biases"`, "row 1", "group 0", "not a float32 number"}},
		"beyond the codes":   {scales: [4]float32{1, 1, 1, 1}, biases: [4]float32{-8, -8, -16, 1}, kind: Offsets, offsets: []float32{-8, 9}},
		"between zeros":      {scales: [4]float32{1, 1, 1, 2}, biases: [4]float32{-8, -8, -7.5, -2.5}, kind: Offsets, offsets: []float32{0.5, 13.5}},
		"scale of 0":         {scales: [4]float32{1, 1, 0, 1}, biases: [4]float32{-8, -8, 3, -8}, kind: Offsets, offsets: []float32{3, 0}},
		"sum of two sizes":   {scales: [4]float32{1, 1, 0x1p-60, 1}, biases: [4]float32{-8, -8, 1, -8}, kind: Offsets, err: []string{"row 1", "group 0", "not a float32 number"}},
		"sum beyond float64": {scales: [4]float32{1, 1, 0x1p-100, 1}, biases: [4]float32{-8, -8, 1, -8}, kind: Offsets, err: []string{"row 1", "group 0", "not a float32 number"}},
		"NaN bias":           {scales: [4]float32{1, 1, 1, 1}, biases: [4]float32{-8, -8, -8, nan}, kind: Offsets, err: []string{`"m.biases"`, "row 1", "group 1", "NaN"}},
		"NaN scale":          {scales: [4]float32{1, 1, nan, 1}, biases: [4]float32{-8, -8, -8, -8}, kind: Offsets, err: []string{`"m.scales"`, "row 1", "group 0", "NaN"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := findOne(t, store(t, mlxTensors("m", c.scales, c.biases)...), mlxTestConfig)
			if w.Scheme != (Scheme{Bits: 4, Group: 32, Zeros: c.kind, Scales: packing.F32}) {
				t.Errorf("%v", w.Scheme)
			}
			var row Row
			if err := w.Read(&row, 0); err != nil {
				t.Error(err)
			}
			err := w.Read(&row, 1)
			if c.err != nil {
				wantError(t, err, c.err...)
				return
			}
			if err != nil || !slices.Equal(row.Zeros, c.zeros) || !slices.Equal(row.Offsets, c.offsets) || !slices.Equal(row.Scales, c.scales[2:]) {
				t.Errorf("row 1: scales %v, zero points %v, offsets %v, %v", row.Scales, row.Zeros, row.Offsets, err)
			}
		})
	}
}

func TestMLXFind(t *testing.T) {
	one := [4]float32{1, 1, 1, 1}
	both := append(mlxTensors("a.b", one, one), mlxTensors("m", one, one)...)
	q, err := Find(store(t, both...), []byte(`{"quantization": {"group_size": 64, "bits": 2, "a.b": {"group_size": 32, "bits": 4}, "m": {"group_size": 32, "bits": 4, "mode": "affine"}, "n": false}, "x": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]int{"a.b.weight": 0, "a.b.scales": 0, "a.b.biases": 0, "m.weight": 1, "m.scales": 1, "m.biases": 1}
	if q.Format != MLX || len(q.Weights) != 2 || !maps.Equal(q.Parts, parts) || string(q.Config) != `{ "x": 1}` {
		t.Errorf("Find gives %+v, config %s", q, q.Config)
	}
	for name, c := range map[string]struct {
		config string
		change func(all []stored) []stored
		want   []string
	}{
		"mode":             {config: `{"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}}`, want: []string{`"m.weight"`, `mode "mxfp4" is not read: only affine`}},
		"module's default": {config: `{"quantization": {"group_size": 32, "bits": 4, "m": {"bits": 4}}}`, want: []string{`"m.scales"`, "[2 2]", "[2 1]"}},
		"mode of a module": {config: `{"quantization": {"group_size": 32, "bits": 4, "m": {"group_size": 16, "bits": 4, "mode": "nvfp4"}}}`, want: []string{`mode "nvfp4"`}},
		"bits":             {config: `{"quantization": {"group_size": 32, "bits": 7}}`, want: []string{`"m.weight"`, "7 bits, expected 2, 3, 4, 5, 6 or 8"}},
		"group":            {config: `{"quantization": {"group_size": 16, "bits": 4}}`, want: []string{"16 columns, expected 32, 64 or 128"}},
		"other bits":       {config: `{"quantization": {"group_size": 32, "bits": 3}}`, want: []string{`"m.weight"`, "does not hold groups of 32 codes of 3 bits"}},
		"other group":      {config: `{"quantization": {"group_size": 64, "bits": 4}}`, want: []string{`"m.scales"`, "[2 2]", "[2 1]"}},
		"module's type":    {config: `{"quantization": {"group_size": 32, "bits": 4, "m": {"bits": "x"}}}`, want: []string{`"m.weight"`, "json"}},
		"no biases":        {change: func(all []stored) []stored { return all[:2] }, want: []string{`no tensor "m.biases"`}},
		"biases' dtype":    {change: func(all []stored) []stored { return reshape(all, 2, packing.F16, 2, 2) }, want: []string{`"m.biases"`, "dtype F16, expected F32"}},
		"experts":          {change: func(all []stored) []stored { return reshape(all, 0, packing.U32, 2, 2, 8) }, want: []string{`"m.weight"`, "[2 2 8], expected 2 dimensions"}},
		"no rows":          {change: func(all []stored) []stored { return reshape(all, 0, packing.U32, 0, 8) }, want: []string{`"m.weight"`, "not 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := mlxTensors("m", one, one)
			if c.change != nil {
				all = c.change(all)
			}
			if c.config == "" {
				c.config = mlxTestConfig
			}
			_, err := Find(store(t, all...), []byte(c.config))
			wantError(t, err, c.want...)
		})
	}
}

func TestMLXHolds(t *testing.T) {
	for _, c := range []struct {
		scheme Scheme
		want   string // "" for none
	}{
		{Scheme{Bits: 3, Group: 32, Scales: packing.BF16, Zeros: Offsets}, ""},
		{Scheme{Bits: 7, Group: 32, Scales: packing.BF16}, "codes have 2, 3, 4, 5, 6 or 8 bits"},
		{Scheme{Bits: 4, Group: 16, Scales: packing.BF16}, "groups have 32, 64 or 128 columns"},
		{Scheme{Bits: 4, Scales: packing.BF16}, "groups have 32, 64 or 128 columns"},
		{Scheme{Bits: 4, Group: 64, Scales: packing.BF16}, "groups of 64 columns do not divide rows of 96"},
	} {
		_, err := MLX.NewLayout("m.weight", []int64{1, 96}, c.scheme)
		if c.want == "" && err != nil {
			t.Error(err)
		}
		if c.want != "" {
			wantError(t, err, `"m.weight"`, "mlx", c.want)
		}
	}
}

// TestMLXPut writes biases that the scales' dtype holds, or not.
func TestMLXPut(t *testing.T) {
	for name, c := range map[string]struct {
		kind   Zeros
		scale  float32
		zero   int8
		offset float32
		bias   float32 // NaN: an error
	}{
		"symmetric":              {scale: 1.5, bias: -12},
		"largest scale":          {scale: 0x1.fep127, bias: float32(math.NaN())},
		"zero point":             {kind: IntZeros, scale: 1.5, zero: -3, bias: -7.5},
		"zero":                   {kind: IntZeros, scale: 1.5, zero: -8, bias: 0},
		"zero point of 12 bits":  {kind: IntZeros, scale: 1 + 0x1p-7, zero: 7, bias: float32(math.NaN())},
		"offset":                 {kind: Offsets, scale: 1.5, offset: 0.5, bias: -11.5},
		"offset of another size": {kind: Offsets, scale: 1.5, offset: 0x1p-20, bias: float32(math.NaN())},
	} {
		t.Run(name, func(t *testing.T) {
			s := Scheme{Bits: 4, Group: 32, Zeros: c.kind, Scales: packing.BF16}
			l, err := MLX.NewLayout("m.weight", []int64{8, 32}, s)
			if err != nil {
				t.Fatal(err)
			}
			var row Row
			row.resize(s, 32)
			row.Scales[0] = c.scale
			if c.kind == IntZeros {
				row.Zeros[0] = c.zero
			}
			if c.kind == Offsets {
				row.Offsets[0] = c.offset
			}
			var bias []byte
			err = l.Put([]Row{row}, 3, func(part int, off int64, b []byte) error {
				if part == 2 {
					bias = bytes.Clone(b)
				}
				return nil
			})
			if c.bias != c.bias {
				wantError(t, err, `"m.weight"`, "row 3", "group 0", "not exact in BF16")
				return
			}
			if want := uint16(math.Float32bits(c.bias) >> 16); err != nil || binary.LittleEndian.Uint16(bias) != want {
				t.Errorf("bias %x, want %x, %v", bias, want, err)
			}
		})
	}
}

func TestMLXConfig(t *testing.T) {
	four, six := &Scheme{Bits: 4, Group: 32, Scales: packing.BF16}, &Scheme{Bits: 6, Group: 64, Scales: packing.BF16}
	out, metadata, err := MLX.Config([]byte(`{"a": 1, "quantization": {}}`), []ModelWeight{
		{Name: "model.embed_tokens.weight", Scheme: six},
		{Name: "model.layers.0.a.weight", Scheme: four, Linear: true},
		{Name: "model.layers.0.b.weight", Linear: true},
		{Name: "model.layers.0.c.weight", Scheme: four, Linear: true},
	})
	if err != nil || !maps.Equal(metadata, map[string]string{"format": "mlx"}) {
		t.Fatal(metadata, err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, out); err != nil {
		t.Fatal(err)
	}
	const entry = `{"bits":4,"group_size":32,"mode":"affine","model.embed_tokens":{"group_size":64,"bits":6,"mode":"affine"}}`
	if want := `{"a":1,"quantization":` + entry + `,"quantization_config":` + entry + `}`; compact.String() != want {
		t.Errorf("config:\n%s\nwant\n%s", &compact, want)
	}
	if e, err := findEntry(out); err != nil || strings.Join(e.path, ".") != "quantization" {
		t.Errorf("the entry is %+v, %v", e, err)
	}
}
