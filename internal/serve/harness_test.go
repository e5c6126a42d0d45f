package serve

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"testing"
	"unicode/utf8"

	question "github.com/lowbit-go/gq/internal/lm/choice"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/model/generate"
)

// The tests of this file send what lm-evaluation-harness sends
// (lm_eval/models/openai_completions.py and api_models.py), and read answers as it does.

// harnessScores is an answer to a request for log-likelihoods.
type harnessScores struct {
	Choices []struct {
		Index    int
		Logprobs struct {
			TokenLogprobs []*float64            `json:"token_logprobs"`
			TopLogprobs   []map[string]*float64 `json:"top_logprobs"`
		}
	}
}

// likelihood returns the log-likelihood of the tokens behind the context, and whether each of them
// is the most likely one, as parse_logprobs does.
func (h *harnessScores) likelihood(i, context int) (sum float64, greedy bool) {
	p := h.Choices[i].Logprobs
	greedy = true
	for at := context; at < len(p.TokenLogprobs)-1; at++ { // the last token is a generated one
		sum += *p.TokenLogprobs[at]
		best := math.Inf(-1)
		for _, v := range p.TopLogprobs[at] {
			best = max(best, *v)
		}
		greedy = greedy && *p.TokenLogprobs[at] == best
	}
	return sum, greedy
}

// score asks for the log-likelihoods of a batch of token sequences.
func score(t *testing.T, s *Server, sequences [][]int32) *harnessScores {
	t.Helper()
	body, err := json.Marshal(map[string]any{"model": "books", "prompt": sequences, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true})
	if err != nil {
		t.Fatal(err)
	}
	w := do(t, s, "/v1/completions", string(body))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	scores := decode[harnessScores](t, w)
	if len(scores.Choices) != len(sequences) {
		t.Fatalf("%d choices for %d sequences", len(scores.Choices), len(sequences))
	}
	for i, c := range scores.Choices {
		if p := c.Logprobs; c.Index != i || len(p.TokenLogprobs) != len(sequences[i])+1 || len(p.TopLogprobs) != len(p.TokenLogprobs) {
			t.Fatalf("choice %d of %d tokens: %s", i, len(sequences[i]), w.Body)
		}
	}
	return &scores
}

// TestHarnessChoices: a harness that asks the server gets the log-likelihoods of the endings of
// multiple-choice questions.
func TestHarnessChoices(t *testing.T) {
	s := newServer(t, Options{})
	g := s.models[0].Generator
	data, err := os.ReadFile("../../testdata/choices/lighthouse.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	questions, _, err := question.Read(data, 0)
	if err != nil {
		t.Fatal(err)
	}
	encoder, err := question.NewEncoder(g.Tokenizer(), 256)
	if err != nil {
		t.Fatal(err)
	}
	for i := range questions {
		item, err := encoder.Encode(t.Context(), &questions[i])
		if err != nil {
			t.Fatal(err)
		}
		var sequences [][]int32
		for _, e := range item.Endings {
			sequences = append(sequences, slices.Concat(item.Context, e.Tokens))
		}
		scores := score(t, s, sequences)
		for k, ids := range sequences {
			got, greedy := scores.likelihood(k, len(item.Context))
			want, wantGreedy := likelihood(t, g.Model(), ids, len(item.Context))
			if math.Abs(got-want) > 1e-10*math.Abs(want) || greedy != wantGreedy {
				t.Errorf("line %d, ending %d: %v %v, want %v %v", questions[i].Line, k, got, greedy, want, wantGreedy)
			}
		}
	}
}

// likelihood computes the log-likelihood of the tokens behind the context from the logits.
func likelihood(t *testing.T, m *forward.Model, ids []int32, context int) (sum float64, greedy bool) {
	t.Helper()
	v := m.VocabSize()
	logits := make([]float32, len(ids)*v)
	if err := m.NewSession(len(ids)).Forward(ids, logits, true); err != nil {
		t.Fatal(err)
	}
	greedy = true
	for at := context; at < len(ids); at++ {
		row := logits[(at-1)*v:][:v]
		highest, all := slices.Max(row), 0.0
		for _, x := range row {
			all += math.Exp(float64(x) - float64(highest))
		}
		sum += float64(row[ids[at]]) - float64(highest) - math.Log(all)
		greedy = greedy && row[ids[at]] == highest
	}
	return sum, greedy
}

// TestHarnessGreedy: the model's own greedy continuation is greedy for the harness, and another
// token makes it another text.
func TestHarnessGreedy(t *testing.T) {
	s := newServer(t, Options{})
	r, err := s.models[0].Generator.Run(t.Context(), generate.Options{Prompt: "The old man said", MaxTokens: 12, Sampling: generate.Sampling{Temperature: 0}})
	if err != nil {
		t.Fatal(err)
	}
	own := slices.Concat(r.PromptIDs, r.IDs)
	other := slices.Clone(own)
	other[len(other)-1] = (other[len(other)-1] + 1) % int32(s.models[0].Generator.Model().VocabSize())
	scores := score(t, s, [][]int32{own, other})
	sum, greedy := scores.likelihood(0, len(r.PromptIDs))
	otherSum, otherGreedy := scores.likelihood(1, len(r.PromptIDs))
	if !greedy || otherGreedy || otherSum >= sum {
		t.Errorf("%v %v, and %v %v with another last token", sum, greedy, otherSum, otherGreedy)
	}
}

// TestHarnessGenerate sends requests of generate_until.
func TestHarnessGenerate(t *testing.T) {
	s := newServer(t, Options{})
	g := s.models[0].Generator
	prompts := []string{"The old man said", "It was a dark night, and"}
	var ids [][]int32
	var want []string
	for _, p := range prompts {
		r, err := g.Run(t.Context(), generate.Options{Prompt: p, MaxTokens: 24, Sampling: generate.Sampling{Temperature: 0}, Stop: []string{"\n\n", ". "}})
		if err != nil {
			t.Fatal(err)
		}
		ids, want = append(ids, r.PromptIDs), append(want, r.Text)
	}
	for name, prompt := range map[string]any{"token ids": ids, "strings": prompts} {
		body, err := json.Marshal(map[string]any{"prompt": prompt, "model": "books", "max_tokens": 24, "temperature": 0, "stop": []string{"\n\n", ". "}, "seed": 1234})
		if err != nil {
			t.Fatal(err)
		}
		got := decode[completion](t, do(t, s, "/v1/completions", string(body)))
		for i, c := range got.Choices {
			if c.Index != i || c.Text != want[i] {
				t.Errorf("%s: choice %d is %q, want %q", name, c.Index, c.Text, want[i])
			}
		}
		if len(got.Choices) != len(prompts) {
			t.Errorf("%s: %d choices", name, len(got.Choices))
		}
	}
	// local-chat-completions: messages have a type, and there may be no stop string.
	for _, stop := range []string{`[]`, `["\n\n"]`} {
		body := fmt.Sprintf(`{"messages":[{"role":"user","content":"Who is there?","type":"text"}],"model":"books","max_tokens":8,"temperature":0,"stop":%s,"seed":1234}`, stop)
		w := do(t, s, "/v1/chat/completions", body)
		if w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if got := decode[completion](t, w); utf8.RuneCountInString(got.Choices[0].Message.Content) == 0 {
			t.Errorf("an empty answer: %s", w.Body)
		}
	}
}
