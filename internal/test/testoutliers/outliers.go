// Package testoutliers copies checkpoints, and gives the activations of the copies outliers by
// factors that are powers of two and a rotation that gathers principal directions in single
// channels. Only tests and the programs that measure import testoutliers.
package testoutliers

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/job/fold"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/orthogonal"
	"github.com/lowbit-go/gq/kernels"
)

const DefaultStrength = 128

// strengthSteps is the number of powers of two below the strength that factors are drawn from.
const strengthSteps = 3

type Options struct {
	fold.Options
	// Seed of the choice of channels and factors.
	Seed uint64
	// Strength is the largest factor, a power of two from 2 to 1024. Factors are drawn from Strength /
	// 8, or 2, to Strength. Default (0): DefaultStrength.
	Strength int
	// Text gives the hidden states for the principal directions. Default: random tokens.
	Text *text.Text
}

func (o *Options) Validate() error {
	if s := o.Strength; s != 0 && (s < 2 || s > 1024 || bits.OnesCount(uint(s)) != 1) {
		return fmt.Errorf("%d: use a power of two from 2 to 1024", s)
	}
	return nil
}

type Report struct {
	Seed     uint64 `json:"seed"`
	Strength int    `json:"strength"`
	// Residual lists the channels of the hidden states that are principal directions of the source's,
	// the largest first. NotRotated says why there are none.
	Residual   []int  `json:"residual"`
	NotRotated string `json:"not_rotated,omitempty"`
	// Channels counts the channels that were multiplied: "norms", "values" and "up".
	Channels map[string]int `json:"channels"`
	Before   Channels       `json:"before"`
	After    Channels       `json:"after"`
	Check    *fold.Check    `json:"check"`
}

// Copy makes a copy of the checkpoint in the directory src that computes the same function, but
// has outliers in its activations, as models of billions of weights do. All floating-point tensors
// become F32.
//
// The hidden states are turned so that their largest principal directions become single channels. A
// few channels of norm outputs (the same in all layers), of values and of up are multiplied by
// powers of two, and the columns that read these channels by the inverses. If the architecture's
// hidden states cannot be rotated, the copy has only the factors.
//
// dst must not exist; it appears when complete and checked. If logits differ by more than float32
// rounding, the error is a *fold.ExactnessError. Work is in the directory dst.outliers. A killed
// job leaves that directory to the next job for dst.
func Copy(ctx context.Context, src, dst string, o Options) (report *Report, err error) {
	if o.Strength == 0 {
		o.Strength = DefaultStrength
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(dst); err == nil {
		return nil, fmt.Errorf("%s exists: name a new directory", dst)
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o777); err != nil {
		return nil, err
	}
	work, err := workdir.Open(dst + ".outliers")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, work.Remove()) }()
	temp, err := work.Scratch("checkpoint")
	if err != nil {
		return nil, err
	}
	j := &job{Options: o, temp: temp, r: &Report{Seed: o.Seed, Strength: o.Strength, Channels: map[string]int{}}}
	made, err := j.run(ctx, src)
	if err != nil {
		return nil, err
	}
	return j.r, os.Rename(made, dst)
}

type job struct {
	Options
	temp   string
	r      *Report
	m      *forward.Model // of the source
	random detmath.Source
}

func openModel(dir string, threads int) (*forward.Model, error) {
	return forward.OpenCheckpoint(dir, forward.Options{Threads: threads, Log: func(kernels.Choice) {}})
}

// run returns the directory of the checked copy.
func (j *job) run(ctx context.Context, src string) (made string, err error) {
	if j.m, err = openModel(src, j.Threads); err != nil {
		return "", err
	}
	defer j.m.Close()
	var own [][]int32 // Compare makes random tokens itself
	from := ""
	sequences := randomTokens(j.m)
	if j.Text != nil {
		own, from = j.Text.Sequences, j.Text.Source
		sequences = own
	}
	before, err := observe(ctx, j.m, sequences, true)
	if err != nil {
		return "", err
	}
	j.r.Before = before.channels()
	j.random = orthogonal.Random(j.Seed, 0)
	turned, err := j.rotate(ctx, src, before.hidden)
	if err != nil {
		return "", err
	}
	scaled, made := filepath.Join(j.temp, "scaled"), filepath.Join(j.temp, "made")
	r := &fold.Record{Steps: []fold.Step{{Kind: fold.KindScale, Scalings: j.scalings()}}}
	if err := fold.Apply(ctx, turned, scaled, r, j.Options.Options); err != nil {
		return "", err
	}
	metadata, section := j.origin()
	if err := widen(scaled, made, metadata, section); err != nil {
		return "", err
	}
	if j.r.Check, err = fold.Compare(ctx, src, made, own, from, j.Options.Options); err != nil {
		return "", err
	}
	m, err := openModel(made, j.Threads)
	if err != nil {
		return "", err
	}
	defer m.Close()
	after, err := observe(ctx, m, sequences, false)
	if err != nil {
		return "", err
	}
	j.r.After = after.channels()
	return made, nil
}

