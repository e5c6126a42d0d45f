package chat

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestHostile renders templates that would run forever, or fill the memory. Each ends with an error
// that says why, after bounded allocations.
func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("takes millions of steps, of the same Go code on every CPU")
	}
	for _, c := range []struct{ name, template, want string }{
		{"range", "{% for i in range(10**9) %}{% endfor %}", "the operator ** is not supported"},
		{"long range", "{% for i in range(1000000000) %}{% endfor %}", "a range has more than 10000 numbers"},
		{"loops", strings.Repeat("{% for i in range(10000) %}", 4) + strings.Repeat("{% endfor %}", 4), "moves more data"},
		{"steps", strings.Repeat("{% for i in range(99) %}", 2) + strings.Repeat("{% set x = 1 %}", 300) + strings.Repeat("{% endfor %}", 2), "more than 4000000 steps"},
		{"text of loops", strings.Repeat("{% for i in range(999) %}", 3) + strings.Repeat("x", 999) + strings.Repeat("{% endfor %}", 3), "moves more data"},
		{"macro", "{% macro m(x) %}{{ m(x + 1) }}{% endmacro %}{{ m(0) }}", "recursion"},
		{"two macros", "{% macro a() %}{{ b() }}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{{ a() }}{% endmacro %}{{ a() }}", "recursion"},
		{"text of macros", "{% macro m(n) %}" + strings.Repeat("x", 9999) + "{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(30) }}", "moves more data"},
		{"doubling", "{% set ns = namespace(x='boom') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "moves more data"},
		{"adding", "{% set ns = namespace(x='boom') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "moves more data"},
		{"adding lists", "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "moves more data"},
		{"lists in lists", "{% set ns = namespace(x=[1]) %}{% for i in range(31) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}", "moves more data"},
		{"deep", "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", "more than 32 deep"},
		{"cycle", "{% set a = namespace() %}{% set a.b = a %}{{ a }}", "more than 32 deep"},
		{"compared cycles", "{% set a = namespace() %}{% set b = namespace(c=a) %}{% set a.c = b %}{{ 'x' if a == b }}", "more than 32 deep"},
		{"cycle as a key", "{% set a = namespace() %}{% set a.b = a %}{% set x = {a: 1} %}", "more than 32 deep"},
		{"cycle as an item", "{% set a = namespace() %}{% set a.b = a %}{{ {'x': 1}[a] }}{{ {'x': 1}.get(a) }}", "more than 32 deep"},
		{"cycle in a refusal", "{% set a = namespace() %}{% set a.b = a %}{{ raise_exception(a) }}", "more than 32 deep"},
		{"cycle tested", "{% set a = namespace() %}{% set a.b = a %}{{ a is eq(a) }}", "more than 32 deep"},
		{"cycle as JSON", "{% set a = namespace() %}{% set a.b = a %}{{ a | tojson }}", "more than 32 deep"},
		{"product", "{{ 'x' * 1000000000 }}", "too large a factor"},
		{"product of lists", "{% set x = [1] * 4000 %}{% set y = x * 4000 %}", "is repeated"},
		{"products", "{% set x = ['x'] * 4000 * 4000 * 4000 %}", "two products"},
		{"products in brackets", "{% set x = (['x'] * 4000) * 4000 %}", "is repeated"},
		{"replace", "{{ ('x' * 4000).replace('x', 'y' * 4000).replace('y', 'z' * 4000) }}", "moves more data"},
		{"replace nothing", "{{ ('x' * 4000).replace('', 'y' * 4000).replace('', 'z' * 4000) }}", "moves more data"},
		{"replace filter", "{{ 'x' * 4000 | replace('x', 'y' * 4000) | replace('y', 'z' * 4000) }}", "too large a factor|is not supported|moves more data|is repeated|cannot"},
		{"join", "{{ range(9999) | join('x' * 4000) | list | join('y' * 4000) }}", "moves more data"},
		{"join method", "{{ ('x' * 4000).join(('y' * 4000) | list).join('zz' | list) | list | join('x' * 4000) }}", "moves more data"},
		{"indent", "{{ ('\n' * 4000) | indent(1000000) }}", "is not between 0 and"},
		{"split", "{% set ns = namespace(x='a ' * 4000) %}{% for i in range(9999) %}{% set y = ns.x.split(' ') %}{% endfor %}", "moves more data"},
		{"sort", "{% for i in range(9999) %}{% set x = range(9999) | sort %}{% endfor %}", "moves more data"},
		{"in", "{% set x = range(9999) %}{% for i in range(9999) %}{{ 'x' if i in x }}{% endfor %}", "moves more data"},
		{"slices", "{% set x = range(9999) %}{% for i in range(9999) %}{% set y = x[1:] %}{% endfor %}", "moves more data"},
		{"characters", "{% set x = 'x' * 4000 %}{% for i in range(9999) %}{% set y = x[i] %}{% endfor %}{% for i in range(9999) %}{% set y = x[i] %}{% endfor %}", "moves more data"},
		{"lists of characters", "{% for i in range(999) %}{% set y = ('x' * 4000) | list %}{% endfor %}", "moves more data"},
		{"set blocks", "{% set ns = namespace(x='x') %}{% for i in range(99) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}", "moves more data"},
		{"include", "\n{% include '/etc/passwd' %}", "line 2: the statement include is not supported"},
		{"import", "{% import 'x' as y %}", "the statement import is not supported"},
		{"from", "{% from 'x' import y %}", "the statement from is not supported"},
		{"extends", "{% extends 'x' %}", "the statement extends is not supported"},
		{"recursive", "{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}", "unexpected \"recursive\""},
		{"function", "{{ lipsum(1000000) }}", "unknown callable|unknown function"},
		{"brackets", "{{ " + strings.Repeat("(", 100000) + " }}", "nested more than"},
		{"signs", "{{ " + strings.Repeat("-", 100000) + "1 }}", "operators"},
		{"not", "{{ " + strings.Repeat("not ", 10000) + "1 }}", "operators"},
		{"blocks", strings.Repeat("{% if 1 %}", 10000), "recursion"},
		{"operators", "{{ 1" + strings.Repeat(" ~ 1", 10000) + " }}", "more than 500 operators"},
		{"long", strings.Repeat("x", maxTemplate+1), "at most"},
		{"no end", "{{ 1", "the template ends"},
		{"no end of a string", "{{ '", "a string has no end"},
		{"no end of a comment", "{# x", "a comment has no end"},
		{"character", "{{ 1 ? 2 }}", "unexpected character ?"},
		{"bracket", "{{ (1] }}", "unexpected"},
		{"statement", "{% nothing %}", "the statement nothing is not supported"},
		{"filters of a block", "{% filter trim | upper %}{% endfilter %}", "two filters"},
		{"filter", "{{ 1 | nothing }}", "nothing"},
		{"microseconds", "{{ strftime_now('%f') }}", "the code %f is not supported"},
		{"endfor", "{% endfor %}", "an endfor without a for"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := render(t, c.template)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatal("no error")
			}
			if !containsAny(err.Error(), c.want) {
				t.Errorf("%v; expected %s", err, c.want)
			}
			// Most of it is garbage: minijinja allocates some hundred bytes for a step.
			if n := after.TotalAlloc - before.TotalAlloc; n > 8<<30 {
				t.Errorf("%d MB were allocated", n>>20)
			}
		})
	}
}

