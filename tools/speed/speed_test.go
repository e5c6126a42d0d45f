package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	rate := func(out []byte) (map[string]float64, error) {
		return parseNumbers(out, map[string]string{"run.tokens_per_second": rateColumn})
	}
	products := func(out []byte) (map[string]float64, error) { return parseCounts(out, 2) }
	for _, c := range []struct {
		name  string
		parse func([]byte) (map[string]float64, error)
		out   string
		key   string
		want  float64 // 0: an error
	}{
		{"llama-bench", parseLlamaBench, `[{"build_commit": "x", "n_prompt": 512, "n_gen": 0, "avg_ns": 5, "avg_ts": 95.5, "samples_ts": [95.5]}]`, rateColumn, 95.5},
		{"two tests", parseLlamaBench, `[{"avg_ts": 95.5}, {"avg_ts": 95.5}]`, "", 0},
		{"no model", parseLlamaBench, "[\n", "", 0},
		{"a number", rate, `{"file": "x", "run": {"tokens_per_second": 12.5}}`, rateColumn, 12.5},
		{"no number", rate, `{"run": {"tokens_per_second": "fast"}}`, "", 0},
		{"no object", rate, `{"run": 3}`, "", 0},
		{"counts", products, "insns 100\ninsns 16777316\n", instructions, 1},
		{"one count", products, "insns 100\n", "", 0},
		{"tools/kernels", parseCounted, "| CPU | layout | m | instructions |\n|---|---|---|---|\n| i8mm | lowbit | 1 | .0442 |\n", instructions, .0442},
		{"no product", parseCounted, "| CPU | layout | m | instructions |\n|---|---|---|---|\n", "", 0},
	} {
		got, err := c.parse([]byte(c.out))
		if (err != nil) != (c.want == 0) || got[c.key] != c.want {
			t.Errorf("%s: %v, %v instead of %v", c.name, got, err, c.want)
		}
	}
}

func TestOthers(t *testing.T) {
	before, err := parseStat("cpu  1000 0 0 1000 0 0 0 0 0 0\ncpu0 1 2 3\n")
	if err != nil {
		t.Fatal(err)
	}
	after, err := parseStat("cpu  1300 100 50 1500 50 0 0 100 50 0\n")
	if err != nil {
		t.Fatal(err)
	}
	after.own = 3 // of 5.5 busy seconds, in 11 seconds of CPUs
	if got := after.others(before); math.Abs(got-2.5/11) > 1e-9 {
		t.Errorf("others took %v", got)
	}
	if got := before.others(before); got != 0 {
		t.Errorf("others took %v of no time", got)
	}
	if _, err := parseStat("intr 5\n"); err == nil {
		t.Error("no error without times")
	}
}

// three returns a table with a base and two other rows. The last row has no figures.
func three() table {
	return table{name: "three", columns: []column{{secondsColumn, "seconds", "%.1f"}, {"size", "size", "%.0f"}}, ratios: []string{"/ base"}, rows: []row{
		{name: "base", command: "make base"},
		{name: "ours", command: "make ours", files: []string{"q4.gqf"}, against: []string{"base"}},
		{name: "absent", command: "make absent", against: []string{"base"}},
	}}
}

func runsOf(seconds ...float64) *samples {
	s := &samples{}
	for _, v := range seconds {
		s.runs = append(s.runs, map[string]float64{secondsColumn: v, "size": 10 * v})
	}
	return s
}

