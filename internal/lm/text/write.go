package text

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// writers is the number of sequences that a model writes at a time.
const writers = 16

// WriteOptions are the options of Write. A sequence begins with Start. Each token is drawn with the
// model's probability, until the model ends the document or the sequence has Window tokens.
type WriteOptions struct {
	Start  int32   // BOS, or its substitute; see Start
	Ends   []int32 // tokens that end a document
	Tokens int     // tokens of the whole text
	Window int
	Seed   uint64
	// Progress is called with the number of tokens since the last call. Default: none.
	Progress func(n int)
	// Draft is the last argument of Keep in an interrupted call with the same model and options, from
	// which Write resumes. Default: none.
	Draft *Draft
	// Keep is called with the text so far every ten seconds, and when ctx is done. The Draft is valid
	// until Keep returns. Default: none.
	Keep func(*Draft) error
}

// Slots is the number of sequences that are written at a time.
func (o WriteOptions) Slots() int { return min(writers, max(1, o.Tokens/o.Window)) }

// WriteBytes is the memory that WriteAll takes for a model.
func WriteBytes(m *forward.Model, options []WriteOptions) int64 {
	slots, window, vocab := 0, 0, int64(m.VocabSize())
	for _, o := range options {
		slots, window = slots+o.Slots(), max(window, o.Window)
	}
	return m.NewBatch(slots, window).Bytes() + 4*int64(slots)*vocab + 8*vocab*int64(m.Pool().Threads())
}

// keepInterval bounds the time that a killed job loses.
const keepInterval = 10 * time.Second

// Draft is an unfinished text.
type Draft struct {
	Finished [][]int32  `json:"finished"` // finished sequences
	Total    int        `json:"total"`    // tokens of Finished, plus 1 per empty sequence
	Begun    uint64     `json:"begun"`    // number of sequences begun
	Open     []Sequence `json:"open"`
}

// Sequence is an unfinished sequence.
type Sequence struct {
	Tokens []int32        `json:"tokens"`
	Random detmath.Source `json:"random"` // for the next tokens
}

func (d *Draft) Size() int {
	n := d.Total
	for i := range d.Open {
		n += len(d.Open[i].Tokens)
	}
	return n
}

// Write lets a model write a text.
//
// A seed gives the same text on any machine: each sequence has its own random numbers, and logits
// are the same everywhere.
func Write(ctx context.Context, m *forward.Model, o WriteOptions) (*Text, error) {
	texts, err := WriteAll(ctx, m, []WriteOptions{o})
	if err != nil {
		return nil, err
	}
	return texts[0], nil
}

// WriteAll lets a model write several texts in the same passes: the time of a pass of few sequences
// depends little on their number. The texts are the same as from Write.
func WriteAll(ctx context.Context, m *forward.Model, options []WriteOptions) ([]*Text, error) {
	p := newPasses(m, options)
	for _, w := range p.writers {
		if err := w.resume(ctx); err != nil {
			return nil, err
		}
	}
	kept := time.Now()
	for {
		if ctx.Err() != nil || time.Since(kept) > keepInterval {
			for _, w := range p.writers {
				if w.Keep == nil {
					continue
				}
				if err := w.Keep(&w.Draft); err != nil {
					return nil, err
				}
			}
			kept = time.Now()
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		open := slices.DeleteFunc(slices.Clone(p.writers), func(w *writer) bool { return w.done })
		if len(open) == 0 {
			break
		}
		if err := p.step(open); err != nil {
			return nil, err
		}
	}
	var texts []*Text
	for _, w := range p.writers {
		t, err := w.text()
		if err != nil {
			return nil, err
		}
		texts = append(texts, t)
	}
	return texts, nil
}

// passes holds the batch and the buffers in which all texts of a WriteAll are written.
type passes struct {
	m       *forward.Model
	batch   *forward.Batch
	writers []*writer
	chunks  []forward.Chunk
	logits  []float32
	weights [][]float64 // of each thread: a weight for each token
}

type writer struct {
	WriteOptions
	Draft
	batch *forward.Batch
	first int // the text's first sequence in the batch
	ends  map[int32]bool
	done  bool
}

func newPasses(m *forward.Model, options []WriteOptions) *passes {
	p := &passes{m: m}
	slots, window := 0, 0
	for _, o := range options {
		w := &writer{WriteOptions: o, first: slots, ends: map[int32]bool{o.Start: true}}
		for _, id := range o.Ends {
			w.ends[id] = true
		}
		w.Open = make([]Sequence, o.Slots())
		p.writers = append(p.writers, w)
		slots, window = slots+len(w.Open), max(window, o.Window)
	}
	p.batch = m.NewBatch(slots, window)
	p.logits = make([]float32, slots*m.VocabSize())
	for range m.Pool().Threads() {
		p.weights = append(p.weights, make([]float64, m.VocabSize()))
	}
	for _, w := range p.writers {
		w.batch = p.batch
		if d := w.WriteOptions.Draft; d != nil && len(d.Open) == len(w.Open) {
			w.Draft = *d
			w.done = w.Size() >= w.Tokens
			continue
		}
		for slot := range w.Open {
			w.begin(slot)
		}
	}
	return p
}

func (w *writer) begin(slot int) {
	w.batch.End(w.first + slot)
	w.Open[slot] = Sequence{[]int32{w.Start}, newRandom(w.Seed, w.Begun)}
	w.Begun++
}

// resume feeds the model the tokens of the open sequences, except the last token of each: step
// feeds that. A finished text needs no resume.
func (w *writer) resume(ctx context.Context) error {
	if n := w.Size() - len(w.Open); n > 0 && w.Progress != nil {
		w.Progress(n)
	}
	if w.done {
		return nil
	}
	for slot := range w.Open {
		tokens := w.Open[slot].Tokens
		for tokens = tokens[:len(tokens)-1]; len(tokens) > 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(len(tokens), w.batch.MaxRows())
			if err := w.batch.Forward([]forward.Chunk{{Sequence: w.first + slot, Tokens: tokens[:n]}}, nil); err != nil {
				return err
			}
			tokens = tokens[n:]
		}
	}
	return nil
}

