package calib

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
)

// Imatrix is an importance matrix: second moments of inputs, as weights for the errors of columns.
type Imatrix struct {
	// Linears has the names of package model as keys. Each expert of a fused tensor has an entry.
	Linears map[string]*Moments
	// Choices says which rows are rounded with the second moments, from Collect and Choose.
	Choices map[string][]bool
	// Entries, Chunks and Datasets are the numbers of tensors and of chunks of text, and the names
	// of the texts, that the files of the matrix state.
	Entries, Chunks int
	Datasets        []string
}

func NewImatrix() *Imatrix {
	return &Imatrix{Linears: map[string]*Moments{}, Choices: map[string][]bool{}}
}

// Moments are the second moments of a linear layer's inputs.
type Moments struct {
	Rows int64     // tokens
	Sum  []float64 // sums of squares, by column
}

// Merge adds the second moments of another importance matrix, before Collect or Choose.
func (im *Imatrix) Merge(o *Imatrix) error {
	im.Entries, im.Chunks, im.Datasets = im.Entries+o.Entries, im.Chunks+o.Chunks, append(im.Datasets, o.Datasets...)
	for name, m := range o.Linears {
		own := im.Linears[name]
		if own == nil {
			im.Linears[name] = &Moments{m.Rows, slices.Clone(m.Sum)}
			continue
		}
		if len(own.Sum) != len(m.Sum) {
			return fmt.Errorf("imatrix: %q has %d columns in one and %d in the other", name, len(own.Sum), len(m.Sum))
		}
		own.Rows += m.Rows
		for i, v := range m.Sum {
			own.Sum[i] += v
		}
	}
	return nil
}

// Write writes the imatrix in llama.cpp's older format (imatrix.dat): the number of entries, and
// for each the tensor's name in the checkpoint, rows n, columns and the mean squares times n. The
// number of chunks and the texts' names follow, if files stated them.
func (im *Imatrix) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	put := func(v any) { _ = binary.Write(b, binary.LittleEndian, v) } // Flush returns the error
	names := make([]string, 0, len(im.Linears))
	for name := range im.Linears {
		names = append(names, name)
	}
	slices.Sort(names)
	put(int32(len(names)))
	for _, name := range names {
		m := im.Linears[name]
		put(int32(len(name)))
		b.WriteString(name)
		put(int32(min(m.Rows, math.MaxInt32)))
		put(int32(len(m.Sum)))
		values := make([]float32, len(m.Sum))
		for i, v := range m.Sum {
			values[i] = float32(v)
		}
		put(values)
	}
	if im.Chunks > 0 {
		texts := strings.Join(im.Datasets, ",")
		put(int32(min(im.Chunks, math.MaxInt32)))
		put(int32(len(texts)))
		b.WriteString(texts)
	}
	return b.Flush()
}

