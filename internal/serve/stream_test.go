package serve

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/model/generate"
)

// events returns the data of the events of a stream, without the last, which is [DONE].
func events(t *testing.T, body string) (list []string) {
	t.Helper()
	for part := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(part, "data: ")
		if !ok || strings.Contains(data, "\n") {
			t.Fatalf("not an event: %q", part)
		}
		list = append(list, data)
	}
	if list[len(list)-1] != "[DONE]" {
		t.Fatalf("the stream does not end with [DONE]: %s", body)
	}
	return list[:len(list)-1]
}

type chunk struct {
	Object  string
	Choices []struct {
		Index    int
		Text     string
		Delta    struct{ Role, Content string }
		Finish   *string `json:"finish_reason"`
		Logprobs json.RawMessage
	}
	Usage   json.RawMessage
	Timings *timings
}

// TestStream: the pieces of a streamed answer are the whole answer, for each choice.
func TestStream(t *testing.T) {
	s := newServer(t, Options{})
	for _, c := range []struct {
		path, fields string
		chat         bool
	}{
		{"/v1/chat/completions", `"messages":[{"role":"user","content":"Who is there?"}],"max_tokens":40,"seed":3`, true},
		{"/v1/chat/completions", `"messages":[{"role":"user","content":"Who?"}],"max_tokens":20,"seed":3,"n":3,"logprobs":true,"top_logprobs":2`, true},
		{"/v1/chat/completions", `"messages":[{"role":"user","content":"Who?"}],"max_tokens":60,"seed":3,"stop":["the","a "],"logprobs":true`, true},
		{"/v1/completions", `"prompt":["The old","It was a","He"],"max_tokens":20,"seed":3,"n":2,"echo":true`, false},
		{"/v1/completions", `"prompt":[[1,393,702],[1,5]],"max_tokens":12,"seed":3,"echo":true,"logprobs":3`, false},
		{"/v1/completions", `"prompt":"The old","max_tokens":0,"echo":true`, false},
		{"/v1/completions", `"prompt":"The old","max_tokens":0,"echo":true,"logprobs":0`, false},
	} {
		whole := decode[completion](t, do(t, s, c.path, `{`+c.fields+`}`))
		for _, usage := range []bool{false, true} {
			options := ""
			if usage {
				options = `,"stream_options":{"include_usage":true}`
			}
			w := do(t, s, c.path, `{`+c.fields+`,"stream":true`+options+`}`)
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/event-stream; charset=utf-8" {
				t.Fatalf("%s: %d %v %s", c.fields, w.Code, w.Header(), w.Body)
			}
			checkStream(t, c.fields, events(t, w.Body.String()), whole, usage)
		}
	}
}

func checkStream(t *testing.T, what string, list []string, whole completion, withUsage bool) {
	t.Helper()
	texts, finish, roles := map[int]string{}, map[int]string{}, map[int]int{}
	for i, data := range list {
		var e chunk
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		last := i == len(list)-1
		if (e.Timings != nil) != last || withUsage != (len(e.Usage) > 0) {
			t.Errorf("%s: timings or usage of event %d: %s", what, i, data)
		}
		if withUsage && last {
			var u usage
			if err := json.Unmarshal(e.Usage, &u); err != nil || u.Completion != whole.Usage.Completion || u.Prompt != whole.Usage.Prompt || len(e.Choices) != 0 {
				t.Errorf("%s: %s", what, data)
			}
			continue
		}
		choice := e.Choices[0]
		texts[choice.Index] += choice.Text + choice.Delta.Content
		if choice.Delta.Role != "" {
			roles[choice.Index]++
		}
		if _, ended := finish[choice.Index]; ended {
			t.Errorf("%s: choice %d goes on after its end", what, choice.Index)
		}
		if choice.Finish != nil {
			finish[choice.Index] = *choice.Finish
		}
	}
	for _, c := range whole.Choices {
		if want := c.Text + c.Message.Content; texts[c.Index] != want || finish[c.Index] != c.Finish {
			t.Errorf("%s: choice %d streams %q (%s), whole it is %q (%s)", what, c.Index, texts[c.Index], finish[c.Index], want, c.Finish)
		}
		if c.Message.Role != "" && roles[c.Index] != 1 {
			t.Errorf("%s: choice %d has %d roles", what, c.Index, roles[c.Index])
		}
	}
	if len(texts) != len(whole.Choices) {
		t.Errorf("%s: %d choices, want %d", what, len(texts), len(whole.Choices))
	}
}

