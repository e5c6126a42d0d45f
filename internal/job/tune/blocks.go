package tune

import (
	"cmp"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/vec"
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

// trainedLayers are the codes of all layers after training.
type trainedLayers struct {
	rows    map[string]plan.RowReader // by the matrix's name
	entries []*workdir.Entry          // with the rows
	steps   int
	before  float64 // the divergence on held-out text before training
	after   float64
	better  bool // than before; else the layers are dropped
	found   bool // the working directory had all layers
}

func (l *trainedLayers) close() {
	for _, e := range l.entries {
		e.Close()
	}
}

// blocks is the training of all layers, in turn.
type blocks struct {
	*job
	teaching, tape *forward.Tape // of teacher and student
	longest        int           // tokens that pass a layer together
	// float, quant and untuned are the values between the same layers in the float model, in the
	// quantized model, and, on held-out text alone, in the quantized model before training.
	float, quant, untuned *states
	scratch               *scratch // of all states; nil: they are in memory
	lengths               []int    // of sequences
	trains                int      // sequences 0 .. trains-1 train, the others are held out

	list         []*matrix // of the layer
	in           forward.LayerInput
	scales       []*trained // of the layer, minima included
	x, want, out []float32
	// before is the layer's error before training, best the least error since, by numbers.
	before, best float64
	numbers      []numbers
	key          string // of the layer's entry
	resumed      int    // layers taken from the working directory
}

// LayerSteps is the number of steps of each layer on so many tokens of training.
func LayerSteps(tokens int) int { return max(1, min(BlockSteps, blockPasses*tokens/StepTokens)) }

func (j *job) layerSteps() int { return LayerSteps(j.text.TrainTokens()) }

// trainBlocks trains the codes of all layers, and drops the result if held-out text is no better.
func (j *job) trainBlocks() (err error) {
	b := &blocks{job: j, trains: len(j.text.train)}
	if b.scratch, err = openScratch(j.Work); err != nil {
		return err
	}
	defer b.scratch.remove()
	if err := b.open(); err != nil {
		return err
	}
	layers := len(j.student.Config().Layers)
	l := &j.layers
	l.rows, l.steps = map[string]plan.RowReader{}, layers*j.layerSteps()
	for layer := range layers {
		if err := b.layer(layer); err != nil {
			return err
		}
	}
	l.found = b.resumed == layers
	if l.found && j.Steps == 0 && j.Resumed != nil {
		j.Resumed(l.steps, l.steps)
	}
	if l.before, l.after, err = b.divergences(); err != nil {
		return err
	}
	l.better = l.after < l.before
	return cmp.Or(finite(l.before), finite(l.after))
}

func (b *blocks) open() (err error) {
	sequences := append([][]int32(nil), b.text.train...)
	for _, w := range b.text.HeldOut {
		sequences = append(sequences, w.Tokens)
	}
	b.longest = StepTokens
	for _, s := range sequences {
		b.lengths = append(b.lengths, len(s))
		b.longest = max(b.longest, len(s))
	}
	if err := b.setKey(); err != nil { // of the codes outside of layers
		return err
	}
	if b.key, err = workdir.Key("tuned layers", b.job.key, BlockSteps, blockPasses); err != nil {
		return err
	}
	if b.float, err = b.openStates(b.teacher, sequences); err != nil {
		return err
	}
	if b.quant, err = b.openStates(b.student, sequences); err != nil {
		return err
	}
	if b.untuned, err = b.openStates(b.student, sequences[b.trains:]); err != nil {
		return err
	}
	if b.teaching, err = b.teacher.NewTape(layerTape(b.longest)); err != nil {
		return err
	}
	b.tape, err = b.student.NewTape(layerTape(b.longest))
	return err
}

// layerTape are the options of a tape for single layers.
func layerTape(tokens int) forward.TapeOptions {
	return forward.TapeOptions{MaxTokens: tokens, LogitRows: 1}
}

// layer reads the codes of a layer, trains them or takes trained codes from the working directory,
// moves all states on, and forgets the codes.
func (b *blocks) layer(layer int) error {
	others := len(b.matrices)
	b.list = nil
	for _, name := range b.layerLinears(layer) {
		p, ok := b.layered[name]
		if !ok {
			continue
		}
		codes, err := b.start(p)
		if err != nil {
			return err
		}
		m, undo, err := b.place(p, codes, name)
		if err != nil {
			return err
		}
		defer func() {
			undo()
			delete(b.linears, name)
		}()
		b.list = append(b.list, m)
	}
	defer func() {
		clear(b.matrices[others:]) // their memory goes
		b.matrices, b.list, b.numbers, b.scales = b.matrices[:others], nil, nil, nil
	}()
	if err := b.nextKey(); err != nil {
		return err
	}
	if err := b.advance(b.teaching, b.float, layer); err != nil {
		return err
	}
	if err := b.advance(b.tape, b.untuned, layer); err != nil {
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
				b.Resumed(layer*b.layerSteps(), b.layers.steps+b.job.Steps)
			}
			b.resumed = 0
			err = b.train(layer)
		}
		if err != nil {
			return err
		}
	}
	b.Progress(int64(b.layerSteps()))
	return b.advance(b.tape, b.quant, layer)
}