func TestRender(t *testing.T) {
	tab := three()
	all := map[string]*samples{"base": runsOf(1, 2, 9), "ours": runsOf(2, 6, 9)}
	all["ours"].others = .5
	for _, r := range all["base"].runs {
		delete(r, "size")
	}
	kept := &store{}
	for i, r := range tab.rows[:2] {
		f := all[r.name].figure(tab, r, all)
		f.Machine = &machine{Date: "2026-01-02", CPU: "a CPU", Threads: 2 + i, Version: "abc"}
		kept.put(f)
	}
	kept.put(figure{Table: "three", Row: "absent", Missing: "nobody has it"})
	const want = `| | seconds | size | / base | run |
|---|---|---|---|---|
| base | 2.0 (1.0 to 9.0) | | | 1 |
| ours | 6.0 (2.0 to 9.0) **unreliable** | 60 | 2.00 | 2 |
| absent | not measured | | | |

Not run:

- absent: nobody has it
`
	if got := tab.render(kept); got != want {
		t.Errorf("%s\ninstead of\n%s", got, want)
	}
	const commands = `    gq synth -q --preset llama-3.2-1b bare
    mkdir model && ln bare/* model && cp "$TOKENIZER"/tokenizer*.json model
    gq quantize model --bits 4 --embedding-bits 4 -q -o q4.gqf

    # base
    make base

    # ours
    make ours

    # absent
    make absent
`
	if got := tab.commands(); got != commands {
		t.Errorf("%s\ninstead of\n%s", got, commands)
	}
	const machines = `| run | date | CPU | threads | gq | other programs |
|---|---|---|---|---|---|
| 1 | 2026-01-02 | a CPU | 2 | abc | idle: at most 0 % of the CPUs |
| 2 | 2026-01-02 | a CPU | 3 | abc | **not idle**: up to 50 % of the CPUs |
`
	if got := kept.runs(); got != machines {
		t.Errorf("%s\ninstead of\n%s", got, machines)
	}
}

// TestBaseOfTwo divides by the rate of two rows, one after the other.
func TestBaseOfTwo(t *testing.T) {
	all := map[string]*samples{"a": runsOf(20), "b": runsOf(5)}
	tab := three()
	if got := tab.base("a"+both+"b", 0, all); math.Abs(got-4) > 1e-12 {
		t.Errorf("%v instead of 4", got)
	}
	if got := tab.base("a"+both+"c", 0, all); got != 0 {
		t.Errorf("%v although c was not measured", got)
	}
}

// TestStore: the old figures of a row stay if the row cannot be run now.
func TestStore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	kept, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	m := machine{Date: "2026-01-02"}
	kept.put(figure{Table: "a", Row: "x", Missing: "no program"})
	kept.put(figure{Table: "a", Row: "x", Values: map[string]float64{"seconds": 1}, Machine: &m})
	kept.put(figure{Table: "a", Row: "x", Missing: "no program"})
	if err := kept.save(file); err != nil {
		t.Fatal(err)
	}
	again, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	if f := again.find("a", "x"); len(again.Figures) != 1 || f.Values["seconds"] != 1 || *f.Machine != m {
		t.Errorf("%+v", again.Figures)
	}
}

// TestDocument holds the tables of the document, and the file of their commands, to the program and
// to the stored figures.
func TestDocument(t *testing.T) {
	kept, err := load("figures.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	doc, commands := filepath.Join(dir, "SPEED.md"), filepath.Join(dir, "COMMANDS.md")
	before, err := os.ReadFile("../../docs/SPEED.md")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(doc, before, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := publish(tables(), kept, doc, commands); err != nil {
		t.Fatal(err)
	}
	for file, written := range map[string]string{"../../docs/SPEED.md": doc, "COMMANDS.md": commands} {
		want, err := os.ReadFile(written)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
			t.Errorf("%s is not what tools/speed writes (%v); go run -C tools ./speed -w -tables none", file, err)
		}
	}
}

// TestRows holds the rows of each table to each other, to files that are made and to tools that are
// named.
func TestRows(t *testing.T) {
	for _, tab := range tables() {
		names := map[string]bool{"": true}
		for _, r := range tab.rows {
			if names[r.name] {
				t.Errorf("%s has two rows %q", tab.name, r.name)
			}
			names[r.name] = true
			for _, f := range r.files {
				if made[f].line == "" {
					t.Errorf("%s, %s: nothing makes %s", tab.name, r.name, f)
				}
			}
			for _, tool := range r.tools {
				if wanted[tool] == "" {
					t.Errorf("%s, %s: nothing says where %s comes from", tab.name, r.name, tool)
				}
			}
		}
		for _, r := range tab.rows {
			if len(r.against) > len(tab.ratios) {
				t.Errorf("%s, %s: %d ratios in %d columns", tab.name, r.name, len(r.against), len(tab.ratios))
			}
			for name := range strings.SplitSeq(strings.Join(r.against, both), both) {
				if !names[name] {
					t.Errorf("%s, %s is compared with %s, which is not there", tab.name, r.name, name)
				}
			}
		}
	}
}
