package serve

import (
	"net/http"
	"strings"
	"testing"
)

type failure struct {
	Error struct {
		Message, Type string
		Param, Code   *string
	}
}

// checkFailure compares an error in OpenAI's shape.
func checkFailure(t *testing.T, what string, status int, got failure, wantStatus int, param, code, message string) {
	t.Helper()
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	e := got.Error
	if status != wantStatus || text(e.Param) != param || text(e.Code) != code || !strings.Contains(e.Message, message) || e.Type == "" {
		t.Errorf("%s: status %d, param %q, code %q, type %q, message %q; want %d, %q, %q, %q", what, status, text(e.Param), text(e.Code), e.Type, e.Message, wantStatus, param, code, message)
	}
}

// TestFields refuses requests by the names of their fields.
func TestFields(t *testing.T) {
	s := newServer(t, Options{Limits: Limits{Prompt: 4000, Choices: 8, Body: 100_000}})
	const chat, completions = "/v1/chat/completions", "/v1/completions"
	hi := `"messages":[{"role":"user","content":"Hi"}],"max_tokens":1`
	for _, c := range []struct {
		path, body  string
		param, code string
		message     string
	}{
		{chat, ``, "", codeValue, "the body is not JSON: expected a value in the body, found the end"},
		{chat, `[]`, "", codeValue, "the body: expected an object, found []"},
		{chat, `null`, "", codeValue, "expected an object"},
		{chat, `{`, "", codeValue, "the body is not JSON: expected"},
		{chat, `{} {}`, "", codeValue, "the body is not JSON: the body is followed by '{' at byte 3"},
		{chat, `{` + hi + `,"temperature":NaN}`, "", codeValue, "found 'N' at byte"},
		{chat, strings.Repeat("[", 50_000), "", codeValue, "nested more than 100 deep"},
		{chat, `{"messages":[{"role":"user","content":"\ud800"}]}`, "", codeValue, "stands for no character"},
		{chat, `{` + hi + `,"max_tokens":2}`, "max_tokens", codeValue, "the field max_tokens is there twice"},
		{chat, `{` + hi + `,"n":1,"\u006e":1}`, "n", codeValue, "the field n is there twice"},
		{chat, `{"messages":[{"role":"user","content":"a","content":"b"}]}`, "messages[0].content", codeValue, "the field messages[0].content is there twice"},
		{chat, "{\"model\":\"\xff\"}", "", codeValue, "the body is not UTF-8"},
		{chat, `{}`, "messages", codeValue, "messages is missing or empty"},
		{chat, `{"messages":[]}`, "messages", codeValue, "messages is missing or empty"},
		{chat, `{"messages":"Hi"}`, "messages", codeValue, "messages: expected a list"},
		{chat, `{"messages":[` + strings.Repeat("0,", maxElements) + `0]}`, "messages", codeValue, "messages has 16385 elements, at most 16384 are allowed"},
		{completions, `{"prompt":[` + strings.Repeat(`"",`, maxElements) + `""]}`, "prompt", codeValue, "at most 16384 are allowed"},
		{chat, `{"messages":["Hi"]}`, "messages[0]", codeValue, "messages[0]: expected an object"},
		{chat, `{"messages":[{"content":"Hi"}]}`, "messages[0].role", codeValue, "messages[0].role is missing"},
		{chat, `{"messages":[{"role":"user"}]}`, "messages[0].content", codeValue, "is missing"},
		{chat, `{"messages":[{"role":"tool","content":"x"}]}`, "messages[0].role", codeUnmet, "tool is not supported"},
		{chat, `{"messages":[{"role":"user","content":7}]}`, "messages[0].content", codeValue, "expected a string or a list of parts, found 7"},
		{chat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}`, "messages[0].content[0].image_url", codeUnmet, "is not supported"},
		{chat, `{"messages":[{"role":"user","content":[{"type":"video"}]}]}`, "messages[0].content[0].type", codeUnmet, "video is not supported"},
		{chat, `{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, "messages[0].content[0].text", codeValue, "is missing"},
		{chat, `{"messages":[{"role":"assistant","content":"x","tool_calls":[{}]}]}`, "messages[0].tool_calls", codeUnmet, "is not supported"},
		{chat, `{` + hi + `,"tools":[{"type":"function"}]}`, "tools", codeUnmet, "tools is not supported by this server: leave it out or set it to []"},
		{chat, `{` + hi + `,"tool_choice":"required"}`, "tool_choice", codeUnmet, "is not supported"},
		{chat, `{` + hi + `,"functions":[{}]}`, "functions", codeUnmet, "is not supported"},
		{chat, `{` + hi + `,"response_format":{"type":"json_object"}}`, "response_format", codeUnmet, "is not supported"},
		{chat, `{` + hi + `,"response_format":{"type":"json_schema","json_schema":{}}}`, "response_format", codeUnmet, "is not supported"},
		{chat, `{` + hi + `,"modalities":["text","audio"]}`, "modalities", codeUnmet, "is not supported"},
		{chat, `{` + hi + `,"audio":{"voice":"x"}}`, "audio", codeUnmet, "is not supported"},
		{chat, `{` + hi + `,"logit_bias":{"5":1}}`, "logit_bias", codeUnmet, "is not supported"},
		{chat, `{` + hi + `,"service_tier":"priority"}`, "service_tier", codeUnmet, "is not supported"},
		{chat, `{` + hi + `,"temperatur":1}`, "temperatur", codeUnknown, `did you mean "temperature"?`},
		{chat, `{` + hi + `,"Temperature":1}`, "Temperature", codeUnknown, `did you mean "temperature"?`},
		{chat, `{` + hi + `,"temperature":"hot"}`, "temperature", codeValue, `temperature: expected a number, found "hot"`},
		{chat, `{` + hi + `,"temperature":-1}`, "temperature", codeValue, "temperature -1 is not 0 or more"},
		{chat, `{` + hi + `,"temperature":1e999}`, "temperature", codeValue, "expected a number"},
		{chat, `{` + hi + `,"top_p":0}`, "top_p", codeValue, "top_p 0 is not above 0"},
		{chat, `{` + hi + `,"top_p":1.1}`, "top_p", codeValue, "from 0 to 1"},
		{chat, `{` + hi + `,"min_p":2}`, "min_p", codeValue, "from 0 to 1"},
		{chat, `{` + hi + `,"top_k":-1}`, "top_k", codeValue, "0 or more"},
		{chat, `{` + hi + `,"top_k":1.5}`, "top_k", codeValue, "expected an integer"},
		{chat, `{` + hi + `,"repetition_penalty":0}`, "repetition_penalty", codeValue, "repetition_penalty 0 is not above 0"},
		{chat, `{` + hi + `,"presence_penalty":3}`, "presence_penalty", codeValue, "from -2 to 2"},
		{chat, `{` + hi + `,"frequency_penalty":-3}`, "frequency_penalty", codeValue, "from -2 to 2"},
		{chat, `{` + hi + `,"seed":-1}`, "seed", codeValue, "expected an integer from 0 to 2^64-1, found -1"},
		{chat, `{` + hi + `,"n":0}`, "n", codeValue, "n 0 is not from 1 to 8"},
		{chat, `{` + hi + `,"n":9}`, "n", codeValue, "n 9 is not from 1 to 8"},
		{chat, `{` + hi + `,"max_completion_tokens":2}`, "max_tokens", codeValue, "max_tokens 1 and max_completion_tokens 2 differ"},
		{chat, `{"messages":[{"role":"user","content":"Hi"}],"max_tokens":0}`, "max_tokens", codeValue, "max_tokens 0 is not 1 or more"},
		{chat, `{` + hi + `,"stop":""}`, "stop", codeValue, "a stop string has 0 bytes"},
		{chat, `{` + hi + `,"stop":[1]}`, "stop", codeValue, "expected a string or a list of strings"},
		{chat, `{` + hi + `,"stop":["` + strings.Repeat(`x","`, maxStops) + `x"]}`, "stop", codeValue, "stop has 33 strings"},
		{chat, `{` + hi + `,"logprobs":2}`, "logprobs", codeValue, "expected true or false"},
		{chat, `{` + hi + `,"top_logprobs":2}`, "top_logprobs", codeValue, "needs logprobs"},
		{chat, `{` + hi + `,"logprobs":true,"top_logprobs":21}`, "top_logprobs", codeValue, "from 0 to 20"},
		{chat, `{` + hi + `,"stream_options":{"include_usage":true}}`, "stream_options", codeValue, "needs stream"},
		{chat, `{` + hi + `,"stream":true,"stream_options":{"usage":true}}`, "stream_options.usage", codeUnknown, `did you mean "include_usage"?`},
		{chat, `{"messages":[{"role":"user","content":"` + strings.Repeat("x ", 2000) + `"}]}`, "", codeContext, "prompt 0 has 40"},
		{chat, `{"messages":[{"role":"user","content":"` + strings.Repeat("x ", 1000) + `"}]}`, "", codeContext, "tokens, the context has room for 256"},

		{completions, `{}`, "prompt", codeValue, "prompt is missing or empty"},
		{completions, `{"prompt":[]}`, "prompt", codeValue, "prompt is missing or empty"},
		{completions, `{"prompt":{}}`, "prompt", codeValue, "expected a string, a list of strings"},
		{completions, `{"prompt":[[]]}`, "prompt[0]", codeValue, "expected a string or token ids"},
		{completions, `{"prompt":[null]}`, "prompt[0]", codeValue, "expected a string or token ids"},
		{completions, `{"prompt":[1,null]}`, "prompt[0]", codeValue, "expected a string or token ids"},
		{completions, `{"prompt":["x",[1]]}`, "prompt[1]", codeValue, "strings and token ids are mixed"},
		{completions, `{"prompt":["x",1]}`, "prompt[1]", codeValue, "expected a string or token ids"},
		{completions, `{"prompt":[1,2.5]}`, "prompt[0]", codeValue, "expected a string or token ids"},
		{completions, `{"prompt":[1,99999]}`, "prompt", codeValue, "token 99999 of prompt 0 is not in the model's vocabulary"},
		{completions, `{"prompt":[-1]}`, "prompt", codeValue, "token -1 of prompt 0 is not in the model's vocabulary"},
		{completions, `{"prompt":["a","b","c"],"n":3}`, "prompt", codeValue, "3 prompts with 3 answers each are 9 answers, the limit of this server is 8"},
		{completions, `{"prompt":"x","suffix":"y"}`, "suffix", codeUnmet, "is not supported"},
		{completions, `{"prompt":"x","best_of":2}`, "best_of", codeUnmet, "unless it equals n"},
		{completions, `{"prompt":"x","n":2,"best_of":1}`, "best_of", codeUnmet, "unless it equals n"},
		{completions, `{"prompt":"x","logprobs":21}`, "logprobs", codeValue, "from 0 to 20"},
		{completions, `{"prompt":"x","logprobs":true}`, "logprobs", codeValue, "expected an integer, found true"},
		{completions, `{"prompt":"x","max_tokens":0}`, "max_tokens", codeValue, "0 needs echo"},
		{completions, `{"prompt":"x","max_tokens":-1}`, "max_tokens", codeValue, "max_tokens -1"},
		{completions, `{"prompt":"x","messages":[]}`, "messages", codeUnknown, "unknown field messages"},
		{completions, `{"prompt":"x","tools":[]}`, "tools", codeUnknown, "unknown field tools"},
	} {
		body := c.body
		if body == "" {
			body = " " // a POST
		}
		w := do(t, s, c.path, body)
		checkFailure(t, c.path+" "+clip(c.body), w.Code, decode[failure](t, w), http.StatusBadRequest, c.param, c.code, c.message)
	}
}