// ReadImatrix reads the output of Write, or an imatrix of llama.cpp (GGUF or imatrix.dat), with
// names of p's checkpoint for its tensors. A malformed GGUF file gives a *gguf.FormatError.
func ReadImatrix(data []byte, p *fromcheckpoint.Plan) (*Imatrix, error) {
	byName := map[string]plan.Matrix{}
	for _, m := range p.Matrices() {
		byName[m.Name()] = m
	}
	im := NewImatrix()
	if bytes.HasPrefix(data, []byte(gguf.Magic)) {
		f, err := readGGUF(data, func(name string, counts []int64, sums []float64) error {
			return im.add(name, counts, sums, byName)
		})
		if err != nil {
			return nil, err
		}
		chunks, _ := f.Int("imatrix.chunk_count")
		im.Chunks = int(max(0, min(chunks, math.MaxInt32)))
		texts, _ := f.Array("imatrix.datasets")
		im.Datasets, _ = texts.Strings()
		return im, nil
	}
	malformed := errors.New("this is no importance matrix: expected a file of --imatrix-out, or a GGUF file or imatrix.dat of llama.cpp")
	r := bytes.NewReader(data)
	number := func(most int32) (int, error) {
		var n int32
		if err := binary.Read(r, binary.LittleEndian, &n); err != nil || n < 1 || n > most {
			return 0, malformed
		}
		return int(n), nil
	}
	entries, err := number(1 << 20)
	if err != nil {
		return nil, err
	}
	for range entries {
		n, err := number(4096)
		if err != nil {
			return nil, err
		}
		name := make([]byte, n)
		if _, err := io.ReadFull(r, name); err != nil {
			return nil, malformed
		}
		rows, err := number(math.MaxInt32)
		if err != nil {
			return nil, err
		}
		cols, err := number(int32(min(r.Len()/4, math.MaxInt32)))
		if err != nil {
			return nil, err
		}
		values := make([]float32, cols)
		if err := binary.Read(r, binary.LittleEndian, values); err != nil {
			return nil, malformed
		}
		sums := make([]float64, cols)
		for i, v := range values {
			if !(v >= 0) || math.IsInf(float64(v), 0) {
				return nil, fmt.Errorf("imatrix: %q has the value %v", name, v)
			}
			sums[i] = float64(v)
		}
		if err := im.add(string(name), []int64{int64(rows)}, sums, byName); err != nil {
			return nil, err
		}
	}
	if chunks, err := number(math.MaxInt32); err == nil { // of newer files
		im.Chunks = chunks
		if n, err := number(int32(min(r.Len()-4, 1<<16))); err == nil {
			text := make([]byte, n)
			_, _ = io.ReadFull(r, text) // number has compared the length
			im.Datasets = []string{string(text)}
		}
	}
	return im, nil
}

// add adds an entry of a file: the sums of as many experts as there are counts of tokens, or of any
// number of experts that share a count. The matrices of a plan determine which names are meant.
func (im *Imatrix) add(name string, counts []int64, sums []float64, byName map[string]plan.Matrix) error {
	im.Entries++
	// put stores expert i of n. An expert that no token reached has no moments.
	put := func(as string, i, n int) {
		k := len(sums) / n
		if rows := counts[i%len(counts)]; rows > 0 {
			im.Linears[as] = &Moments{rows, sums[i*k:][:k]}
		}
	}
	single := func(as string) error {
		if len(counts) > 1 {
			return fmt.Errorf("imatrix: %q has %d experts there, in the checkpoint it is one matrix", name, len(counts))
		}
		put(as, 0, 1)
		return nil
	}
	if _, ok := byName[name]; ok {
		return single(name)
	}
	candidates := llamaNames(name)
	for _, candidate := range candidates {
		if _, ok := byName[candidate]; ok {
			if err := single(candidate); err != nil {
				return err
			}
		}
		// All experts in a single entry, concatenated.
		list := expertNames(candidate, byName)
		n := len(list)
		if n > 0 && (len(sums)%n != 0 || len(counts) > 1 && len(counts) != n) {
			return fmt.Errorf("imatrix: %q has %d columns of %d experts there, in the checkpoint there are %d experts", name, len(sums), len(counts), n)
		}
		for i, e := range list {
			put(e, i, n)
		}
	}
	if len(candidates) == 0 && len(counts) == 1 {
		put(name, 0, 1) // of another checkpoint, or not quantized
	}
	return nil
}

var llamaBlock = regexp.MustCompile(`^blk\.(\d+)\.(.+)\.weight$`)

// llamaTensors maps llama.cpp's names of tensors in blocks to checkpoints'; %d is an expert.
var llamaTensors = map[string][]string{
	"attn_q":      {"self_attn.q_proj.weight"},
	"attn_k":      {"self_attn.k_proj.weight"},
	"attn_v":      {"self_attn.v_proj.weight"},
	"attn_qkv":    {"self_attn.qkv_proj.weight"},
	"attn_output": {"self_attn.o_proj.weight"},
	"ffn_gate":    {"mlp.gate_proj.weight"},
	"ffn_up":      {"mlp.up_proj.weight", "mlp.gate_up_proj.weight"},
	"ffn_down":    {"mlp.down_proj.weight"},
	"ffn_gate_exps": {"mlp.experts.%d.gate_proj.weight", "block_sparse_moe.experts.%d.w1.weight",
		"mlp.experts.gate_up_proj[%d]"},
	"ffn_up_exps":   {"mlp.experts.%d.up_proj.weight", "block_sparse_moe.experts.%d.w3.weight"},
	"ffn_down_exps": {"mlp.experts.%d.down_proj.weight", "block_sparse_moe.experts.%d.w2.weight", "mlp.experts.down_proj[%d]"},
}