func (p *passes) step(open []*writer) error {
	type place struct {
		w    *writer
		slot int
		next int32
		err  error
	}
	p.chunks = p.chunks[:0]
	var places []place
	for _, w := range open {
		for slot := range w.Open {
			tokens := w.Open[slot].Tokens
			p.chunks = append(p.chunks, forward.Chunk{Sequence: w.first + slot, Tokens: tokens[len(tokens)-1:], Logits: 1})
			places = append(places, place{w: w, slot: slot})
		}
	}
	vocab := p.m.VocabSize()
	if err := p.batch.Forward(p.chunks, p.logits[:len(places)*vocab]); err != nil {
		return err
	}
	p.m.Pool().Run(len(places), func(worker, i int) {
		at := &places[i]
		at.next, at.err = draw(&at.w.Open[at.slot].Random, p.logits[i*vocab:][:vocab], p.weights[worker])
	})
	for _, at := range places {
		if at.err != nil {
			return at.err
		}
		at.w.accept(at.slot, at.next)
	}
	for _, w := range open {
		if w.Progress != nil {
			w.Progress(len(w.Open))
		}
		w.done = w.Size() >= w.Tokens
	}
	return nil
}

func (w *writer) accept(slot int, id int32) {
	s := &w.Open[slot]
	ended := w.ends[id]
	if !ended {
		s.Tokens = append(s.Tokens, id)
	}
	if !ended && len(s.Tokens) < w.Window {
		return
	}
	if len(s.Tokens) > 1 {
		w.Finished = append(w.Finished, s.Tokens)
		w.Total += len(s.Tokens)
	} else {
		w.Total++ // so that a model that writes nothing ends too
	}
	w.begin(slot)
}

// text returns the written text, including unfinished sequences.
func (w *writer) text() (*Text, error) {
	seed := w.Seed // a pointer into w would keep the batch
	t := &Text{Source: "self", Seed: &seed, Sequences: w.Finished}
	for _, s := range w.Open {
		if len(s.Tokens) > 1 {
			t.Sequences = append(t.Sequences, s.Tokens)
		}
	}
	if len(t.Sequences) == 0 {
		return nil, errNoText
	}
	t.SHA256 = HashIDs(t.Sequences)
	return t, nil
}

// HashIDs returns the SHA-256 of the ids as little-endian int32 in order.
func HashIDs(sequences [][]int32) string {
	h := sha256.New()
	for _, s := range sequences {
		_ = binary.Write(h, binary.LittleEndian, s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Hash is the SHA-256, in hex, of all sequences: the length of each as a little-endian uint32, then
// its token ids as little-endian int32.
func (t *Text) Hash() string {
	h := sha256.New()
	for _, s := range t.Sequences {
		_ = binary.Write(h, binary.LittleEndian, uint32(len(s)))
		_ = binary.Write(h, binary.LittleEndian, s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func draw(r *detmath.Source, logits []float32, weights []float64) (int32, error) {
	top := logits[0]
	for _, v := range logits {
		if v != v {
			return 0, errors.New("the model computed a NaN logit")
		}
		top = max(top, v)
	}
	sum := 0.0
	for i, v := range logits {
		weights[i] = detmath.Exp(float64(v) - float64(top))
		sum += weights[i]
	}
	at := float64(r.Float() * sum)
	for i, w := range weights {
		if at -= w; at < 0 {
			return int32(i), nil
		}
	}
	return int32(len(logits) - 1), nil
}

// newRandom returns the random numbers of sequence n.
func newRandom(seed, n uint64) detmath.Source {
	r := detmath.Source(seed)
	first := r.Next()
	r = detmath.Source(first ^ n*0xd1342543de82ef95)
	r.Next()
	return r
}

// Start returns the token from which the model begins to write, and the tokens that end its text.
func Start(t *tokenizer.Tokenizer) (start int32, ends []int32) {
	ends = t.EOSIDs()
	if bos, ok := t.BOS(); ok {
		return bos, ends
	}
	if eos, ok := t.EOS(); ok {
		return eos, ends
	}
	return 0, ends
}
