package hfquant

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
)

// torchao stores the weight M.W, an IntxUnpackedToInt8Tensor, in three tensors: M._W_qdata I8 [N,
// K], the codes; M._W_scale [N, groups]; M._W_zero_point [N, groups], I8, also for symmetric
// weights. __metadata__ of the safetensors files describes each tensor of the model in JSON, under
// its name. An Int8Tensor has the same tensors, with a group per row or per tensor. The zero points
// may be missing, and further parts may say how activations are quantized.
//
// Source: prototype/safetensors and quantization/quantize_/workflows of torchao.

// The classes of tensors that are read; the first is also written.
const (
	torchAOTensor     = "IntxUnpackedToInt8Tensor"
	torchAOInt8Tensor = "Int8Tensor"
)

// torchAONames is the key of the list of names in __metadata__.
const torchAONames = "tensor_names"

// torchAOClass is what __metadata__ says of a tensor. The order of fields is the library's.
type torchAOClass struct {
	Type  string         `json:"_type"`
	Data  *torchAOFields `json:"_data,omitempty"`
	Parts []string       `json:"_tensor_data_names,omitempty"`
}

type torchAOFields struct {
	Target      torchAODtype `json:"target_dtype"`
	Block       []int64      `json:"block_size"`
	Dtype       torchAODtype `json:"dtype"`
	Activations *string      `json:"activation_quantization"`
}

type torchAODtype struct {
	Type string `json:"_type"`
	Data string `json:"_data"`
}

// torchAOParts are the ends of the names of a weight's tensors.
var torchAOParts = []string{"qdata", "scale", "zero_point"}

func torchAOName(weight, part string) string {
	module, last := splitName(weight)
	return module + "_" + last + "_" + part
}

// hasTorchAO reports whether a file's metadata describes torchao's tensors.
func hasTorchAO(ck *safetensors.Checkpoint) bool {
	return slices.ContainsFunc(ck.Files(), func(f safetensors.SourceFile) bool {
		_, ok := f.Metadata[torchAONames]
		return ok
	})
}

func findTorchAO(f *finder) error {
	classes := map[string]string{}
	for _, file := range f.ck.Files() {
		for name, text := range file.Metadata {
			if other, ok := classes[name]; ok && other != text {
				return f.formatError(name, "the files' metadata describe it differently")
			}
			classes[name] = text
		}
	}
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		var c torchAOClass
		if name == torchAONames || !strings.Contains(classes[name], `"_type"`) {
			continue // such as "format"
		}
		if err := json.Unmarshal([]byte(classes[name]), &struct {
			Type *string `json:"_type"`
		}{&c.Type}); err != nil {
			return f.formatError(name, "metadata: %v", err)
		}
		switch c.Type {
		case "Tensor":
			continue
		case torchAOTensor, torchAOInt8Tensor:
		default:
			return f.unsupported(name, "torchao's class %s is not read, only %s and %s", quote(c.Type), torchAOTensor, torchAOInt8Tensor)
		}
		if err := json.Unmarshal([]byte(classes[name]), &c); err != nil {
			return f.formatError(name, "metadata: %v", err)
		}
		if err := f.addTorchAO(name, &c); err != nil {
			return err
		}
	}
	for _, t := range f.ck.Tensors() { // that look like a weight's codes
		if _, ok := f.q.Parts[t.Name]; !ok && strings.HasSuffix(t.Name, "_"+torchAOParts[0]) {
			return f.formatError(t.Name, "no __metadata__ describes it as torchao does")
		}
	}
	return nil
}

// torchAOBits is the number of bits of a class's codes; 0 for unknown classes.
func torchAOBits(c *torchAOClass) int {
	switch {
	case c.Data == nil:
		return 0
	case c.Type == torchAOInt8Tensor:
		return 8
	}
	for b := 1; b <= 8; b++ {
		if c.Data.Target.Data == fmt.Sprintf("int%d", b) {
			return b
		}
	}
	return 0
}

