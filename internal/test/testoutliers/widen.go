package testoutliers

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/packing"
)

// shardBytes bounds the data of a file, as in Transformers.
const shardBytes = 5_000_000_000

var dtypes = regexp.MustCompile(`("(?:torch_)?dtype"\s*:\s*)"[^"]*"`)

// widen writes a copy of a checkpoint with floating-point tensors as F32, metadata in its files and
// one more section in its model card. FP8 weights lose their scales.
func widen(src, dst string, metadata map[string]string, section string) error {
	ck, err := safetensors.Open(src, safetensors.Options{})
	if err != nil {
		return err
	}
	defer ck.Close()
	config, err := assets.ReadConfig(ck)
	if err != nil {
		return err
	}
	facts, err := arch.ParseConfig(config)
	if err != nil {
		return err
	}
	weights, scales := map[string]*safetensors.Weights{}, map[string]bool{}
	for _, t := range ck.Tensors() {
		if !t.Dtype.IsFloat() || len(t.Shape) < 2 {
			continue
		}
		w, err := ck.Weights(t, safetensors.WeightsOptions{Block: facts.WeightBlockSize})
		if err != nil {
			return err
		}
		if weights[t.Name] = w; w.Scale != nil {
			scales[w.Scale.Name] = true
		}
	}
	if len(scales) > 0 {
		if config, err = hfquant.WithoutQuantization(config); err != nil {
			return err
		}
	}
	tensors := slices.SortedFunc(slices.Values(ck.Tensors()), func(a, b safetensors.Tensor) int { return strings.Compare(a.Name, b.Name) })
	tensors = slices.DeleteFunc(tensors, func(t safetensors.Tensor) bool { return scales[t.Name] })
	var specs []safetensors.TensorSpec
	for _, t := range tensors {
		if t.Dtype.IsFloat() && len(t.Shape) > 0 {
			t.Dtype = packing.F32
		}
		specs = append(specs, safetensors.TensorSpec{Name: t.Name, Dtype: t.Dtype, Shape: t.Shape})
	}
	out, err := safetensors.Create(dst, specs, safetensors.WriteOptions{MaxShardBytes: shardBytes, Metadata: metadata})
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := copyFiles(src, dst, dtypes.ReplaceAll(config, []byte(`${1}"float32"`)), section); err != nil {
		return err
	}
	for i, t := range tensors {
		if err := widenTensor(out, i, ck, t, weights[t.Name]); err != nil {
			return err
		}
	}
	return out.Commit()
}

// widenTensor writes tensor i. w reads a floating-point matrix.
func widenTensor(out *safetensors.Writer, i int, ck *safetensors.Checkpoint, t safetensors.Tensor, w *safetensors.Weights) error {
	rows, cols := t.Matrix()
	step := max(1, 1<<20/int(max(cols, 1)))
	if !t.Dtype.IsFloat() || len(t.Shape) == 0 {
		raw, err := ck.Bytes(t)
		if err != nil {
			return err
		}
		return out.WriteAt(i, raw, 0)
	}
	for from := 0; from < int(rows); from += step {
		n := min(step, int(rows)-from)
		x := make([]float32, n*int(cols))
		var err error
		if w != nil {
			err = w.Read(x, from, n)
		} else {
			err = ck.ReadRows(x, t, from, n)
		}
		if err != nil {
			return err
		}
		b := make([]byte, 0, 4*len(x))
		for _, v := range x {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		if err := out.WriteAt(i, b, 4*int64(from)*cols); err != nil {
			return err
		}
	}
	return nil
}

// copyFiles writes config.json and the model card with the section, and copies the model's other
// files.
func copyFiles(src, dst string, config []byte, section string) error {
	if err := atomicfile.WriteFile(filepath.Join(dst, "config.json"), config); err != nil {
		return err
	}
	for _, name := range assets.AssetFiles() {
		data, err := assets.ReadAsset(src, name)
		if name == llamacpp.CardFile {
			data = withSection(data, section)
		}
		if err == nil && data != nil {
			err = atomicfile.WriteFile(filepath.Join(dst, name), data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func withSection(card []byte, section string) []byte {
	if card == nil {
		card = []byte("---\n---\n\n# Model\n")
	}
	return fmt.Appendf(nil, "%s\n\n%s", bytes.TrimRight(card, "\n"), section)
}
