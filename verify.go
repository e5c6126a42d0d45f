package gq

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
)

// VerifyOptions are the options of Verify. The zero value checks everything.
type VerifyOptions struct {
	// Fast only checks checksums. It skips the check that scales, sums and padding of every panel
	// agree. Default: false.
	Fast bool
	// Threads is how many workers run. Default (0): GOMAXPROCS.
	Threads int
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress
}

// Verify checks the structure, checksums and panels of a .gqf file. Damage is in the report, not in
// the error, even if the file cannot be read because of it.
func Verify(ctx context.Context, file string, o VerifyOptions) (*gqf.VerifyReport, error) {
	from, err := resolveSource(ctx, file, true, stages{to: o.Progress})
	if err != nil {
		return nil, err
	}
	defer from.Release()
	r, err := verify(ctx, from.Path, o)
	if damage, ok := errors.AsType[*gqf.FormatError](err); ok {
		r, err = damage.Report(), nil
	}
	if r != nil {
		r.File = from.Name
	}
	return r, err
}

func verify(ctx context.Context, file string, o VerifyOptions) (*gqf.VerifyReport, error) {
	f, err := gqf.Open(file, gqf.Options{})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	opts := gqf.VerifyOptions{Threads: o.Threads, Deep: !o.Fast}
	add, end := stages{to: o.Progress}.begin("verifying", "bytes", f.VerifyBytes(opts))
	defer end()
	opts.Progress = add
	return f.Verify(ctx, opts)
}

// GGUFReport says what VerifyGGUF found. A GGUF file has no checksums: other weights than those
// that were written are not found as long as they are numbers.
type GGUFReport struct {
	File    string `json:"file"`
	Bytes   int64  `json:"bytes"` // of all shards
	Shards  int    `json:"shards"`
	Keys    int    `json:"keys"`
	Tensors int    `json:"tensors"`
	// Weights reports whether weights were read. Unread counts tensors of types that gq cannot read.
	Weights bool `json:"weights_checked"`
	Unread  int  `json:"unread"`
	// NotFinite are tensors with weights that are infinite or NaN, each with the first row.
	NotFinite []string `json:"not_finite"`
	// NoModel says why gq cannot run or repack the model; "" if it can.
	NoModel string `json:"no_model,omitempty"`
}

// VerifyGGUF checks what can be checked in a GGUF file: its structure, that its shards belong
// together, and unless o.Fast is set that all weights are numbers.
func VerifyGGUF(ctx context.Context, file string, o VerifyOptions) (*GGUFReport, error) {
	from, err := resolveSource(ctx, file, true, stages{to: o.Progress})
	if err != nil {
		return nil, err
	}
	defer from.Release()
	f, err := gguf.Open(from.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := &GGUFReport{
		File: from.Name, Bytes: f.Size(), Shards: len(f.Paths()), Keys: len(f.Keys), Tensors: len(f.Tensors), Weights: !o.Fast, NotFinite: []string{},
	}
	if _, err := llamacpp.ReadCheckpoint(f, true); err != nil {
		r.NoModel = err.Error()
	}
	if o.Fast {
		return r, nil
	}
	total := int64(0)
	for _, t := range f.Tensors {
		total += t.Size
	}
	add, end := stages{to: o.Progress}.begin("verifying", "bytes", total)
	defer end()
	rows, err := firstNotFinite(ctx, f, cpu.Threads(o.Threads), add)
	if err != nil {
		return nil, err
	}
	for i, row := range rows {
		switch {
		case row >= 0:
			r.NotFinite = append(r.NotFinite, fmt.Sprintf("tensor %q: row %d has a weight that is infinite or not a number", f.Tensors[i].Name, row))
		case !f.Tensors[i].Type.Decodable():
			r.Unread++
		}
	}
	return r, nil
}

// firstNotFinite returns, for each tensor, the first row with a weight that is not finite, or -1.
func firstNotFinite(ctx context.Context, f *gguf.File, threads int, add func(int64)) ([]int64, error) {
	rows := make([]int64, len(f.Tensors))
	err := cpu.Parallel(ctx, threads, len(rows), func() func(i int) error {
		x := make([]float32, pieceWeights)
		return func(i int) error {
			t := f.Tensors[i]
			err := f.Guard(func() (err error) {
				rows[i], err = notFinite(ctx, f, t, x)
				return err
			})
			if err != nil {
				return fmt.Errorf("tensor %q: %w", t.Name, err)
			}
			add(t.Size)
			return nil
		}
	})
	return rows, err
}

// notFinite returns the first row of a tensor with a weight that is not finite, or -1. x has room
// for pieceWeights weights.
func notFinite(ctx context.Context, f *gguf.File, t *gguf.Tensor, x []float32) (int64, error) {
	if !t.Type.Decodable() {
		return -1, nil
	}
	n := 0
	for p := range pieces(t, f.Data(t)) {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return -1, ctx.Err()
		}
		x := x[:p.weights]
		if err := t.Type.Decode(x, p.data); err != nil {
			return -1, err
		}
		for _, v := range x {
			if !floats.Finite(v) {
				return p.row, nil
			}
		}
	}
	return -1, nil
}

// pieceWeights bounds the weights that are decoded at once: a row of a hostile file may have any
// length. The blocks of all types divide it.
const pieceWeights = 1 << 16

// A piece is a row of a tensor, or a part of a row of more than pieceWeights weights.
type piece struct {
	row     int64
	at      int64 // the first weight of the piece in the row
	weights int
	data    []byte
}

func pieces(t *gguf.Tensor, data []byte) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		for row := range t.Rows() {
			for at := int64(0); at < t.Columns(); at += pieceWeights {
				n := min(pieceWeights, t.Columns()-at)
				p := piece{row: row, at: at, weights: int(n), data: data[:t.Type.Size(n)]}
				if data = data[len(p.data):]; !yield(p) {
					return
				}
			}
		}
	}
}