// TestAccepted accepts fields that ask for nothing, and fields that this server knowingly ignores.
func TestAccepted(t *testing.T) {
	s := newServer(t, Options{})
	for _, c := range []struct{ path, body string }{
		{"/v1/chat/completions", `{"messages":[{"role":"developer","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"H"},{"type":"text","text":"i"}],"name":"Ann"},
			{"role":"assistant","content":"Hello","refusal":null,"annotations":[],"tool_calls":null},{"role":"user","content":"Bye"}],
			"model":"books","max_completion_tokens":2,"max_tokens":2,"user":"ann","metadata":{"a":"b"},"store":true,"safety_identifier":"x","tools":[],"tool_choice":"auto","functions":null,
			"response_format":{ "type": "text" },"modalities":["text"],"logit_bias":{},"service_tier":"auto","stop":null,"n":1,"temperature":1,"top_p":1,"min_p":0,"top_k":0,
			"repetition_penalty":1.1,"presence_penalty":-0.5,"frequency_penalty":0.5,"seed":18446744073709551615,"ignore_eos":true,"stream":false,"parallel_tool_calls":true,"prompt_cache_key":"k"}`},
		{"/v1/completions", `{"model":"books","prompt":"x","max_tokens":2,"best_of":1,"suffix":null,"stop":[],"echo":false,"logprobs":null,"user":"ann"}`},
		{"/v1/completions", `{"prompt":["x","y"],"n":2,"best_of":2,"max_tokens":1}`},
		{"/v1/completions", `{"prompt":"","max_tokens":1}`}, // there is a BOS
		{"/v1/completions", `{"prompt":"x","max_tokens":9223372036854775807}`},
	} {
		if w := do(t, s, c.path, c.body); w.Code != http.StatusOK {
			t.Errorf("%s %s: %d %s", c.path, c.body, w.Code, w.Body)
		}
	}
}

