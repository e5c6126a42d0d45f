package fold

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/orthogonal"
)

// recordVersion changes when the same record gives other bytes.
const recordVersion = 1

// maxSteps bounds the work of a record: gq takes at most four steps.
const maxSteps = 16

// Record is the recipe of the folded checkpoint, for Apply. As JSON the record is the asset
// gq/fold.json of a .gqf file (docs/FORMAT.md).
type Record struct {
	Version int `json:"version"`
	// Steps are taken in order, each on the result of the previous step.
	Steps []Step `json:"steps"`
	// Check compares the folded model's logits with the original's; nil before that.
	Check *Check `json:"check,omitempty"`
}

const (
	KindRotate = "rotate"
	KindScale  = "scale"
)

// Step is a change of a checkpoint.
type Step struct {
	Kind string  `json:"kind"`
	Seed *uint64 `json:"seed,omitempty"`
	// By says how the factors of KindScale were chosen, "equalize" or "awq", with these Parameters.
	By         string         `json:"by,omitempty"`
	Parameters map[string]any `json:"parameters,omitempty"`
	Scalings   []Factors      `json:"scalings,omitempty"`
}

// Factors are the factors of a place. Exactly one of Norm and Rows is set: the norm, or the rows of
// the linear layer, that feeds the consumers.
type Factors struct {
	// Norm is the norm's tensor, to be divided by T, with PlusOne as 1 + weight.
	Norm    string `json:"norm,omitempty"`
	PlusOne bool   `json:"plus_one,omitempty"`
	// Row From + i of Rows and its bias are divided by T[i].
	Rows *Rows `json:"rows,omitempty"`
	// Column c of Consumers is multiplied by T[c], or by T[c / (HeadDim Repeat) HeadDim + c % HeadDim]
	// if Repeat is more than 1.
	Consumers []Rows `json:"consumers"`
	HeadDim   int    `json:"head_dim,omitempty"`
	Repeat    int    `json:"repeat,omitempty"`
	T         Vector `json:"t"`
}

// Rows are rows of a tensor as a matrix by its last dimension. Bias is the tensor of biases, or "".
type Rows struct {
	Tensor string `json:"tensor"`
	From   int    `json:"from"`
	Rows   int    `json:"rows"`
	Bias   string `json:"bias,omitempty"`
}

type Check struct {
	Tokens int    `json:"tokens"`
	Source string `json:"source"` // of the tokens: "random", or as Calibration.Source
	// Difference is the largest difference between two logits, relative to the largest logit.
	Difference float64 `json:"difference"`
	// Rerouted counts short sequences that Difference leaves out: in a mixture of experts, rounding
	// may send a token to another expert with nearly the same score.
	Rerouted int `json:"rerouted,omitempty"`
}

// Vector is a list of float32 numbers; in JSON, base64 of their little-endian bytes.
type Vector []float32

func (v Vector) MarshalText() ([]byte, error) {
	raw, err := binary.Append(nil, binary.LittleEndian, []float32(v))
	return base64.StdEncoding.AppendEncode(nil, raw), err
}

func (v *Vector) UnmarshalText(text []byte) error {
	raw, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return err
	}
	if len(raw)%4 != 0 {
		return fmt.Errorf("%d bytes are no float32 numbers", len(raw))
	}
	*v = make(Vector, len(raw)/4)
	_, err = binary.Decode(raw, binary.LittleEndian, []float32(*v))
	return err
}

func (r *Record) JSON() ([]byte, error) { return json.Marshal(r) }

// ParseRecord parses a record and checks what can be checked without the checkpoint.
func ParseRecord(raw []byte) (*Record, error) {
	var r Record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("fold record: %w", err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("fold record: version %d; this gq knows %d", r.Version, recordVersion)
	}
	if n := len(r.Steps); n < 1 || n > maxSteps {
		return nil, fmt.Errorf("fold record: %d steps; 1 to %d are possible", n, maxSteps)
	}
	for i := range r.Steps {
		if err := r.Steps[i].check(); err != nil {
			return nil, fmt.Errorf("fold record: step %d: %w", i+1, err)
		}
	}
	return &r, nil
}

func (s *Step) check() error {
	switch s.Kind {
	case KindRotate:
		if s.Seed == nil {
			return fmt.Errorf("a rotation without a seed")
		}
		return nil
	case KindScale:
	default:
		return fmt.Errorf("%q is no kind of step that this gq knows", s.Kind)
	}
	for i := range s.Scalings {
		f := &s.Scalings[i]
		switch {
		case (f.Norm == "") == (f.Rows == nil):
			return fmt.Errorf("factors %d: a norm or rows, not both, produce", i+1)
		case f.Rows != nil && f.Rows.Rows != len(f.T):
			return fmt.Errorf("factors %d: %d of them for %d rows", i+1, len(f.T), f.Rows.Rows)
		case f.Repeat > 1 && (f.HeadDim < 1 || len(f.T)%f.HeadDim != 0):
			return fmt.Errorf("factors %d: %d of them for heads of %d", i+1, len(f.T), f.HeadDim)
		case f.Repeat < 0 || f.Repeat > 1<<20:
			return fmt.Errorf("factors %d: each repeated %d times", i+1, f.Repeat)
		}
		for _, t := range f.T {
			if !(t > 1e-18 && t < 1e18) {
				return fmt.Errorf("factors %d: %v is not one", i+1, t)
			}
		}
	}
	return nil
}

func (f *Factors) columns() int { return len(f.T) * max(f.Repeat, 1) }

