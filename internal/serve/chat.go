package serve

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/lm/chat"
	"github.com/lowbit-go/gq/model/generate"
)

// chatRequest is the body of POST /v1/chat/completions.
type chatRequest struct {
	common
	messages            messages
	maxCompletionTokens *int
	logprobs            bool
	topLogprobs         *int
}

func parseChat(body []byte) (*chatRequest, error) {
	r := &chatRequest{common: newCommon()}
	o := r.object()
	o.fields["messages"] = &r.messages
	o.fields["max_completion_tokens"] = &r.maxCompletionTokens
	o.fields["logprobs"] = &r.logprobs
	o.fields["top_logprobs"] = &r.topLogprobs
	for name, neutral := range map[string][]string{
		"tools": {"[]"}, "tool_choice": {`"none"`, `"auto"`}, "parallel_tool_calls": {"true", "false"},
		"functions": {"[]"}, "function_call": {`"none"`, `"auto"`},
		"response_format": {`{"type":"text"}`}, "modalities": {`["text"]`}, "audio": nil,
		"prediction": nil, "reasoning_effort": {`"none"`}, "verbosity": nil, "web_search_options": nil,
	} {
		o.refused[name] = neutral
	}
	if err := o.read("", body); err != nil {
		return nil, err
	}
	if len(r.messages) == 0 {
		return nil, invalid("messages", "messages is missing or empty")
	}
	if a, b := r.maxTokens, r.maxCompletionTokens; a != nil && b != nil && *a != *b {
		return nil, invalid("max_tokens", "max_tokens %d and max_completion_tokens %d differ: give one of them", *a, *b)
	} else if b != nil {
		r.maxTokens = b
	}
	if n := r.maxTokens; n != nil && *n < 1 {
		return nil, invalid("max_tokens", "max_tokens %d is not 1 or more", *n)
	}
	if n := r.topLogprobs; n != nil && (*n < 0 || *n > generate.MaxTopLogprobs) {
		return nil, invalid("top_logprobs", "top_logprobs %d is not from 0 to %d", *n, generate.MaxTopLogprobs)
	} else if n != nil && !r.logprobs {
		return nil, invalid("top_logprobs", "top_logprobs needs logprobs: set it to true")
	}
	return r, nil
}

type messages []chat.Message

func (m *messages) decode(at string, raw json.RawMessage) error {
	list, err := elements(at, raw)
	if err != nil {
		return err
	}
	for i, raw := range list {
		var one message
		if err := one.decode(element(at, i), raw); err != nil {
			return err
		}
		*m = append(*m, chat.Message{Role: one.role, Content: string(one.content), Name: one.name})
	}
	return nil
}

type message struct {
	role, name string
	content    content
}

