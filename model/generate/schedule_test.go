package generate

import (
	"slices"
	"testing"
)

// TestPlan shows who brings how many tokens to a pass.
func TestPlan(t *testing.T) {
	g := open(t, books, 1)
	const decodes = -1
	for _, c := range []struct {
		prompts []int // tokens that are left; decodes: none
		short   bool  // the pass before was for short prompts
		echo    bool
		want    []int // tokens in the pass, in order of requests
	}{
		{[]int{5}, false, false, []int{5}},
		{[]int{1000}, false, false, []int{prefillAlone}},
		{[]int{decodes, decodes}, false, false, []int{1, 1}},
		{[]int{decodes, 40}, false, false, []int{0, 40}},
		{[]int{decodes, 40}, true, false, []int{1, 40}},
		{[]int{decodes, 1000}, false, false, []int{1, prefillMixed}},
		{[]int{decodes, 1000, 20, 30}, false, false, []int{0, 0, 20, 30}},
		{[]int{decodes, 1000, 20}, true, false, []int{1, prefillMixed - 20, 20}},
		{[]int{1000, 20, 1000, decodes}, true, false, []int{(prefillMixed - 20) / 2, 20, (prefillMixed - 20) / 2, 1}},
		{[]int{1000, 900}, false, false, []int{prefillAlone / 2, prefillAlone / 2}},
		{[]int{1000, 900}, false, true, []int{echoStep / 2, echoStep / 2}},
		{[]int{1000, 10, 900}, true, true, []int{(echoStep - 10) / 2, 10, (echoStep - 10) / 2}},
		{[]int{decodes, 20}, false, true, []int{0, 20}},
		{[]int{decodes, 1000, 900}, false, true, []int{1, prefillMixed / 2, prefillMixed / 2}},
	} {
		e, err := g.newEngine(EngineOptions{Parallel: len(c.prompts), Context: 2000})
		if err != nil {
			t.Fatal(err)
		}
		e.short = c.short
		for i, n := range c.prompts {
			q := newRequest(t.Context(), &answer{g: g, o: Options{Context: 2000, EchoLogprobs: c.echo}, ids: make([]int32, max(n, 1))})
			for j := range q.ids {
				q.ids[j] = int32(i) // nothing in common
			}
			q.slot = i
			if n == decodes {
				q.at, q.started = 1, true
			}
			e.running = append(e.running, q)
		}
		e.plan()
		got := make([]int, len(c.prompts))
		for i, q := range e.planned {
			got[slices.Index(e.running, q)] += len(e.chunks[i].Tokens)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestReady shows which prompts wait for an earlier request that computes their beginning.
func TestReady(t *testing.T) {
	g := open(t, books, 1)
	for _, c := range []struct {
		name   string
		common int // tokens that the two prompts begin with
		at     int // tokens that the earlier request has computed
		scope  string
		want   bool
	}{
		{"nothing in common", 0, 0, "", true},
		{"little in common", worthSharing - 1, 0, "", true},
		{"not begun", worthSharing, 0, "", false},
		{"within the prefix", 100, 99, "", false},
		{"within a prefix of another scope", 100, 99, "another", true},
		// The engine's batch holds no page of it, as after the reuse of a window's pages.
		{"behind the prefix", 100, 100, "", true},
		{"far behind the prefix", 100, 200, "", true},
	} {
		e, err := g.newEngine(EngineOptions{Parallel: 2, Context: 250})
		if err != nil {
			t.Fatal(err)
		}
		prompt := func(end int32) []int32 {
			ids := make([]int32, 240)
			for i := c.common; i < len(ids); i++ {
				ids[i] = end
			}
			return ids
		}
		add := func(ids []int32) *request {
			q := newRequest(t.Context(), &answer{g: g, o: Options{Context: 250}, ids: ids})
			q.slot = len(e.running)
			e.running = append(e.running, q)
			return q
		}
		earlier, later := add(prompt(1)), add(prompt(2))
		earlier.started, earlier.at = true, c.at
		later.o.Scope = c.scope
		if got := e.ready(later); got != c.want || later.started != c.want {
			t.Errorf("%s: ready %v, begun %v, expected %v", c.name, got, later.started, c.want)
		}
	}
}