func containsAny(s, alternatives string) bool {
	for a := range strings.SplitSeq(alternatives, "|") {
		if strings.Contains(s, a) {
			return true
		}
	}
	return false
}

// render compiles a template and renders a short conversation.
func render(t *testing.T, source string) error {
	tmpl, err := compile(source, "chat_template.jinja", nil, nil)
	if err != nil {
		return err
	}
	_, err = tmpl.Render(t.Context(), []Message{{Role: "user", Content: "Hello"}, {Role: "assistant", Content: "Hi"}}, true)
	return err
}

// TestLongConversation renders 4 MB in 2000 messages with a template that reads each of them often.
func TestLongConversation(t *testing.T) {
	if testing.Short() {
		t.Skip("4 MB, through the same Go code on every CPU")
	}
	source, err := Open(assets(map[string]string{"chat_template.jinja": `{% for m in messages %}{{ '<' ~ m.role ~ '>' ~ m.content | trim ~ '</>' }}
{%- if '<think>' in m.content and m.content.startswith('x') and m.content.split('<think>')[-1].strip() == 'x' %}!{% endif %}{% endfor %}`}))
	if err != nil {
		t.Fatal(err)
	}
	messages := make([]Message, 2000)
	for i := range messages {
		messages[i] = Message{Role: []string{"user", "assistant"}[i%2], Content: strings.Repeat("word ", 400)}
	}
	text, err := source.Render(t.Context(), messages, true)
	if err != nil || len(text) < 3_900_000 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// TestManyMessages renders as many messages as are taken, and refuses one more.
func TestManyMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("10000 messages, through the same Go code on every CPU")
	}
	tmpl, err := Open(assets(nil))
	if err != nil {
		t.Fatal(err)
	}
	messages := make([]Message, maxMessages+1)
	if _, err := tmpl.Render(t.Context(), messages[1:], true); err != nil {
		t.Error(err)
	}
	_, err = tmpl.Render(t.Context(), messages, true)
	if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Msg != "the conversation has 10001 messages, at most 10000 are taken" {
		t.Errorf("%v", err)
	}
}