// roles maps the roles of messages to the roles of chat templates. Templates do not know
// developers.
var roles = map[string]string{"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

func (m *message) decode(at string, raw json.RawMessage) error {
	// An assistant's message may be copied from an earlier answer.
	err := object{
		fields:  map[string]any{"role": &m.role, "content": &m.content, "name": &m.name},
		ignored: []string{"annotations"},
		// lm-evaluation-harness gives each message the type of its content.
		refused: map[string][]string{"tool_calls": {"[]"}, "tool_call_id": nil, "function_call": nil, "audio": nil, "refusal": {`""`}, "type": {`"text"`}},
	}.read(at, raw)
	if err != nil {
		return err
	}
	role, ok := roles[m.role]
	switch {
	case m.role == "":
		return invalid(at+".role", "%s.role is missing", at)
	case !ok:
		return &apiError{status: http.StatusBadRequest, param: at + ".role", code: codeUnmet, message: at + ".role " + clip(m.role) + " is not supported: there are system, developer, user and assistant"}
	case m.content == nil:
		return invalid(at+".content", "%s.content is missing", at)
	}
	m.role = role
	return nil
}

// content is a string, or a list of parts of type text.
type content []byte

func (c *content) decode(at string, raw json.RawMessage) error {
	var whole string
	if json.Unmarshal(raw, &whole) == nil {
		*c = content(whole)
		return nil
	}
	if raw[0] != '[' {
		return expected(at, "a string or a list of parts", raw)
	}
	parts, err := elements(at, raw)
	if err != nil {
		return err
	}
	*c = content{}
	for i, raw := range parts {
		at := element(at, i)
		var kind string
		var text *string
		err := object{
			fields:  map[string]any{"type": &kind, "text": &text},
			refused: map[string][]string{"image_url": nil, "input_audio": nil, "file": nil, "refusal": nil},
		}.read(at, raw)
		switch {
		case err != nil:
			return err
		case kind != "text":
			return &apiError{status: http.StatusBadRequest, param: at + ".type", code: codeUnmet, message: at + ".type " + clip(kind) + " is not supported: parts must have type text"}
		case text == nil:
			return invalid(at+".text", "%s.text is missing", at)
		}
		*c = append(*c, *text...)
	}
	return nil
}

func (s *Server) chatCompletions(x *exchange, r *http.Request) error {
	body, err := s.readBody(x, r)
	if err != nil {
		return err
	}
	q, err := parseChat(body)
	if err != nil {
		return err
	}
	j, err := s.newJob(&q.common, chatFormat{logprobs: q.logprobs})
	if err != nil {
		return err
	}
	j.prompts = []prompt{{messages: q.messages}}
	j.options.Stop = slices.Concat(j.options.Stop, j.model.Template.Stops())
	if q.logprobs {
		if j.options.Logprobs = true; q.topLogprobs != nil {
			j.options.TopLogprobs = *q.topLogprobs
		}
	}
	return s.answer(x, r, j)
}

// chatFormat writes chat completions.
type chatFormat struct {
	logprobs bool
}

type chatMessage struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
	Refusal *string `json:"refusal"`
}

type chatDelta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type chatChoice struct {
	Index    int           `json:"index"`
	Message  *chatMessage  `json:"message,omitempty"`
	Delta    *chatDelta    `json:"delta,omitempty"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
}

type chatLogprobs struct {
	Content []chatToken `json:"content"`
	Refusal *string     `json:"refusal"`
}

type chatToken struct {
	Token   string       `json:"token"`
	Logprob float64      `json:"logprob"`
	Bytes   []int        `json:"bytes"`
	Top     *[]chatToken `json:"top_logprobs,omitempty"`
}

func (chatFormat) prefix() string { return "chatcmpl-" }
func (chatFormat) object(chunk bool) string {
	if chunk {
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

func (f chatFormat) whole(c *choice) any {
	text := c.text.String()
	return chatChoice{Index: c.index, Message: &chatMessage{Role: "assistant", Content: &text}, Logprobs: f.tokens(c.steps), Finish: c.finish()}
}

func (chatFormat) first(c *choice) any {
	empty := ""
	return chatChoice{Index: c.index, Delta: &chatDelta{Role: "assistant", Content: &empty}}
}

func (f chatFormat) part(c *choice, text string, steps []generate.Step) any {
	return chatChoice{Index: c.index, Delta: &chatDelta{Content: &text}, Logprobs: f.tokens(steps)}
}

func (f chatFormat) last(c *choice, steps []generate.Step) any {
	return chatChoice{Index: c.index, Delta: &chatDelta{}, Logprobs: f.tokens(steps), Finish: c.finish()}
}

// tokens formats logprobs; nil without logprobs in the request.
func (f chatFormat) tokens(steps []generate.Step) *chatLogprobs {
	if !f.logprobs {
		return nil
	}
	p := &chatLogprobs{Content: []chatToken{}}
	for i := range steps {
		t := newChatToken(steps[i].Token, steps[i].Logprob)
		top := []chatToken{}
		for _, a := range steps[i].Top {
			top = append(top, newChatToken(a.Token, a.Logprob))
		}
		t.Top = &top
		p.Content = append(p.Content, t)
	}
	return p
}

func newChatToken(token string, logprob float64) chatToken {
	t := chatToken{Token: strings.ToValidUTF8(token, "\uFFFD"), Logprob: finite(logprob), Bytes: []int{}}
	for _, b := range []byte(token) {
		t.Bytes = append(t.Bytes, int(b))
	}
	return t
}