func randomTokens(m *forward.Model) [][]int32 {
	return fold.RandomTokens(m.VocabSize(), fold.WindowOf(m))
}

// few is the number of channels of so many that become outliers.
func few(width int) int { return min(max(width/64, 2), 8, width) }

// rotate turns the hidden states, if the architecture permits, and returns the checkpoint.
func (j *job) rotate(ctx context.Context, src string, hidden [][]float64) (turned string, err error) {
	if _, err := j.m.Residual(); err != nil {
		var no *arch.UnsupportedError
		if !errors.As(err, &no) {
			return "", err
		}
		j.r.NotRotated = no.Msg
		return src, nil
	}
	width := j.m.Config().HiddenSize
	pool := kernels.NewPool(j.Threads)
	defer pool.Close()
	j.r.Residual = j.draw(width, few(width), nil)
	turn := concentrating(principal(hidden, width, len(j.r.Residual), &j.random, pool), j.r.Residual)
	turned = filepath.Join(j.temp, "turned")
	return turned, fold.Turn(ctx, src, turned, turn, j.Options.Options)
}

// draw draws k channels of n, without those that are taken.
func (j *job) draw(n, k int, taken []int) (list []int) {
	for len(list) < min(k, n-len(taken)) {
		c := int(j.random.Next() >> 33 % uint64(n))
		if !slices.Contains(list, c) && !slices.Contains(taken, c) {
			list = append(list, c)
		}
	}
	return list
}

func (j *job) power() float32 {
	most := bits.TrailingZeros(uint(j.Strength))
	least := max(1, most-strengthSteps)
	return float32(uint(1) << (least + int(j.random.Next()>>33)%(most-least+1)))
}

// scalings draws the channels that are multiplied, and their factors. The producer is divided by T.
func (j *job) scalings() (list []fold.Factors) {
	width := j.m.Config().HiddenSize
	norms := map[int]float32{}
	// Not the channels with the principal directions: their ratios would multiply.
	for _, c := range j.draw(width, few(width), j.r.Residual) {
		norms[c] = j.power()
	}
	for layer := range j.m.Config().Layers {
		for i, place := range j.m.Scalings(layer) {
			chosen, kind := norms, "norms"
			if place.Norm == nil {
				chosen = map[int]float32{}
				for _, c := range j.draw(place.Width, few(place.Width), nil) {
					chosen[c] = j.power()
				}
				if kind = "values"; i > 1 {
					kind = "up"
				}
			}
			t := make([]float32, place.Width)
			for c := range t {
				t[c] = 1
			}
			for c, f := range chosen {
				t[c] = 1 / f
			}
			j.r.Channels[kind] += len(chosen)
			list = append(list, fold.FactorsOf(&place, t))
		}
	}
	return list
}

func (j *job) origin() (metadata map[string]string, section string) {
	what := "hidden states turned, some channels scaled"
	if len(j.r.Residual) == 0 {
		what = "some channels scaled"
	}
	metadata = map[string]string{
		"format": "pt", "gq.outliers": what, "gq.outliers.seed": strconv.FormatUint(j.Seed, 10), "gq.outliers.strength": strconv.Itoa(j.Strength),
	}
	var b strings.Builder
	b.WriteString("## Activation outliers\n\n")
	b.WriteString("This is a test copy that gq made: it computes the same function as its source, with outliers in its activations.\n\n")
	fmt.Fprintf(&b, "- seed %d, strength %d\n", j.Seed, j.Strength)
	if n := len(j.r.Residual); n > 0 {
		fmt.Fprintf(&b, "- hidden states: the %d largest principal directions are single channels\n", n)
	}
	for _, kind := range []string{"norms", "values", "up"} {
		fmt.Fprintf(&b, "- %s: %d channels of all layers multiplied by powers of two, up to %d\n", kind, j.r.Channels[kind], j.Strength)
	}
	return metadata, b.String()
}
