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

// Training of codes layer by layer: the relaxed codes and the scales of a decoder layer are trained
// so that the layer reproduces the hidden states of the float model from those of the quantized
// model. Only this layer has gradients and an optimizer's state.
const (
	// BlockSteps is the number of steps of each layer, of at most StepTokens each.
	BlockSteps = 480
	// hardened is the number of measurements of a layer with hard codes.
	hardened = 4
	// The learning rates of scales up to 2 bits, and with more bits.
	layerCoarse, layerFine = 2e-3, 1e-3
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
	scales       []*trained // of the layer, minima included
	x, want, out []float32
	// before is the layer's error before training, best the least error since, by numbers.
	before, best float64
	numbers      []numbers
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

// layerRate is the learning rate of the scales of a matrix.
func layerRate(bits int) float64 {
	if bits <= 2 {
		return layerCoarse
	}
	return layerFine
}

// train trains a layer and keeps the result if held-out sequences are better.
func (b *blocks) train(layer int) (err error) {
	if b.before, err = b.measure(layer); err != nil {
		return err
	}
	b.best, b.numbers = b.before, snapshot(b.list)
	b.scales = nil
	for _, m := range b.list {
		m.train(false, layerRate(m.Scheme.Bits))
		if err := m.soften(b.reader(m)); err != nil {
			return err
		}
		b.scales = append(b.scales, m.scales.by)
		if m.mins != nil {
			b.scales = append(b.scales, m.mins.by)
		}
	}
	if err := b.steps(layer); err != nil {
		return err
	}
	for _, m := range b.list {
		m.soft, m.still = nil, nil
	}
	restore(b.list, b.numbers)
	if b.Trained != nil {
		b.Trained(TrainedLayer{layer, len(b.student.Config().Layers), b.before, b.best, b.best < b.before})
	}
	return b.saveLayer(layer)
}

// harden measures the layer with its likeliest codes and keeps the numbers if best so far.
func (b *blocks) harden(layer int) error {
	var list []*soft
	for _, m := range b.list {
		s := m.soft
		if s != nil {
			b.pieces(m, func(from, to int) { s.harden(m.codes, from, to) })
		}
		list = append(list, s)
		m.soft = nil
	}
	mean, err := b.measure(layer)
	if err != nil {
		return err
	}
	if mean < b.best {
		b.best, b.numbers = mean, snapshot(b.list)
	}
	for i, m := range b.list {
		m.soft = list[i]
	}
	return nil
}

// pieces calls f for pieces of a matrix's weights, in several goroutines.
func (b *blocks) pieces(m *matrix, f func(from, to int)) { b.rows(len(m.codes), 1<<12, f) }

// TrainedLayer has a layer's error before and after training: the mean squared error of its
// output's elements on held-out text.
type TrainedLayer struct {
	Layer, Layers int
	Before, After float64
	Kept          bool
}

func (b *blocks) steps(layer int) error {
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
		for _, t := range b.scales {
			b.rows(len(t.x), 1<<14, func(from, to int) { t.update(from, to, float64(part*t.rate), first, second) })
		}
		for _, m := range b.list {
			if m.soft != nil {
				b.pieces(m, func(from, to int) { m.soft.update(from, to, float64(part*b.softRate), first, second) })
				m.soft.temperature = temperature(step+1, n)
				b.pieces(m, m.soft.refresh)
			}
			b.refreshMatrix(m)
		}
		if (step+1)*hardened/n > step*hardened/n {
			if err := b.harden(layer); err != nil {
				return err
			}
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

// gradient replaces the layer's output by the gradient of the mean squared error, divided by the
// error before training.
func (b *blocks) gradient(out []float32) error {
	factor := float32(2 / float64(float64(len(out))*b.before))
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

type numbers struct {
	codes        []int8
	scales, mins []float32
}

// snapshot copies the numbers of matrices as the file would hold them.
func snapshot(list []*matrix) (old []numbers) {
	for _, m := range list {
		n := numbers{codes: append([]int8(nil), m.codes...), scales: append([]float32(nil), m.scales.value...)}
		if m.mins != nil {
			n.mins = append([]float32(nil), m.mins.value...)
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

// layerBytes is the memory of the largest layer's relaxed codes and trained scales, and of its best
// numbers. A layer is the matrices with equal names up to the first number.
func layerBytes(p *fromcheckpoint.Plan) (most int64) {
	layers := map[string]int64{}
	for _, m := range p.Matrices() {
		parts := strings.Split(m.Tensor, ".")
		for i, s := range parts {
			if _, err := strconv.Atoi(s); err == nil && !m.Embedded() {
				layer := strings.Join(parts[:i+1], ".")
				weights, scales := int64(m.Rows)*int64(m.Cols), int64(m.Rows)*int64(m.Scheme.Groups(m.Cols))
				layers[layer] += weights*(softBytes(choices(m.Scheme.Bits))+2) + scales*(StateBytes+2*4)
				most = max(most, layers[layer])
				break
			}
		}
	}
	return most
}

// Choices is the number of choices of all codes that are trained layer by layer.
func Choices(p *fromcheckpoint.Plan) (n int64) {
	for _, m := range p.Matrices() {
		if !m.Embedded() {
			n += int64(m.Rows) * int64(m.Cols) * int64(choices(m.Scheme.Bits))
		}
	}
	return n
}
