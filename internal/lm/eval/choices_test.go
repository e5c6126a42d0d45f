package eval

import (
	"math"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/choice"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// likelihood computes the log-likelihood of an ending from all logits of the whole sequence.
func likelihood(t *testing.T, m *forward.Model, context, ending []int32) float64 {
	t.Helper()
	tokens := append(append([]int32{}, context...), ending...)
	vocab := m.VocabSize()
	logits := make([]float32, len(tokens)*vocab)
	if err := m.NewSession(len(tokens)).Forward(tokens, logits, true); err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i := len(context); i < len(tokens); i++ {
		row, total := logits[(i-1)*vocab:][:vocab], 0.0
		for _, v := range row {
			total += math.Exp(float64(v))
		}
		sum += float64(row[tokens[i]]) - math.Log(total)
	}
	return sum
}

// TestCompareChoices compares log-likelihoods with sequences that are computed whole, and the
// result for any number of threads.
func TestCompareChoices(t *testing.T) {
	testshared.SlowEmulated(t, "sessions are compared natively")
	m, err := forward.OpenCheckpoint("../../../testdata/books1.3M-bf16", forward.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	random := detmath.Source(3)
	tokens := func(n int) []int32 {
		list := make([]int32, n)
		for i := range list {
			list[i] = 3 + int32(random.Next()%uint64(m.VocabSize()-3))
		}
		return list
	}
	var items []*choice.Item
	for i, n := range []int{1, 30, 5, 80, 2} {
		item := &choice.Item{Context: tokens(n), Answer: i % 3}
		for k := range 3 {
			item.Endings = append(item.Endings, choice.Ending{Tokens: tokens(1 + (i+5*k)%7), Characters: 1 + k})
		}
		items = append(items, item)
	}
	items[1].Endings[1].Skip = 4
	items[3].Endings[0].Skip, items[3].Endings[1].Skip = 10, 10

	s := newScorer([]*forward.Model{m}, 100)
	for i, item := range items {
		got, err := s.endings(i, item)
		if err != nil {
			t.Fatal(err)
		}
		for k, e := range item.Endings {
			if want := likelihood(t, m, item.Context[e.Skip:], e.Tokens); math.Abs(got[0][k]-want) > 1e-4 {
				t.Errorf("question %d, ending %d: %g, want %g", i, k, got[0][k], want)
			}
		}
	}
	one, err := CompareChoices(t.Context(), m, []*forward.Model{m}, items, ChoiceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	three, err := CompareChoices(t.Context(), m, []*forward.Model{m}, items, ChoiceOptions{Sessions: 1, Progress: func() { asked++ }})
	if err != nil || !reflect.DeepEqual(one, three) || asked != len(items) {
		t.Errorf("%+v, want %+v (%v)", three, one, err)
	}
	more, err := CompareChoices(t.Context(), m, []*forward.Model{m}, items, ChoiceOptions{Sessions: 3})
	if err != nil || !reflect.DeepEqual(one, more) {
		t.Errorf("with three sessions %+v, want %+v (%v)", more, one, err)
	}
	if c := one[0]; c.KL.Max != 0 || c.Changed != 0 || c.AccDrop != 0 || c.Questions != len(items) || c.Float != c.Quantized {
		t.Errorf("a model and itself: %+v", c)
	}
}

// TestAnswers uses four questions with two endings, of 1 and 4 characters.
func TestAnswers(t *testing.T) {
	item := func(answer int) *choice.Item {
		return &choice.Item{Answer: answer, Endings: []choice.Ending{{Characters: 1}, {Characters: 4}}}
	}
	items := []*choice.Item{item(0), item(1), item(1), item(0)}
	// By log-likelihood the float model answers 0, 0, 1, 0 and the other 0, 1, 0, 0; a character
	// counts: 1, 1, 1, 0 and 1, 1, 1, 1.
	likelihoods := [][][]float64{
		{{-2, -3}, {-2, -4}},
		{{-2, -3}, {-5, -3}},
		{{-3, -3 + 1e-9}, {-3, -3}}, // of equals, the first
		{{-1, -8}, {-1, -2}},
	}
	got := answers(items, likelihoods, 1)
	half := StdErr(math.Sqrt(4./3*0.25*4) / 4) // two of four are right
	three := StdErr(math.Sqrt(4./3*(3*0.0625+0.5625)) / 4)
	kl := func(p, q float64) float64 { // from log-likelihood ratios of ending 0 to 1
		a, b := 1/(1+math.Exp(-p)), 1/(1+math.Exp(-q))
		return a*math.Log(a/b) + (1-a)*math.Log((1-a)/(1-b))
	}
	want := ChoiceComparison{
		Questions: 4,
		Float:     Answers{Acc: 0.75, AccStdErr: three, AccNorm: 0.75, AccNormStdErr: three},
		Quantized: Answers{Acc: 0.75, AccStdErr: three, AccNorm: 0.5, AccNormStdErr: half},
		AccDrop:   0, AccDropStdErr: StdErr(math.Sqrt(4./3*2) / 4),
		AccNormDrop: 0.25, AccNormDropStdErr: three,
		Changed: 0.5, ChangedStdErr: half, ChangedNorm: 0.25,
	}
	mean := (kl(1, 2) + kl(1, -2) + kl(0, 0) + kl(7, 1)) / 4
	number := cmp.Transformer("number", func(e StdErr) float64 { return float64(e) })
	if d := cmp.Diff(want, got, number, cmpopts.EquateApprox(1e-12, 1e-12), cmpopts.IgnoreFields(ChoiceComparison{}, "KL")); d != "" {
		t.Error(d)
	}
	if math.Abs(got.KL.Mean-mean) > 1e-9 {
		t.Errorf("KL %g, want %g", got.KL.Mean, mean)
	}
}
