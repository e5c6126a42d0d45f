package choice

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestReadLMEval compares questions with the prompts and endings of lm-evaluation-harness at commit
// 4e7e0d47: process_docs of HellaSwag, and the templates of ARC and MMLU rendered by jinja2.
func TestReadLMEval(t *testing.T) {
	b, err := os.ReadFile("testdata/lmeval.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Line, Prompt string
		Endings      []string
		Answer       int
	}
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	forms := map[Form]int{}
	for _, v := range vectors {
		list, form, err := Read([]byte(v.Line), 0)
		if err != nil {
			t.Fatalf("%s: %v", v.Line, err)
		}
		forms[form]++
		want := []Question{{Prompt: v.Prompt, Endings: v.Endings, Delimiter: " ", Answer: v.Answer, Line: 1}}
		if !reflect.DeepEqual(list, want) {
			t.Errorf("%s:\n%+v, want\n%+v", v.Line, list, want)
		}
	}
	if want := (map[Form]int{HellaSwag: 2, ARC: 2, MMLU: 1}); !reflect.DeepEqual(forms, want) {
		t.Errorf("forms %v, want %v", forms, want)
	}
}

func TestRead(t *testing.T) {
	const file = "\n{\"prompt\": \"a\", \"endings\": [\"b\", \"c\"], \"answer\": 1, \"id\": 7}\r\n \n" +
		`{"prompt": "", "endings": ["d", "e", "f"], "answer": 0, "delimiter": ""}`
	want := []Question{
		{Prompt: "a", Endings: []string{"b", "c"}, Delimiter: " ", Answer: 1, Line: 2},
		{Endings: []string{"d", "e", "f"}, Answer: 0, Line: 4},
	}
	got, form, err := Read([]byte(file), 0)
	if err != nil || form != Plain || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v (%s, %v), want %+v", got, form, err, want)
	}
	if got, _, err := Read([]byte(file+"\nnonsense"), 1); err != nil || !reflect.DeepEqual(got, want[:1]) {
		t.Errorf("the first question: %+v (%v)", got, err)
	}
}

func TestReadErrors(t *testing.T) {
	const good = `{"prompt": "a", "endings": ["b", "c"], "answer": 1}` + "\n"
	for _, c := range []struct{ line, want string }{
		{`{"prompt": "a", "endings": ["b", "c"]}`, "line 2: has the keys of no known form: "},
		{`{"prompt": "a", "endings": ["b", "c"], "answer": null}`, "line 2: has the keys of no known form: "},
		{`{"prompt": "a", "endings": ["b", "c"], "answer": 2}`, "line 2: the answer is 2, of 2 endings: the index of an ending, from 0, is expected"},
		{`{"prompt": "a", "endings": ["b", "c"], "answer": -1}`, "line 2: the answer is -1, of 2 endings"},
		{`{"prompt": "a", "endings": ["b"], "answer": 0}`, "line 2: has 1 endings: 2 to 256 are expected"},
		{`{"prompt": "a", "endings": [` + strings.Repeat(`"b",`, 256) + `"c"], "answer": 0}`, "line 2: has 257 endings"},
		{`{"prompt": "a", "endings": "b", "answer": 0}`, "line 2: a question of the form prompt: json: cannot unmarshal string"},
		{`{"prompt": 5, "endings": ["b", "c"], "answer": 0}`, "line 2: a question of the form prompt: "},
		{`[{"prompt": "a"}]`, "line 2: is a JSON list: one JSON object a line is expected"},
		{`{"prompt": "a"`, "line 2: is not a JSON object: "},
		{"{\"prompt\": \"\xff\"}", "line 2: is not UTF-8"},
		{`{"question": "a", "choices": {"text": ["b", "c"], "label": ["A", "B"]}, "answerKey": "A"}`, "line 2: a question of the form arc among questions of the form prompt"},
		{`{"question": "a", "choices": {"text": ["b", "c"], "label": ["A", "B"]}, "answerKey": "C"}`, `line 2: a question of the form arc: the answer "C" is none of the labels ["A" "B"]`},
		{`{"question": "a", "choices": {"text": ["b", "c"], "label": ["A"]}, "answerKey": "A"}`, "line 2: a question of the form arc: 2 choices have 1 labels"},
		{`{"question": "a", "subject": "s", "choices": ["b", "c"], "answer": 1}`, "line 2: a question of the form mmlu: 2 choices: 4 are expected"},
		{`{"activity_label": "a", "ctx_a": "a", "ctx_b": "b", "endings": ["b", "c"], "label": ""}`, `line 2: a question of the form hellaswag: the label is "": an index of an ending is expected (the test set has none`},
	} {
		_, _, err := Read([]byte(good+c.line), 0)
		var le *LineError
		if !errors.As(err, &le) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%.60s: error %v, want %q", c.line, err, c.want)
		}
	}
	for _, empty := range []string{"", " \n\n"} {
		if _, _, err := Read([]byte(empty), 0); !errors.Is(err, ErrNoQuestions) {
			t.Errorf("%q: error %v", empty, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	b, err := os.ReadFile("testdata/lmeval.json")
	if err != nil {
		f.Fatal(err)
	}
	var vectors []struct{ Line string }
	if err := json.Unmarshal(b, &vectors); err != nil {
		f.Fatal(err)
	}
	for _, v := range vectors {
		f.Add([]byte(v.Line + "\n" + v.Line))
	}
	f.Add([]byte(`{"prompt": "a", "endings": ["b", "c"], "answer": 1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, form, err := Read(b, 0)
		if err != nil {
			return
		}
		for _, q := range list {
			if form == "" || len(q.Endings) < 2 || q.Answer < 0 || q.Answer >= len(q.Endings) || q.Line < 1 {
				t.Fatalf("%+v (%s)", q, form)
			}
		}
	})
}
