package calib

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
)

// llama-imatrix of llama.cpp (tools/imatrix/imatrix.cpp) writes GGUF with the general.type
// "imatrix". Each matrix NAME has two F32 tensors: NAME.in_sum2, [n_mat][columns], the sums of
// squares of its inputs, and NAME.counts, [n_mat], numbers of tokens. n_mat is the number of fused
// experts, else 1. Newer files also have NAME.in_sum, plain sums.

// readGGUF calls entry for every matrix of an imatrix in GGUF, in the file's order. counts are the
// tokens of each expert, or of the single matrix, and sums the concatenated sums of squares. Errors
// are *gguf.FormatError, or come from entry.
func readGGUF(data []byte, entry func(name string, counts []int64, sums []float64) error) error {
	f, err := gguf.Parse(data)
	if err != nil {
		return fmt.Errorf("imatrix: %w", err)
	}
	if general, _ := f.Metadata["general.type"].(string); general != "imatrix" {
		return malformed(0, "a GGUF file of type %q, not of type \"imatrix\": take the file that llama-imatrix wrote", general)
	}
	tensors := make(map[string]*gguf.Tensor, len(f.Tensors))
	for _, t := range f.Tensors {
		if tensors[t.Name] = t; t.Type != gguf.F32 {
			return malformed(t.At, "tensor %q has type %s: an imatrix has tensors of F32", t.Name, t.Type)
		}
	}
	entries := 0
	for _, t := range f.Tensors {
		if m, ok := strings.CutSuffix(t.Name, ".counts"); ok && tensors[m+".in_sum2"] == nil {
			return malformed(t.At, "tensor %q has no %q beside it", t.Name, m+".in_sum2")
		}
		name, isSum := strings.CutSuffix(t.Name, ".in_sum2")
		if !isSum {
			continue
		}
		counts, sums, err := readMatrix(f, name, t, tensors[name+".counts"])
		if err != nil {
			return err
		}
		entries++
		if err := entry(name, counts, sums); err != nil {
			return err
		}
	}
	if entries == 0 {
		return malformed(0, "it has no matrices")
	}
	return nil
}

func malformed(at int64, format string, args ...any) error {
	return fmt.Errorf("imatrix: %w", &gguf.FormatError{Offset: at, Msg: fmt.Sprintf(format, args...)})
}

func readMatrix(f *gguf.File, name string, s, c *gguf.Tensor) (counts []int64, sums []float64, err error) {
	switch {
	case c == nil:
		return nil, nil, malformed(s.At, "tensor %q has no %q beside it", s.Name, name+".counts")
	case s.Elements()%c.Elements() != 0:
		return nil, nil, malformed(s.At, "%d sums of %q are not those of %d matrices", s.Elements(), name, c.Elements())
	}
	if sums, err = numbers(f, s); err != nil {
		return nil, nil, err
	}
	tokens, err := numbers(f, c)
	if err != nil {
		return nil, nil, err
	}
	for _, v := range tokens {
		if v > 1<<40 {
			return nil, nil, malformed(c.Offset, "%q has seen %v tokens, more than 2^40", name, v)
		}
		counts = append(counts, int64(math.Round(v)))
	}
	return counts, sums, nil
}

// numbers reads an F32 tensor and checks that no number is negative.
func numbers(f *gguf.File, t *gguf.Tensor) ([]float64, error) {
	b := f.Data(t)
	list := make([]float64, len(b)/4)
	for i := range list {
		v := math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		if !(v >= 0) || math.IsInf(float64(v), 0) {
			return nil, malformed(t.Offset+4*int64(i), "element %d of tensor %q is %v: want a finite number, 0 or more", i, t.Name, v)
		}
		list[i] = float64(v)
	}
	return list, nil
}