// TestRoutes: unknown paths, methods, content types and models.
func TestRoutes(t *testing.T) {
	s := newServer(t, Options{})
	for _, c := range []struct {
		method, path, kind string
		status             int
		param, code        string
		message            string
	}{
		{"GET", "/v1/embeddings", "", 404, "", codeURL, "there is nothing at /v1/embeddings: this server has /, /health,"},
		{"GET", "/v1/chat/completions", "", 405, "", codeMethod, "/v1/chat/completions does not take GET: use POST"},
		{"DELETE", "/v1/models", "", 405, "", codeMethod, "use GET"},
		{"POST", "/v1/completions", "application/x-www-form-urlencoded", 415, "", codeType, "Content-Type: application/json"},
		{"POST", "/v1/completions", "", 415, "", codeType, "Content-Type: application/json"},
		{"GET", "/v1/models/", "", 404, "", codeURL, "there is nothing at /v1/models/"},
		{"GET", "/v1/models/..", "", 404, "model", codeModel, "there is no model .."},
		{"GET", "//v1/models", "", 404, "", codeURL, "there is nothing at //v1/models"},
		{"POST", "/v1/./completions", "application/json", 404, "", codeURL, "there is nothing at /v1/./completions"},
		{"GET", "/v1/models/gpt-4", "", 404, "model", codeModel, "there is no model gpt-4: this server has books"},
	} {
		w := exchangeOf(s, c.method, c.path, c.kind)
		checkFailure(t, c.method+" "+c.path, w.Code, decode[failure](t, w), c.status, c.param, c.code, c.message)
	}
	if w := do(t, s, "/v1/models", ""); w.Code != 200 || decode[struct{ Data []modelEntry }](t, w).Data[0].ID != "books" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := do(t, s, "/v1/models/books", ""); w.Code != 200 || decode[modelEntry](t, w).GQ.Context != 256 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := do(t, s, "/v1/completions", `{"model":"other","prompt":"x"}`); w.Code != 404 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := do(t, s, "/health", ""); w.Code != 200 || w.Body.String() != "{\"status\":\"ok\"}\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := exchangeOf(s, "OPTIONS", "/v1/models", ""); w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("other origins are allowed: %v", w.Header())
	}
}
