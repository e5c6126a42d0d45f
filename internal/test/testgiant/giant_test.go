package testgiant

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
)

// TestModels opens models, and reads rows: the numbers are finite and not all equal.
func TestModels(t *testing.T) {
	for name, m := range map[string]*Model{
		"dense":   Dense(3, 128, 352, 1000, 4, 2),
		"experts": Experts("BF16", 2, 4, 128, 64, 500),
		"fp8":     Experts("F8_E4M3", 2, 4, 256, 192, 500),
		"v3":      Published["deepseek-v3"](4),
		"30B-A3B": Published["qwen3-30b-a3b"](1),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, safetensors.IndexName), m.Index, 0o666); err != nil {
				t.Fatal(err)
			}
			var opts safetensors.Options
			for _, f := range m.Files {
				opts.Remote = append(opts.Remote, safetensors.RemoteFile{Name: f.Name, Size: f.Size, ReadAt: func(_ context.Context, dst []byte, off int64) error {
					if n, err := f.ReadAt(dst, off); n < len(dst) && !errors.Is(err, io.EOF) {
						return err
					}
					return nil
				}})
			}
			ck, err := safetensors.Open(dir, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer ck.Close()
			total := int64(0)
			for _, tensor := range ck.Tensors() {
				total += tensor.Numel()
				_, cols := tensor.Matrix()
				row := make([]float32, cols)
				if err := ck.ReadRows(row, tensor, 0, 1); err != nil {
					t.Fatal(err)
				}
				different := len(row) == 1
				for _, v := range row {
					different = different || v != row[0]
					if !floats.Finite(v) || floats.Abs(v) > 16 {
						t.Fatalf("%s holds %v", tensor.Name, v)
					}
				}
				if !different {
					t.Errorf("%s holds %v only", tensor.Name, row[0])
				}
			}
			if total != m.Parameters {
				t.Errorf("%d parameters, want %d", m.Parameters, total)
			}
		})
	}
}
