package fold

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

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/splitmix"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// DefaultStrength is the strength of outliers for which none is stated.
const DefaultStrength = 128

// strengthSteps is the number of powers of two below the strength that factors are drawn from.
const strengthSteps = 3

// OutlierOptions are the options of Outliers.
type OutlierOptions struct {
	Options
	// Seed of the choice of channels and factors.
	Seed uint64
	// Strength is the largest factor, a power of two from 2 to 1024. Factors are drawn from Strength
	// / 8, or 2, to Strength. Default (0): DefaultStrength.
	Strength int
	// Text is the text whose hidden states give the principal directions. Default: random tokens.
	Text *text.Text
}

// Validate returns the first error in o.
func (o *OutlierOptions) Validate() error {
	if s := o.Strength; s != 0 && (s < 2 || s > 1024 || bits.OnesCount(uint(s)) != 1) {
		return fmt.Errorf("%d: use a power of two from 2 to 1024", s)
	}
	return nil
}

// OutlierReport describes the copy that Outliers made.
type OutlierReport struct {
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
	Check    Check          `json:"check"`
}

// Outliers makes a copy of the checkpoint in the directory src that computes the same function, but
// has outliers in its activations, as models of billions of weights have them. dst must not exist.
// All floating-point tensors become F32.
//
// The hidden states are turned so that their largest principal directions become single channels.
// A few channels of norm outputs (the same in all layers), of values and of up are multiplied by
// powers of two, and the columns that read them by the inverses. An architecture whose hidden
// states cannot be rotated only gets the second.
//
// dst appears when it is complete and its logits were compared: if they differ by more than float32
// rounding, the error is an *ExactnessError.
//
// It works in the directory dst.outliers. A job that is killed leaves it, and the next job for dst
// removes it.
func Outliers(ctx context.Context, src, dst string, o OutlierOptions) (report *OutlierReport, err error) {
	if o.Strength == 0 {
		o.Strength = DefaultStrength
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := CheckNew(dst); err != nil {
		return nil, err
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
	j := &outliers{
		OutlierOptions: o,
		chain:          &chain{Options: o.Options, ctx: ctx, src: src, from: src, base: filepath.Join(temp, "checkpoint")},
		r:              &OutlierReport{Seed: o.Seed, Strength: o.Strength, Channels: map[string]int{}},
	}
	if err := j.run(ctx); err != nil {
		return nil, err
	}
	return j.r, os.Rename(j.chain.from, dst)
}

// CheckNew returns an error if dst exists, so that Outliers could not create it.
func CheckNew(dst string) error {
	if _, err := os.Lstat(dst); err == nil {
		return fmt.Errorf("%s exists: name a new directory", dst)
	}
	return nil
}

// OutlierWork is approximately the total of Progress.
func OutlierWork(ck *safetensors.Checkpoint) (n int64) {
	for _, t := range ck.Tensors() {
		n += t.Size
	}
	return 2 * n
}

// outliers is a running job.
type outliers struct {
	OutlierOptions
	chain  *chain
	r      *OutlierReport
	m      *model.Model // of the source
	random splitmix.Source
}

func (j *outliers) run(ctx context.Context) (err error) {
	if j.m, err = openModel(j.chain.src, j.Threads); err != nil {
		return err
	}
	defer j.m.Close()
	var own [][]int32 // compareLogits makes random tokens itself
	from := ""
	sequences := randomTokens(j.m.VocabSize(), windowOf(j.m))
	if j.Text != nil {
		own, from = j.Text.Sequences, j.Text.Source
		sequences = own
	}
	before, err := observe(ctx, j.m, sequences, true)
	if err != nil {
		return err
	}
	j.r.Before = before.channels()
	j.random = newRandom(j.Seed, 0)
	if err := j.rotate(before.hidden); err != nil {
		return err
	}
	list := j.scalings()
	err = j.chain.take(func(ck *source) (*edits, error) {
		e, err := scaleEdits(ck, list)
		if err != nil {
			return nil, err
		}
		e.widen(ck)
		e.metadata, e.section = j.origin()
		return e, nil
	})
	if err != nil {
		return err
	}
	check, err := compareLogits(ctx, j.chain.src, j.chain.from, own, from, j.Options)
	if err != nil {
		return err
	}
	j.r.Check = *check
	m, err := openModel(j.chain.from, j.Threads)
	if err != nil {
		return err
	}
	defer m.Close()
	after, err := observe(ctx, m, sequences, false)
	if err != nil {
		return err
	}
	j.r.After = after.channels()
	return nil
}

// few is the number of channels of so many that become outliers.
func few(width int) int { return min(max(width/64, 2), 8, width) }

// rotate turns the hidden states, if the architecture permits it.
func (j *outliers) rotate(hidden [][]float64) error {
	if _, err := j.m.Residual(); err != nil {
		var no *arch.UnsupportedError
		if !errors.As(err, &no) {
			return err
		}
		j.r.NotRotated = no.Msg
		return nil
	}
	width := j.m.Config().HiddenSize
	pool := kernels.NewPool(j.Threads)
	defer pool.Close()
	j.r.Residual = j.draw(width, few(width), nil)
	r := concentrating(principal(hidden, width, len(j.r.Residual), &j.random, pool), j.r.Residual)
	return j.chain.take(func(ck *source) (*edits, error) {
		return rotateEdits(ck, rotations{hidden: func(int) *rotation { return r }})
	})
}

// draw draws k channels of n, without those that are taken.
func (j *outliers) draw(n, k int, taken []int) (list []int) {
	for len(list) < min(k, n-len(taken)) {
		c := int(j.random.Next() >> 33 % uint64(n))
		if !slices.Contains(list, c) && !slices.Contains(taken, c) {
			list = append(list, c)
		}
	}
	return list
}

// power draws a factor.
func (j *outliers) power() float32 {
	most := bits.TrailingZeros(uint(j.Strength))
	least := max(1, most-strengthSteps)
	return float32(uint(1) << (least + int(j.random.Next()>>33)%(most-least+1)))
}

// scalings draws the channels that are multiplied, and their factors. The producer is divided by T.
func (j *outliers) scalings() (list []Factors) {
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
			list = append(list, factors(&place, t))
		}
	}
	return list
}

// origin describes the copy for the files' metadata and for the model card.
func (j *outliers) origin() (metadata map[string]string, section string) {
	what := "hidden states turned, some channels scaled"
	if len(j.r.Residual) == 0 {
		what = "some channels scaled"
	}
	metadata = map[string]string{
		"format": "pt", "gq.outliers": what, "gq.outliers.seed": strconv.FormatUint(j.Seed, 10), "gq.outliers.strength": strconv.Itoa(j.Strength),
	}
	var b strings.Builder
	b.WriteString("## Activation outliers\n\n")
	b.WriteString("This is a test copy that `gq synth --outliers` made: it computes the same function as its source, with outliers in its activations.\n\n")
	fmt.Fprintf(&b, "- seed %d, strength %d\n", j.Seed, j.Strength)
	if n := len(j.r.Residual); n > 0 {
		fmt.Fprintf(&b, "- hidden states: the %d largest principal directions are single channels\n", n)
	}
	for _, kind := range []string{"norms", "values", "up"} {
		fmt.Fprintf(&b, "- %s: %d channels of all layers multiplied by powers of two, up to %d\n", kind, j.r.Channels[kind], j.Strength)
	}
	return metadata, b.String()
}
