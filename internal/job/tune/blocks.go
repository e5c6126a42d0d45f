package tune

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/lm/forward"
)

// Training of codes layer by layer, as in AutoRound (arXiv 2309.05516): the codes and scales of a
// decoder layer are trained so that the layer reproduces the hidden states of the float model from
// those of the quantized model. Only this layer has gradients and an optimizer's state.
const (
	// BlockSteps is the number of steps of each layer, of at most StepTokens each.
	BlockSteps = 200
	// fineCodes and fineScales are the parts of the learning rates with more than 2.5 bits. At the
	// whole rate, single layers of books1.3M at 3 bits and of stories260K at 4 bits became worse.
	fineCodes, fineScales = .3, .5
	// blockPasses bounds the passes over a short text.
	blockPasses = 8
)

// blocks is the training of all layers, in turn.
type blocks struct {
	*job
	tape *forward.Tape
	// float and quant are the hidden states of all sequences before the same layer.
	float, quant *forward.Stream
	lengths      []int // of sequences
	trains       int   // sequences 0 .. trains-1 train, the others are held out

	list         []*matrix // of the layer
	in           forward.LayerInput
	x, want, out []float32
	stored       string // the key of stored layers
	resumed      int    // layers taken from the working directory
}

func blockSteps(t *Text) int {
	return max(1, min(BlockSteps, blockPasses*t.TrainTokens()/StepTokens))
}

// trainBlocks trains the codes of all layers, and restores them if held-out text is no better.
func (j *job) trainBlocks() error {
	before, err := j.heldOut()
	if err != nil {
		return err
	}
	b := &blocks{job: j, trains: len(j.text.train)}
	if err := b.openStore(); err != nil {
		return err
	}
	old := snapshot(j.matrices)
	if err := b.open(); err != nil {
		return err
	}
	layers := len(j.student.Config().Layers)
	j.earlier = layers * blockSteps(j.text)
	for layer := range layers {
		if err := b.layer(layer); err != nil {
			return err
		}
	}
	j.found = b.resumed == layers
	after, err := j.heldOut()
	if err != nil {
		return err
	}
	if !(after < before) {
		restore(j.matrices, old)
		return nil
	}
	j.blocked = &before
	return nil
}

func (b *blocks) open() (err error) {
	sequences := append([][]int32(nil), b.text.train...)
	for _, w := range b.text.HeldOut {
		sequences = append(sequences, w.Tokens)
	}
	longest := StepTokens
	for _, s := range sequences {
		b.lengths = append(b.lengths, len(s))
		longest = max(longest, len(s))
	}
	if b.float, err = b.teacher.NewStream(sequences); err != nil {
		return err
	}
	if b.quant, err = b.student.NewStream(sequences); err != nil {
		return err
	}
	b.tape, err = b.student.NewTape(forward.TapeOptions{MaxTokens: longest, LogitRows: 1})
	return err
}

// layer trains a layer, or takes its numbers from the working directory, and moves the streams on.
func (b *blocks) layer(layer int) error {
	b.list = nil
	for _, stage := range b.student.Stages(layer) {
		for _, g := range stage {
			for _, name := range g.Linears {
				if m := b.linears[name]; m != nil && !m.embedded {
					b.list = append(b.list, m)
				}
			}
		}
	}
	if err := b.advance(b.float, layer); err != nil {
		return err
	}
	if len(b.list) > 0 {
		found, err := b.resumeLayer(layer)
		switch {
		case err != nil:
		case found:
			b.resumed++
		default:
			if b.resumed > 0 && b.Resumed != nil {
				b.Resumed(layer*blockSteps(b.text), b.earlier+b.job.Steps)
			}
			b.resumed = 0
			err = b.train(layer)
		}
		if err != nil {
			return err
		}
	}
	b.Progress(int64(blockSteps(b.text)))
	return b.advance(b.quant, layer)
}