// TestChoices: choice i of a prompt is the answer of Generator.Run for the seed plus i.
func TestChoices(t *testing.T) {
	s := newServer(t, Options{})
	prompts := []string{"The old man", "It was", "A"}
	got := decode[completion](t, do(t, s, "/v1/completions", `{"prompt":["The old man","It was","A"],"n":3,"max_tokens":15,"seed":40}`))
	if len(got.Choices) != 9 {
		t.Fatalf("%d choices", len(got.Choices))
	}
	tokens := 0
	for i, c := range got.Choices {
		sampling := generate.DefaultSampling
		sampling.Seed = 40 + uint64(i%3)
		want, err := s.models[0].Generator.Run(t.Context(), generate.Options{Prompt: prompts[i/3], MaxTokens: 15, Sampling: sampling})
		if err != nil {
			t.Fatal(err)
		}
		if c.Index != i || c.Text != want.Text {
			t.Errorf("choice %d: %q, want %q", i, c.Text, want.Text)
		}
		if tokens += len(want.IDs); i%3 == 0 {
			tokens += len(want.PromptIDs)
		}
	}
	if got.Usage.Total != tokens {
		t.Errorf("%+v, want %d tokens", got.Usage, tokens)
	}
}

// TestRandomSeed: an answer without a seed says which one it had, and can be repeated with it.
func TestRandomSeed(t *testing.T) {
	s := newServer(t, Options{})
	first := decode[completion](t, do(t, s, "/v1/completions", `{"prompt":"The","max_tokens":40}`))
	body, err := json.Marshal(map[string]any{"prompt": "The", "max_tokens": 40, "seed": first.Timings.Seed})
	if err != nil {
		t.Fatal(err)
	}
	again := decode[completion](t, do(t, s, "/v1/completions", string(body)))
	other := decode[completion](t, do(t, s, "/v1/completions", `{"prompt":"The","max_tokens":40}`))
	if first.Choices[0].Text != again.Choices[0].Text || first.Timings.Seed == other.Timings.Seed || first.Timings.Seed >= maxRandomSeed {
		t.Errorf("%+v, %+v, %+v", first, again, other)
	}
}

// TestOffsets: text_offset says where the tokens are in the text.
func TestOffsets(t *testing.T) {
	s := newServer(t, Options{})
	got := decode[struct {
		Choices []struct {
			Text     string
			Logprobs completionLogprobs
		}
	}](t, do(t, s, "/v1/completions", `{"prompt":"The old — man","max_tokens":8,"logprobs":0,"echo":true,"seed":1}`)).Choices[0]
	runes := []rune(got.Text)
	for i, token := range got.Logprobs.Tokens {
		rest := string(runes[got.Logprobs.Offsets[i]:])
		// the first token has a space that the text lacks
		if token == "<s>" || strings.HasPrefix(token, "bytes:") || strings.HasPrefix(token, "<0x") || i == 1 {
			continue
		}
		if !strings.HasPrefix(rest, token) {
			t.Errorf("token %d is %q, at its offset %d is %q", i, token, got.Logprobs.Offsets[i], rest)
		}
	}
}

// TestSpelling: tokens that are parts of characters are spelled as OpenAI spells them.
func TestSpelling(t *testing.T) {
	if got := spelling("\xe2\x80"); got != `bytes:\xe2\x80` {
		t.Errorf("%s", got)
	}
	// Of tokens with the same spelling the likeliest one counts, and 0 has a logarithm.
	got := top(&generate.Step{Token: "a", Logprob: -5, Top: []generate.Alternative{{Token: "a", Logprob: -1}, {Token: "b", Logprob: math.Inf(-1)}}})
	if len(got) != 2 || got["a"] != -1 || got["b"] != noLogprob {
		t.Errorf("%v", got)
	}
}