// FactorsOf are the factors t of a place.
func FactorsOf(s *forward.Scaling, t []float32) Factors {
	f := Factors{T: t}
	if s.Norm != nil {
		f.Norm, f.PlusOne = s.Norm.Tensor, s.Norm.PlusOne
	} else {
		r := rowsOf(*s.Rows)
		f.Rows = &r
	}
	for _, b := range s.Consumers {
		r := rowsOf(b)
		r.Bias = "" // columns have none
		f.Consumers = append(f.Consumers, r)
	}
	if s.Repeat > 1 {
		f.HeadDim, f.Repeat = s.HeadDim, s.Repeat
	}
	return f
}

func rowsOf(b forward.Block) Rows { return Rows{b.Tensor, b.From, b.Rows, b.Bias} }

// String lists the steps: "equalized, rotated (seed 1), equalized".
func (r *Record) String() string {
	var parts []string
	for _, s := range r.Steps {
		switch {
		case s.Kind == KindRotate:
			parts = append(parts, fmt.Sprintf("rotated (seed %d)", *s.Seed))
		case s.By == ByAWQ:
			parts = append(parts, "scaled by awq")
		default:
			parts = append(parts, "equalized")
		}
	}
	return strings.Join(parts, ", ")
}

const (
	ByEqualize = "equalize"
	ByAWQ      = "awq"
)

const (
	// A folded model is checked on checkTokens tokens, in sequences of at most checkWindow. A mixture
	// of experts has mixtureWindow: if two experts have nearly the same score, rounding may select the
	// other expert and change the rest of the sequence.
	checkTokens   = 256
	checkWindow   = 128
	mixtureWindow = 8
)

// tolerance is float32's error: the largest difference of logits, relative to the largest logit.
const tolerance = 1e-4

// ExactnessError says that a folded model does not compute the same logits as the original.
type ExactnessError struct{ Check }

func (e *ExactnessError) Error() string {
	return fmt.Sprintf("the folded model's logits differ from the checkpoint's by %.3g of the largest on %d tokens (%s), more than %g: it is not the same model, so nothing was written; quantize without folding, and report this", e.Difference, e.Tokens, e.Source, tolerance)
}

// Compare runs two models on the first tokens of sequences, by default on random tokens. If their
// logits differ by more than float32 rounding, the error is an *ExactnessError.
func Compare(ctx context.Context, original, folded string, sequences [][]int32, source string, o Options) (*Check, error) {
	a, err := openModel(original, o.Threads)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := openModel(folded, o.Threads)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	config, window := a.Config(), WindowOf(a)
	if len(sequences) == 0 {
		source, sequences = "random", RandomTokens(a.VocabSize(), window)
	}
	if config.Experts != nil {
		window = min(window, mixtureWindow)
	}
	c := &Check{Source: source}
	p := &pair{a.NewSession(window), b.NewSession(window), a.VocabSize(), nil, nil}
	var differences []float64
	largest := 0.0
	for _, ids := range pieces(sequences, window) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		worst, top, err := p.compare(ids)
		if err != nil {
			return nil, err
		}
		c.Tokens += len(ids)
		differences, largest = append(differences, worst), max(largest, top)
	}
	for _, d := range differences {
		if largest > 0 {
			d /= largest
		}
		// At most a quarter may be rerouted: in a wrong model all sequences differ.
		if config.Experts != nil && d > tolerance && c.Rerouted < len(differences)/4 {
			c.Rerouted++
			continue
		}
		c.Difference = max(c.Difference, d) // NaN stays NaN
	}
	if !(c.Difference <= tolerance) {
		return nil, &ExactnessError{*c}
	}
	return c, nil
}

// WindowOf returns the length of the sequences that a model is checked on.
func WindowOf(m *forward.Model) int {
	if n := m.Config().MaxPositions; n > 0 {
		return min(checkWindow, n)
	}
	return checkWindow
}

func pieces(sequences [][]int32, window int) (list [][]int32) {
	left := checkTokens
	for _, ids := range sequences {
		for len(ids) > 0 && left > 0 {
			n := min(window, len(ids), left)
			list = append(list, ids[:n])
			ids, left = ids[n:], left-n
		}
	}
	return list
}

type pair struct {
	first, second *forward.Session
	vocab         int
	x, y          []float32
}

// compare returns the largest difference between the logits of a sequence, and the largest logit.
func (p *pair) compare(ids []int32) (worst, largest float64, err error) {
	const chunk = 16 // tokens
	p.first.Reset()
	p.second.Reset()
	for len(ids) > 0 {
		n := min(chunk, len(ids))
		x, y := buffer.Grow(&p.x, n*p.vocab), buffer.Grow(&p.y, n*p.vocab)
		if err := p.first.Forward(ids[:n], x, true); err != nil {
			return 0, 0, err
		}
		if err := p.second.Forward(ids[:n], y, true); err != nil {
			return 0, 0, err
		}
		for i, v := range x {
			largest = max(largest, math.Abs(float64(v)))
			worst = max(worst, math.Abs(float64(v)-float64(y[i]))) // NaN stays NaN
		}
		ids = ids[n:]
	}
	return worst, largest, nil
}

// RandomTokens depends on the vocabulary and the window alone.
func RandomTokens(vocab, window int) (list [][]int32) {
	random := orthogonal.Random(1, 0)
	for range (checkTokens + window - 1) / window {
		ids := make([]int32, window)
		for i := range ids {
			ids[i] = int32(random.Next() >> 33 % uint64(vocab))
		}
		list = append(list, ids)
	}
	return list
}
