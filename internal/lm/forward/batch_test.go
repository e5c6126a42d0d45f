package forward

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// TestBatch runs many sequences of common and different prefixes in random schedules, and compares
// all logits with the logits of sessions.
func TestBatch(t *testing.T) {
	for i, c := range torchCases(t) {
		if testing.Short() && runtime.GOARCH == "arm64" && i%16 != 0 {
			continue // emulated; TestGoldenLogits and TestTorch have the bits
		}
		t.Run(filepath.Base(c.dir), func(t *testing.T) {
			threads := 3
			if i%2 != 0 && !testing.Short() {
				threads = 1 // like half of the cases of TestBatchOfGQF
			}
			CheckBatch(t, openCase(t, c.dir, Options{Threads: threads, Packed: i%4 != 0}), uint64(threads))
		})
	}
	t.Run("books", func(t *testing.T) {
		testshared.SlowEmulated(t, "TestGoldenLogits and TestTorch have the bits")
		CheckBatch(t, openCase(t, filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16"), Options{Threads: 2}), 7)
	})
}

// batchCase is a sequence of a schedule.
type batchCase struct {
	tokens []int32
	prompt int // length of the prompt
	scope  string
	want   []float32 // logits after each token
	at     int       // tokens that the batch has
}

// CheckBatch runs a random schedule.
func CheckBatch(t *testing.T, m *Model, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	const slots, context = 3, 230 // several pages
	sequences := 14
	if testing.Short() && !m.config.HasStates() { // which share whole pages only
		sequences = 7
	}
	vocab := m.VocabSize()
	base := someTokens(context, vocab)
	var cases []*batchCase
	for range sequences {
		// A prefix of the base, and then other tokens.
		n := 1 + rng.IntN(context-1)
		tokens := slices.Clone(base[:n])
		for i := rng.IntN(n + 1); i < n; i++ {
			tokens[i] = rng.Int32N(int32(vocab))
		}
		if rng.IntN(3) == 0 {
			tokens = slices.Clone(base[:n])
		}
		cases = append(cases, &batchCase{tokens: tokens, prompt: 1 + rng.IntN(n), scope: strings.Repeat("x", rng.IntN(3)/2), want: logitsOf(t, m, tokens, n)})
	}
	b := m.NewBatch(slots, context)
	open := make([]*batchCase, slots)
	shared := 0
	for len(cases) > 0 || slices.ContainsFunc(open, func(c *batchCase) bool { return c != nil }) {
		var chunks []Chunk
		var want []float32
		rows := 0
		for _, slot := range rng.Perm(slots) {
			if open[slot] == nil && len(cases) > 0 && rng.IntN(3) > 0 {
				open[slot], cases = cases[0], cases[1:]
				open[slot].at = b.Begin(slot, len(open[slot].tokens), open[slot].tokens[:open[slot].prompt], open[slot].scope)
				shared += open[slot].at
			}
			c := open[slot]
			if c == nil || rng.IntN(4) == 0 {
				continue
			}
			n := 1
			if c.at < c.prompt {
				n = min(1+rng.IntN(100), c.prompt-c.at, b.MaxRows()-rows)
			}
			if n == 0 {
				continue
			}
			k := rng.IntN(n + 1)
			chunks = append(chunks, Chunk{slot, c.tokens[c.at : c.at+n], k})
			c.at, rows = c.at+n, rows+n
			want = append(want, c.want[(c.at-k)*vocab:c.at*vocab]...)
		}
		if len(chunks) == 0 {
			continue
		}
		got := make([]float32, len(want))
		if err := b.Forward(chunks, got); err != nil {
			t.Fatal(err)
		}
		sameBits(t, fmt.Sprint(chunks), got, want)
		for slot, c := range open {
			if c != nil && (c.at == len(c.tokens) || rng.IntN(20) == 0) { // some end early
				if b.Len(slot) != c.at {
					t.Fatalf("%d tokens, want %d", b.Len(slot), c.at)
				}
				b.End(slot)
				open[slot] = nil
			}
		}
		checkPages(t, b)
	}
	if shared == 0 {
		t.Error("no token was shared")
	}
	if s := b.Pages(); s.Used != 0 || s.Cached == 0 || s.Cached > s.Total {
		t.Errorf("%+v", s)
	}
}

// checkPages compares the counts of the pages with the tree of nodes.
func checkPages(t *testing.T, b *Batch) {
	t.Helper()
	refs := map[*pageBlock]int{}
	opened := map[*node]int{}
	for i := range b.sequences {
		q := &b.sequences[i]
		opened[q.root]++
		for j, n := range q.path {
			opened[n]++
			for g := range b.pool.groups {
				if j >= q.from[g] {
					refs[n.blocks[g]]++
				}
			}
		}
	}
	nodes := 0
	var walk func(n *node)
	walk = func(n *node) {
		nodes++
		if n.open != opened[n] {
			t.Fatalf("a node is open %d times, counted %d", opened[n], n.open)
		}
		held := n.parent == nil || n.open > 0 || len(n.children) > 0
		for g, k := range n.blocks {
			if held = held || k != nil; k != nil && (k.node != n || k.refs != refs[k]) {
				t.Fatalf("a block of group %d has %d references, counted %d", g, refs[k], k.refs)
			}
		}
		if !held {
			t.Fatal("a node holds nothing")
		}
		for _, c := range n.children {
			walk(c)
		}
	}
	for _, k := range b.classes {
		for _, root := range k.roots {
			walk(root)
		}
	}
	for g, group := range b.pool.groups {
		free := 0
		for _, k := range group.blocks {
			if k.node == nil {
				free++
			}
		}
		if free != len(group.free) || len(group.blocks) > group.most {
			t.Fatalf("group %d: %d free blocks of %d, %d in the list, limit %d", g, free, len(group.blocks), len(group.free), group.most)
		}
	}
}

// TestBatchScope: a sequence finds the tokens of its own scope only, and scopes that hold no tokens
// take no memory.
func TestBatchScope(t *testing.T) {
	testshared.SlowEmulated(t, "TestBatch runs there")
	m := openCase(t, filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16"), Options{Threads: 1})
	b := m.NewBatch(2, 300)
	tokens := someTokens(150, m.VocabSize())
	begin := func(slot int, scope string, want int) {
		t.Helper()
		if n := b.Known(300, tokens, scope); n != want {
			t.Errorf("scope %q knows %d tokens, want %d", scope, n, want)
		}
		if n := b.Begin(slot, 300, tokens, scope); n != want {
			t.Errorf("scope %q begins with %d tokens, want %d", scope, n, want)
		}
		if err := b.Forward([]Chunk{{slot, tokens[want:], 0}}, nil); err != nil {
			t.Fatal(err)
		}
		checkPages(t, b)
	}
	begin(0, "", 0)
	begin(1, "a", 0) // beside an open sequence
	begin(1, "a", 149)
	begin(0, "b", 0) // the sequence of "" has ended
	begin(1, "b", 149)
	b.End(0)
	b.End(1)
	for i := range 1000 {
		if n := b.Begin(0, 300, tokens, fmt.Sprint(i)); n != 0 {
			t.Fatalf("scope %d begins with %d tokens", i, n)
		}
	}
	begin(0, "a", 149)
	if n := len(b.classes[0].roots); n > 6 {
		t.Errorf("%d scopes are kept", n)
	}
}

// TestBatchPrefix: a prompt finds the tokens of open and of ended sequences, in models with windows
// too.
func TestBatchPrefix(t *testing.T) {
	for _, name := range []string{"llama3", "gemma3", "mistral", "mixtral"} {
		m := openCase(t, "testdata/torch/"+name, Options{Threads: 2})
		tokens := someTokens(300, m.VocabSize())
		b := m.NewBatch(2, 300)
		if n := b.Begin(0, 300, tokens, ""); n != 0 {
			t.Errorf("%s: %d tokens at first", name, n)
		}
		feed := func(slot, n int) {
			t.Helper()
			at := b.Len(slot)
			if err := b.Forward([]Chunk{{slot, tokens[at : at+n], 0}}, nil); err != nil {
				t.Fatal(err)
			}
		}
		feed(0, 150)
		if n := b.Begin(1, 300, tokens[:130], ""); n != 129 { // a copy of the page that 0 appends to
			t.Errorf("%s: %d tokens of an open sequence", name, n)
		}
		feed(1, 10)
		if n := b.Begin(1, 300, tokens, ""); n != 150 {
			t.Errorf("%s: %d tokens of an open sequence", name, n)
		}
		feed(1, 40)
		b.End(1)
		b.End(0)
		if n := b.Begin(1, 300, tokens, ""); n != 190 {
			t.Errorf("%s: %d tokens of an ended sequence", name, n)
		}
		checkPages(t, b)
		logits := make([]float32, m.VocabSize())
		if err := b.Forward([]Chunk{{1, tokens[190:200], 1}}, logits); err != nil {
			t.Fatal(err)
		}
		sameBits(t, name, logits, logitsOf(t, m, tokens[:200], 200)[199*m.VocabSize():])
	}
}

// TestBatchLongRope: sequences whose sizes choose other frequencies share nothing.
func TestBatchLongRope(t *testing.T) {
	m := openCase(t, "testdata/torch/phi4-mini", Options{Threads: 1})
	limit := 0
	for _, r := range m.config.Ropes {
		limit = max(limit, r.OriginalPositions)
	}
	if limit == 0 {
		t.Fatal("no longrope in this model")
	}
	long := 2 * limit
	tokens := someTokens(limit, m.VocabSize())
	b := m.NewBatch(2, long)
	for slot, size := range []int{limit, long} {
		if n := b.Begin(slot, size, tokens, ""); n != 0 {
			t.Errorf("%d tokens are shared", n)
		}
		got := make([]float32, len(tokens)*m.VocabSize())
		if err := b.Forward([]Chunk{{slot, tokens, len(tokens)}}, got); err != nil {
			t.Fatal(err)
		}
		want := make([]float32, len(got))
		if err := m.NewSession(size).Forward(tokens, want, true); err != nil {
			t.Fatal(err)
		}
		sameBits(t, fmt.Sprint(size), got, want)
	}
}

func TestBatchErrors(t *testing.T) {
	m := openCase(t, "testdata/torch/llama3", Options{Threads: 1})
	b := m.NewBatch(2, 600)
	b.Begin(1, 4, nil, "")
	logits := make([]float32, m.VocabSize())
	for i, chunks := range [][]Chunk{
		nil,
		{{0, []int32{1}, 0}},
		{{2, []int32{1}, 1}},
		{{-1, []int32{1}, 1}},
		{{0, nil, 0}, {1, []int32{1}, 1}},
		{{0, []int32{1}, 1}, {0, []int32{1}, 0}},
		{{0, []int32{1}, 2}},
		{{0, []int32{-1}, 1}},
		{{0, []int32{int32(m.VocabSize())}, 1}},
		{{1, []int32{1, 2, 3, 4, 5}, 1}},
		{{0, make([]int32, b.MaxRows()+1), 1}},
	} {
		if err := b.Forward(chunks, logits); err == nil {
			t.Errorf("%d: no error", i)
		}
		if b.Len(0) != 0 || b.Len(1) != 0 {
			t.Errorf("%d: tokens were taken", i)
		}
	}
}

// TestBatchAfterError: a pass that fails leaves all sequences as they were.
func TestBatchAfterError(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be made shorter")
	}
	for _, threads := range []int{1, 3} {
		dir := rewritten(t, "testdata/torch/gemma3", nil, nil)
		path := filepath.Join(dir, "model.safetensors")
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m := openCase(t, dir, Options{Threads: threads})
		tokens := someTokens(150, m.VocabSize())
		want := logitsOf(t, m, tokens, 150)
		b := m.NewBatch(2, 150)
		run := func(n int) error {
			got := make([]float32, 2*m.VocabSize())
			at := b.Len(0)
			err := b.Forward([]Chunk{{0, tokens[at : at+n], 1}, {1, tokens[at : at+n], 1}}, got)
			if err == nil {
				next := want[(at+n-1)*m.VocabSize():][:m.VocabSize()]
				sameBits(t, "after an error", got, slices.Concat(next, next))
			}
			return err
		}
		for range 3 {
			if err := run(49); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, 4096); err != nil {
				t.Fatal(err)
			}
			var gone *safetensors.FormatError
			if err := run(1); !errors.As(err, &gone) {
				t.Errorf("error %v, want that of a truncated file", err)
			}
			checkPages(t, b)
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.WriteAt(raw, 0); err != nil {
				t.Fatal(err)
			}
			file.Close()
		}
		m.Close() // one open file only: qemu does not say which file a fault was in
	}
}
