package hfquant

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// spell writes the names, dtypes and shapes of tensors as lines, which parse reads: "m.weight I8 4
// 64".
func spell(tensors []stored) (lines string, data []byte) {
	for _, s := range tensors {
		lines += s.Name + " " + s.Dtype.String()
		for _, d := range s.Shape {
			lines += fmt.Sprint(" ", d)
		}
		lines += "\n"
		data = append(data, s.data...)
	}
	return lines, data
}

// parse makes the file of the tensors in lines, whose bytes are data, over and over. It returns nil
// for tensors that are no test of this package.
func parse(lines, metadata string, data []byte) []byte {
	const most = 1 << 16 // bytes
	var tensors []stored
	names := map[string]bool{}
	all, at := int64(0), 0
	for line := range strings.Lines(lines) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] == "__metadata__" || names[fields[0]] || len(names) == 64 {
			return nil
		}
		d, ok := packing.ParseDtype(fields[1])
		if !ok || d.Bits()%8 != 0 {
			return nil
		}
		p := Part{Name: fields[0], Dtype: d}
		for _, f := range fields[2:] {
			var n int64
			if _, err := fmt.Sscan(f, &n); err != nil || n < 0 || n > most {
				return nil
			}
			if p.Shape = append(p.Shape, n); p.bytes() > most {
				return nil
			}
		}
		size := p.bytes()
		if all += size; all > most {
			return nil
		}
		s := stored{Part: p}
		for int64(len(s.data)) < size && len(data) > 0 {
			n := min(int(size)-len(s.data), len(data)-at)
			s.data = append(s.data, data[at:][:n]...)
			at = (at + n) % len(data)
		}
		tensors, names[p.Name] = append(tensors, s), true
	}
	var m map[string]string
	_ = json.Unmarshal([]byte(metadata), &m) // nil if it is none
	file, err := fileOf(m, tensors...)
	if err != nil {
		return nil
	}
	return file
}

// FuzzFind reads checkpoints of any tensors beside any config.json. Whatever is found has rows of
// the shape and of the scheme that it states, and formats that hold the scheme store them.
func FuzzFind(f *testing.F) {
	for _, format := range []string{"compressed", "torchao", "gptq", "awq", "autoround", "mlx"} {
		list := vectors(f, format)
		for i := 0; i < len(list); i += 5 {
			lines, data := spell(list[i].stored())
			metadata, err := json.Marshal(list[i].Metadata)
			if err != nil {
				f.Fatal(err)
			}
			f.Add([]byte(list[i].Config), lines, string(metadata), data)
		}
	}
	lines, data := spell(scatteredTensors())
	f.Add([]byte(gptqTestConfig), lines, "{}", data)
	f.Fuzz(func(t *testing.T, config []byte, lines, metadata string, data []byte) {
		file := parse(lines, metadata, data)
		if file == nil {
			t.Skip()
		}
		path := filepath.Join(t.TempDir(), "model.safetensors")
		if err := os.WriteFile(path, file, 0o666); err != nil {
			t.Fatal(err)
		}
		ck, err := safetensors.Open(path, safetensors.Options{})
		if err != nil {
			t.Skip(err)
		}
		defer ck.Close()
		q, err := Find(ck, config)
		if err != nil || q == nil {
			return
		}
		for name, i := range q.Parts {
			if _, ok := ck.Lookup(name); !ok || i < 0 || i >= len(q.Weights) {
				t.Fatalf("part %q of weight %d", name, i)
			}
		}
		for i := range q.Weights {
			useWeight(t, &q.Weights[i])
		}
	})
}

// useWeight reads all rows and stores them in every format that holds them.
func useWeight(t *testing.T, w *Weight) {
	n, k := w.Shape[0], w.Shape[1]
	rows := make([]Row, n)
	for i := range rows {
		if w.Read(&rows[i], int64(i)) != nil {
			return
		}
		checkRow(t, w, &rows[i], k)
	}
	for _, f := range Formats() {
		l, err := f.NewLayout("m.weight", w.Shape, w.Scheme)
		if err != nil {
			continue
		}
		_ = l.Put(rows, 0, func(part int, off int64, b []byte) error {
			if off < 0 || off+int64(len(b)) > l.Parts[part].bytes() {
				t.Fatalf("%s: bytes %d to %d of part %+v", f, off, off+int64(len(b)), l.Parts[part])
			}
			return nil
		})
	}
}

// checkRow fails for a row that is not of the weight's scheme.
func checkRow(t *testing.T, w *Weight, r *Row, k int64) {
	s := w.Scheme
	groups, zeros, offsets := int(s.Groups(k)), 0, 0
	switch s.Zeros {
	case IntZeros:
		zeros = groups
	case Offsets:
		offsets = groups
	}
	if int64(len(r.Codes)) != k || len(r.Scales) != groups || len(r.Zeros) != zeros || len(r.Offsets) != offsets {
		t.Fatalf("%s of %v: %d codes, %d scales, %d zero points, %d offsets", w.Name, s, len(r.Codes), len(r.Scales), len(r.Zeros), len(r.Offsets))
	}
	low, high := limits(s.Bits)
	for _, c := range r.Codes {
		if int(c) < low || int(c) > high {
			t.Fatalf("%s of %v: code %d", w.Name, s, c)
		}
	}
	for _, v := range append(r.Scales[:groups:groups], r.Offsets...) {
		if !floats.Finite(v) {
			t.Fatalf("%s of %v: scale or offset %g (%x)", w.Name, s, v, math.Float32bits(v))
		}
	}
}