func (b *blocks) advance(s *forward.Stream, layer int) error {
	for seq := range s.Len() {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		for block := range s.Blocks(layer) {
			if err := s.Advance(seq, layer, block); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *job) layerRates() (scales, codes float64) {
	scales, codes = j.floatRate(), j.codesRate
	if scales != coarseRate {
		scales, codes = float64(fineScales*scales), float64(fineCodes*codes)
	}
	return scales, codes
}

// train trains a layer and keeps the result if held-out sequences are better.
func (b *blocks) train(layer int) error {
	before, err := b.measure(layer)
	if err != nil {
		return err
	}
	old := snapshot(b.list)
	var all []*trained
	scales, codes := b.layerRates()
	for _, m := range b.list {
		m.train(false, scales)
		if err := m.trainCodes(codes, b.reader(m)); err != nil {
			return err
		}
		if all = append(all, m.scales.by); m.steps != nil {
			all = append(all, m.steps)
		}
		if m.mins != nil {
			all = append(all, m.mins.by)
		}
	}
	if err := b.steps(layer, all); err != nil {
		return err
	}
	for _, m := range b.list {
		m.settle()
	}
	after, err := b.measure(layer)
	if err != nil {
		return err
	}
	kept := after < before
	if !kept {
		restore(b.list, old)
	}
	if b.Trained != nil {
		b.Trained(TrainedLayer{layer, len(b.student.Config().Layers), before, after, kept})
	}
	return b.saveLayer(layer)
}

// TrainedLayer has a layer's error before and after training: the mean squared error of its
// output's elements on held-out text.
type TrainedLayer struct {
	Layer, Layers int
	Before, After float64
	Kept          bool
}

func (b *blocks) steps(layer int, all []*trained) error {
	n := blockSteps(b.text)
	next := shuffled(b.lengths[:b.trains], detmath.Source(layer+1))
	for step := range n {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		b.gather(next())
		err := b.tape.LayerBackward(layer, &b.in, b.gradient, &forward.Gradients{Linear: b.linearGradient}, nil)
		if err != nil {
			return err
		}
		first, second := corrections(step)
		part := schedule(step, n)
		for _, t := range all {
			b.rows(len(t.x), 1<<14, func(from, to int) { t.update(from, to, float64(part*t.rate), first, second) })
		}
		for _, m := range b.list {
			b.refreshMatrix(m)
		}
	}
	return nil
}

// gather copies the values of sequences before and behind the layer.
func (b *blocks) gather(batch []int) {
	b.in.Lengths, b.x, b.want = b.in.Lengths[:0], b.x[:0], b.want[:0]
	for _, seq := range batch {
		b.in.Lengths = append(b.in.Lengths, b.lengths[seq])
		b.x = append(b.x, b.quant.Rows(seq)...)
		b.want = append(b.want, b.float.Rows(seq)...)
	}
	b.in.X = b.x
}

// gradient replaces the layer's output by the gradient of the mean squared error.
func (b *blocks) gradient(out []float32) error {
	factor := 2 / float32(len(out))
	for i, v := range out {
		out[i] = float32(factor * (v - b.want[i]))
	}
	return nil
}

// measure is the mean squared error of the layer's output on held-out sequences.
func (b *blocks) measure(layer int) (float64, error) {
	sum, n := 0.0, 0
	for seq := b.trains; seq < b.float.Len(); seq++ {
		if err := b.ctx.Err(); err != nil {
			return 0, err
		}
		b.gather([]int{seq})
		out := buffer.Grow(&b.out, len(b.x))
		if err := b.tape.LayerForward(layer, &b.in, out); err != nil {
			return 0, err
		}
		for i, v := range out {
			d := float64(v) - float64(b.want[i])
			sum += float64(d * d)
		}
		n += len(out)
	}
	if mean := sum / float64(n); mean-mean == 0 {
		return mean, nil
	}
	return 0, fmt.Errorf("tuning: layer %d of the quantized model has no finite output: tune less (--tune norms), or not (--tune off)", layer)
}

// settle makes the trained numbers the initial numbers, and ends the training.
func (t *matrix) settle() {
	for _, f := range []*factors{t.scales, t.mins} {
		if f != nil {
			copy(f.base, f.value)
			f.by = nil
		}
	}
	t.steps, t.still = nil, nil
}

type numbers struct {
	codes        []int8
	scales, mins []float32
}

// snapshot copies the numbers of matrices that are not trained at the time.
func snapshot(list []*matrix) (old []numbers) {
	for _, m := range list {
		n := numbers{codes: append([]int8(nil), m.codes...), scales: append([]float32(nil), m.scales.base...)}
		if m.mins != nil {
			n.mins = append([]float32(nil), m.mins.base...)
		}
		old = append(old, n)
	}
	return old
}

func restore(list []*matrix, old []numbers) {
	for i, m := range list {
		copy(m.codes, old[i].codes)
		m.scales.reset(old[i].scales)
		if m.mins != nil {
			m.mins.reset(old[i].mins)
		}
	}
}

func (f *factors) reset(base []float32) {
	copy(f.base, base)
	copy(f.value, base)
	f.by = nil
}

// blockTrained is the number of trained codes and scales of the largest layer: of the matrices with
// equal names up to the first number.
func blockTrained(p *fromcheckpoint.Plan) (most int64) {
	layers := map[string]int64{}
	for _, m := range p.Matrices() {
		parts := strings.Split(m.Tensor, ".")
		for i, s := range parts {
			if _, err := strconv.Atoi(s); err == nil && !m.Embedded() {
				layer := strings.Join(parts[:i+1], ".")
				layers[layer] += int64(m.Rows) * int64(m.Cols+m.Scheme.Groups(m.Cols))
				most = max(most, layers[layer])
				break
			}
		}
	}
	return most
}