// takeLayers gives the student the codes of all layers: the trained codes, if they are better.
func (j *job) takeLayers() error {
	for _, m := range j.plan.Matrices() {
		name := j.linearName(m)
		if _, ok := j.layered[name]; !ok {
			continue
		}
		var codes *rounding.Codes
		var err error
		if rows := j.layers.rows[m.Name()]; j.layers.better && rows != nil {
			codes, err = rounding.LoadCodes(m.Scheme.Shape(m.Rows, m.Cols), rows.ReadRow)
		} else {
			codes, err = j.start(m)
		}
		if err != nil {
			return err
		}
		if _, _, err := j.place(m, codes, name); err != nil {
			return err
		}
	}
	j.layers.close()
	j.layers.rows, j.layers.entries = nil, nil
	return nil
}

// layersResult is the result if the whole model is not trained.
func (j *job) layersResult() *Result {
	l := &j.layers
	r := &Result{Before: l.before, After: l.after, Step: l.steps, Steps: l.steps, entries: l.entries}
	if !l.better {
		r.After, r.Step = l.before, 0
		return r
	}
	r.tuned = &plan.Tuned{Rows: func(m plan.Matrix) plan.RowReader { return l.rows[m.Name()] }, Tuning: j.account()}
	return r
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
	runtime.GC() // so that the next layer takes this memory, not more
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
			b.rows(len(m.codes), softPiece, func(from, to int) { s.harden(m.codes, from, to) })
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

// softPiece is the number of codes that a goroutine moves at a time.
const softPiece = 1 << 12

// TrainedLayer has a layer's error before and after training: the mean squared error of its output
// on held-out text, each token's divided by the mean square of the float model's output.
type TrainedLayer struct {
	Layer, Layers int
	Before, After float64
	Kept          bool
}

func (b *blocks) steps(layer int) error {
	n := b.layerSteps()
	next := shuffled(b.lengths[:b.trains], detmath.Source(layer+1))
	for step := range n {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		if err := b.gather(next()); err != nil {
			return err
		}
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
			if s := m.soft; s != nil {
				next := temperature(step+1, n)
				b.rows(len(s.value), softPiece, func(from, to int) { s.step(from, to, float64(part*b.softRate), first, second, next) })
				s.temperature = next
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

// gather reads the values of sequences before and behind the layer.
func (b *blocks) gather(batch []int) (err error) {
	b.in.Lengths, b.x, b.want = b.in.Lengths[:0], b.x[:0], b.want[:0]
	for _, seq := range batch {
		b.in.Lengths = append(b.in.Lengths, b.lengths[seq])
		if b.x, err = b.quant.add(b.x, seq, seq+1); err != nil {
			return err
		}
		if b.want, err = b.float.add(b.want, seq, seq+1); err != nil {
			return err
		}
	}
	b.in.X = b.x
	return nil
}

// loss is the sum of the squared errors of a layer's output. The errors of each token are divided
// by the mean square of want: in many models the first tokens have much larger outputs than all
// others, and the next layer's norm divides them by that.
func (b *blocks) loss(out []float32) (sum float64) {
	for at := 0; at < len(out); at += b.float.width {
		weight := b.weight(at)
		for i := at; i < at+b.float.width; i++ {
			d := float64(out[i]) - float64(b.want[i])
			sum += float64(weight * float64(d*d))
		}
	}
	return sum
}

// weight is the weight of the squared errors of the token with the output at.
func (b *blocks) weight(at int) float64 {
	sum := vec.SumSquares(b.want[at:][:b.float.width])
	if sum == 0 {
		return 0
	}
	return float64(b.float.width) / sum
}

// gradient replaces the layer's output by the gradient of its mean loss, divided by the error
// before training.
func (b *blocks) gradient(out []float32) error {
	for at := 0; at < len(out); at += b.float.width {
		factor := float32(2 * b.weight(at) / float64(float64(len(out))*b.before))
		for i := at; i < at+b.float.width; i++ {
			out[i] = float32(factor * (out[i] - b.want[i]))
		}
	}
	return nil
}

// measure is the layer's mean loss on held-out sequences.
func (b *blocks) measure(layer int) (float64, error) {
	sum, n := 0.0, 0
	for seq := b.trains; seq < len(b.lengths); seq++ {
		if err := b.ctx.Err(); err != nil {
			return 0, err
		}
		if err := b.gather([]int{seq}); err != nil {
			return 0, err
		}
		out := buffer.Grow(&b.out, len(b.x))
		if err := b.tape.LayerForward(layer, &b.in, out); err != nil {
			return 0, err
		}
		sum += b.loss(out)
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

// layerSums is the memory of matrices outside of layers, and of the largest layer's relaxed codes
// and trained scales and its best numbers. A layer is the matrices with equal names up to the first
// number.
func layerSums(p *fromcheckpoint.Plan) (fixed, most int64) {
	layers := map[string]int64{}
	for _, m := range p.Matrices() {
		weights, scales := int64(m.Rows)*int64(m.Cols), int64(m.Rows)*int64(m.Scheme.Groups(m.Cols))
		layer := ""
		parts := strings.Split(m.Tensor, ".")
		for i, s := range parts {
			if _, err := strconv.Atoi(s); err == nil {
				layer = strings.Join(parts[:i+1], ".")
				break
			}
		}
		if m.Embedded() || layer == "" {
			fixed += weights + 2*4*scales
			continue
		}
		layers[layer] += weights*(softBytes(choices(m.Scheme.Bits))+2) + scales*(StateBytes+2*4)
		most = max(most, layers[layer])
	}
	return fixed, most
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
