package forward

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/buffer"
	number "github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// randomSource has BF16 weights for every tensor, all from the same bytes.
type randomSource struct {
	data   []byte
	floats floats
}

const randomRows = 2048 // of the widest matrix

func newRandomSource(width int, o Options) *randomSource {
	rng := rand.New(rand.NewPCG(51, 52))
	s := &randomSource{floats: o.floats()}
	for range randomRows * width {
		s.data = binary.LittleEndian.AppendUint16(s.data, number.BF16FromF32(float32(0.02*rng.NormFloat64())))
	}
	return s
}

func (s *randomSource) names() []string { return nil }
func (s *randomSource) shape(name string) ([]int64, bool) {
	return nil, name == "model.embed_tokens.weight"
}
func (s *randomSource) biasOf(weights string) string { return arch.BiasName(weights) }
func (s *randomSource) guard(fn func() error) error  { return fn() }
func (s *randomSource) release()                     {}
func (s *randomSource) close() error                 { return nil }

func (s *randomSource) tensor(name string, shape ...int64) ([]float32, error) {
	return s.vector(name, elements(shape))
}

func (s *randomSource) vector(_ string, n int) ([]float32, error) {
	v := make([]float32, n)
	for i := range v {
		v[i] = 1
	}
	return v, nil
}

func (s *randomSource) linear(l *linearSpec) (kernels.Operator, error) {
	rows := len(s.data) / 2 / l.cols
	read := func(dst []float32, row int) {
		safetensors.Widen(dst, s.data[2*(row%rows)*l.cols:][:2*l.cols], packing.BF16)
	}
	if l.rows <= rows {
		return s.floats.linear(s.data[:2*l.rows*l.cols], packing.BF16, l.rows, l.cols)
	}
	return kernels.NewRows(l.rows, l.cols, read, nil, s.floats.options)
}

func (s *randomSource) embedding(_ string, _, cols int) (Embedding, error) {
	return randomEmbedding{s, cols}, nil
}

type randomEmbedding struct {
	s    *randomSource
	cols int
}

func (e randomEmbedding) Lookup(dst []float32, row int) error {
	rows := len(e.s.data) / 2 / e.cols
	for i := range dst {
		dst[i] = number.BF16ToF32(binary.LittleEndian.Uint16(e.s.data[2*(row%rows*e.cols+i):]))
	}
	return nil
}

// BenchmarkTape measures a layer of a 1B model (Llama-3.2-1B) and its lm_head, on one thread, in
// microseconds per token: a layer forward; forward again and backward to the gradients of inputs
// and norms; the gradients of all weights; and the lm_head in both directions.
func BenchmarkTape(b *testing.B) {
	config := `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192,
		"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "num_hidden_layers": 2, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
		"tie_word_embeddings": true, "vocab_size": 128256, "max_position_embeddings": 131072}`
	c, err := arch.ParseForward([]byte(strings.TrimSpace(config)))
	if err != nil {
		b.Fatal(err)
	}
	o := Options{Threads: 1}
	m, err := newModel(c, newRandomSource(8192, o), o)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	const tokens = 512
	ids := someTokens(tokens, m.VocabSize())
	tape, err := m.NewTape(TapeOptions{MaxTokens: tokens})
	if err != nil {
		b.Fatal(err)
	}
	if err := tape.Forward([][]int32{ids}, nil); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d MB stated", tape.Bytes()>>20)
	in := &LayerInput{Lengths: []int{tokens}, X: append([]float32(nil), tape.Hidden(1, 0)...)}
	out := make([]float32, len(in.X))
	report := func(name string, n int, fn func() error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := fn(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "us/token")
		})
	}
	report("layer/forward", tokens, func() error { return tape.LayerForward(1, in, out) })
	same := func([]float32) error { return nil }
	norms := func(string, []float32) error { return nil }
	report("layer/backward", tokens, func() error { return tape.LayerBackward(1, in, same, &Gradients{Norm: norms}, out) })
	var dst []float32
	weights := func(g *LinearGradient) error {
		for from := 0; from < g.N; from += 512 {
			n := min(512, g.N-from)
			if err := g.Weights(buffer.Grow(&dst, n*g.K), from, n); err != nil {
				return err
			}
		}
		return nil
	}
	report("layer/backward+weights", tokens, func() error {
		return tape.LayerBackward(1, in, same, &Gradients{Norm: norms, Linear: weights}, out)
	})
	if err := tape.Forward([][]int32{ids}, nil); err != nil {
		b.Fatal(err)
	}
	logits := make([]float32, 128*m.VocabSize())
	report("head/forward", 128, func() error { return tape.Logits(0, 0, 128, logits) })
	report("head/backward", tokens, func() error {
		return m.pass(func() {
			tape.growGradients()
			tape.headBackward(func(_, _, _ int, logits []float32) error { clear(logits); return nil }, &Gradients{Norm: norms})
		})
	})
}