func (f *finder) addTorchAO(name string, c *torchAOClass) error {
	w := &torchAOWeight{bits: torchAOBits(c)}
	if w.bits == 0 {
		return f.unsupported(name, "metadata: target_dtype is not one of int1 to int8")
	}
	codes, ok := f.ck.Lookup(torchAOName(name, torchAOParts[0]))
	if !ok {
		return f.formatError(name, "the checkpoint has no tensor %s", quote(torchAOName(name, torchAOParts[0])))
	}
	block := c.Data.Block
	if len(codes.Shape) != 2 || codes.Numel() == 0 || len(block) != 2 {
		return f.unsupported(codes.Name, "shape %v in blocks of %v, expected [rows, columns]", codes.Shape, block)
	}
	n, k := codes.Shape[0], codes.Shape[1]
	if block[0] != 1 && block[0] != n || block[1] <= 0 || k%block[1] != 0 {
		return f.unsupported(codes.Name, "shape %v in blocks of %v: blocks must be [1 or all rows, columns that divide a row]", codes.Shape, block)
	}
	names, err := f.torchAOTensors(w, name, c, codes.Shape, []int64{n / block[0], k / block[1]})
	if err != nil {
		return err
	}
	s := Scheme{Bits: w.bits, Group: block[1], Scales: w.scales.dtype}
	if s.Group == k {
		s.Group = 0
	}
	if w.zeros != nil {
		s.Zeros = IntZeros
	}
	f.q.Format = TorchAO
	return f.add(Weight{Name: name, Shape: codes.Shape, Scheme: s, codec: w}, names...)
}

// torchAOTensors sets w's tensors and returns their names. blocks is the shape of scales and zeros.
func (f *finder) torchAOTensors(w *torchAOWeight, name string, c *torchAOClass, shape, blocks []int64) (names []string, err error) {
	parts := torchAOParts
	if c.Type == torchAOInt8Tensor {
		parts = c.Parts
		if slices.Contains(parts, "act_pre_scale") {
			return nil, f.unsupported(name, "metadata: act_pre_scale: weights whose activations are scaled are not read")
		}
	}
	for _, part := range parts {
		full := torchAOName(name, part)
		if _, ok := f.ck.Lookup(full); !ok {
			return nil, f.formatError(name, "the checkpoint has no tensor %s", quote(full))
		}
		names = append(names, full)
	}
	if w.codes, err = f.part(name, torchAOName(name, torchAOParts[0]), []packing.Dtype{packing.I8}, shape); err != nil {
		return nil, err
	}
	if w.scales, err = f.part(name, torchAOName(name, torchAOParts[1]), scaleDtypes, blocks); err != nil {
		return nil, err
	}
	if !slices.Contains(parts, torchAOParts[2]) {
		return names, nil
	}
	zeros, err := f.part(name, torchAOName(name, torchAOParts[2]), []packing.Dtype{packing.I8}, blocks)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(zeros.view, func(z byte) bool { return z != 0 }) {
		w.zeros = zeros
	}
	return names, nil
}

// torchAOWeight reads the rows of a weight. zeros is nil if all are 0.
type torchAOWeight struct {
	bits                 int
	codes, scales, zeros *matrix
}

func (w *torchAOWeight) readCodes(row *Row, n int64) error {
	return w.codes.codes(row.Codes, w.bits, n)
}

func (w *torchAOWeight) readGroups(row *Row, n int64) error {
	if err := w.scales.scales(row.Scales, n); err != nil {
		return err
	}
	if len(row.Zeros) > 0 {
		w.zeros.int8s(row.Zeros, n)
	}
	return nil
}

func layoutTorchAO(name string, n, k int64, s Scheme) *Layout {
	return &Layout{RowStep: 1, Parts: []Part{
		int8Codes(torchAOName(name, torchAOParts[0]), n, k),
		scalesPart(torchAOName(name, torchAOParts[1]), n, k, s),
		{ // zeros without zero points
			Name: torchAOName(name, torchAOParts[2]), Dtype: packing.I8, Shape: []int64{n, s.Groups(k)},
			fill: func(dst []byte, r *Row) { putInt8s(dst, r.Zeros) },
		},
	}}
}