// llamaNames lists the names that a tensor of llama.cpp may have in a checkpoint.
func llamaNames(name string) (list []string) {
	if name == "output.weight" {
		return []string{"lm_head.weight", "language_model.lm_head.weight"}
	}
	parts := llamaBlock.FindStringSubmatch(name)
	if parts == nil {
		return nil
	}
	for _, prefix := range []string{"model.", "language_model.model.", "model.language_model."} {
		for _, tensor := range llamaTensors[parts[2]] {
			list = append(list, prefix+"layers."+parts[1]+"."+tensor)
		}
	}
	return list
}

var expertPlace = regexp.MustCompile(`%d`)

// expertNames lists the experts that match a name with %d.
func expertNames(pattern string, byName map[string]plan.Matrix) (list []string) {
	if !expertPlace.MatchString(pattern) {
		return nil
	}
	for i := 0; ; i++ {
		name := expertPlace.ReplaceAllString(pattern, strconv.Itoa(i))
		if _, ok := byName[name]; !ok {
			return list
		}
		list = append(list, name)
	}
}

// llama-imatrix of llama.cpp (tools/imatrix/imatrix.cpp) writes GGUF with the general.type
// "imatrix". Each matrix NAME has two F32 tensors: NAME.in_sum2, [n_mat][columns], the sums of
// squares of its inputs, and NAME.counts, [n_mat], numbers of tokens. n_mat is the number of fused
// experts, else 1. Newer files also have NAME.in_sum, plain sums.

// readGGUF calls entry for every matrix of an imatrix in GGUF, in the file's order. counts are the
// tokens of each expert, or of the single matrix, and sums the concatenated sums of squares. Errors
// are *gguf.FormatError, or come from entry.
func readGGUF(data []byte, entry func(name string, counts []int64, sums []float64) error) (*gguf.File, error) {
	f, err := gguf.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("imatrix: %w", err)
	}
	if general, _ := f.Metadata["general.type"].(string); general != "imatrix" {
		return nil, malformed(0, "a GGUF file of type %q, not of type \"imatrix\": take the file that llama-imatrix wrote", general)
	}
	tensors := make(map[string]*gguf.Tensor, len(f.Tensors))
	for _, t := range f.Tensors {
		if tensors[t.Name] = t; t.Type != gguf.F32 {
			return nil, malformed(t.At, "tensor %q has type %s: an imatrix has tensors of F32", t.Name, t.Type)
		}
	}
	entries := 0
	for _, t := range f.Tensors {
		if m, ok := strings.CutSuffix(t.Name, ".counts"); ok && tensors[m+".in_sum2"] == nil {
			return nil, malformed(t.At, "tensor %q has no %q beside it", t.Name, m+".in_sum2")
		}
		name, isSum := strings.CutSuffix(t.Name, ".in_sum2")
		if !isSum {
			continue
		}
		counts, sums, err := readMatrix(f, name, t, tensors[name+".counts"])
		if err != nil {
			return nil, err
		}
		entries++
		if err := entry(name, counts, sums); err != nil {
			return nil, err
		}
	}
	if entries == 0 {
		return nil, malformed(0, "it has no matrices")
	}
	return f, nil
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

// Facts are the keys by which llama-quantize describes the files of the importance matrix.
func (im *Imatrix) Facts(files []string) []gguf.Pair {
	pairs := []gguf.Pair{{Key: "quantize.imatrix.file", Value: strings.Join(files, ",")}}
	if len(im.Datasets) > 0 {
		pairs = append(pairs, gguf.Pair{Key: "quantize.imatrix.dataset", Value: strings.Join(im.Datasets, ",")})
	}
	pairs = append(pairs, gguf.Pair{Key: "quantize.imatrix.entries_count", Value: uint32(im.Entries)})
	if im.Chunks > 0 {
		pairs = append(pairs, gguf.Pair{Key: "quantize.imatrix.chunks_count", Value: uint32(im.Chunks)})
	}
	return pairs
}