// endingContext is cancelled after a number of looks at it.
type endingContext struct {
	context.Context
	left int
}

func (c *endingContext) Err() error {
	if c.left--; c.left >= 0 {
		return nil
	}
	return context.Canceled
}

// TestCancelled cancels a conversation in the middle: the template ends at its next value.
func TestCancelled(t *testing.T) {
	for _, source := range []string{
		"{% for i in range(10000) %}{{ i }}{% endfor %}",
		"{% for i in range(10000) %}{% for j in messages %}{% endfor %}{% endfor %}",
		"{% for m in messages * 200 %}{% set x = m.content | trim %}{% endfor %}",
	} {
		tmpl, err := compile(source, "chat_template.jinja", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx := &endingContext{t.Context(), 100}
		text, err := tmpl.Render(ctx, []Message{{Role: "user", Content: "x"}}, true)
		if text != "" || !errors.Is(err, context.Canceled) || ctx.left < -10 {
			t.Errorf("%s: %d bytes, %v, %d looks at the context after its end", source, len(text), err, -ctx.left)
		}
	}
}

// FuzzTemplate renders any template: it ends without a panic, soon.
func FuzzTemplate(f *testing.F) {
	for _, v := range []string{"alternating", "thinking", "dated", "words"} {
		f.Add(string(readTemplate(f, v+".jinja")), "user", "Hello {{ x }}")
	}
	f.Add("{% for a, b in messages[0].items() if a is not none %}{{ a ~ -b[::2] | join(sep='x') }}{% else %}{% endfor %}", "system", "x")
	f.Add("{% set a.b | trim %}{{ x is not defined and 'a' 'b' in [1, 2.5,] }}{% endset %}{% with a = {'b': [1]} %}{% endwith %}", "", "")
	f.Fuzz(func(t *testing.T, source, role, content string) {
		if len(source) > 4096 {
			return
		}
		tmpl, err := compile(source, "chat_template.jinja", map[string]string{"bos_token": "<s>"}, nil)
		if err != nil {
			return
		}
		start := time.Now()
		text, err := tmpl.Render(t.Context(), []Message{{Role: role, Content: content, Name: "n"}, {Role: "assistant", Content: "y"}}, true)
		var refused *RefusedError
		if err != nil && errors.As(err, &refused) && text != "" {
			t.Errorf("text with a refusal")
		}
		if utf8.ValidString(source) && utf8.ValidString(role) && utf8.ValidString(content) && strings.Contains(text, chargeFilter) && !strings.Contains(source+role+content, chargeFilter) {
			t.Errorf("names of the rewriting are in the text")
		}
		if d := time.Since(start); d > time.Minute {
			t.Errorf("took %v", d)
		}
	})
}
