package gq

import (
	"os"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
)

// Inspection is what a file or a checkpoint says of itself. Exactly one field is set.
type Inspection struct {
	File       *gqf.Inspection
	Checkpoint *safetensors.Inspection
}

// Inspect reads the directory and the metadata of a .gqf file, or the headers of the checkpoint at path, and none of the
// weights. It does not check them; Verify does.
func Inspect(path string) (*Inspection, error) {
	ours, err := isGQF(path)
	if err != nil {
		return nil, err
	}
	if ours {
		f, err := gqf.Open(path, gqf.Options{})
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r, err := gqf.Inspect(f)
		return &Inspection{File: r}, err
	}
	ck, err := safetensors.Open(path, safetensors.Options{})
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	return &Inspection{Checkpoint: safetensors.Inspect(ck)}, nil
}

// InspectTensor reads all of one tensor of a .gqf file, which any of its names stands for. slice is the expert of a fused
// tensor, else 0.
func InspectTensor(path, name string, slice int) (*gqf.TensorInspection, error) {
	ours, err := isGQF(path)
	if err != nil {
		return nil, err
	}
	if !ours {
		return nil, optionf("tensor", "shows tensors of .gqf files; %s is a checkpoint", path)
	}
	f, err := gqf.Open(path, gqf.Options{})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return gqf.InspectTensor(f, name, slice)
}

// isGQF tells the two kinds of input apart: by name, else by the first bytes, so that
// a damaged .gqf file is called that.
func isGQF(path string) (bool, error) {
	if st, err := os.Stat(path); err != nil || st.IsDir() {
		return false, err
	}
	kind, err := files.KindOf(path)
	return err == nil && (kind == files.GQF || strings.HasSuffix(path, ".gqf")), err
}
