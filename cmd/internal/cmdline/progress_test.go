package cmdline

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lowbit-go/gq"
)

// TestBar shows one status at several widths: it fits, nothing is cut in the middle, and the bar is
// as full as the job.
func TestBar(t *testing.T) {
	weights := &status{number: 2, count: 3, label: "calibrating", unit: "weights", done: 360e6, total: 1e9, rate: 1.5e6, left: 427 * time.Second, job: 20 * time.Minute}
	size := &status{label: "quantizing", unit: "bytes", done: 1e6, total: 4e6, rate: 1e6, left: 3 * time.Second, job: -1}
	for _, c := range []struct {
		s       *status
		columns int
		want    string
	}{
		{weights, 200, "2 of 3: calibrating   36%  [##############..........................]  360 M of 1.00 G weights  1.50 M weights/s  7m07s left  job 20m00s"},
		{weights, 80, "2 of 3: calibrating   36%  [###......]  1.50 M weights/s  7m07s left  job 20m00s"},
		{weights, 60, "2 of 3: calibrating   36%  7m07s left  job 20m00s"},
		{weights, 40, "2 of 3: calibrating   36%  7m07s left"},
		{weights, 26, "2 of 3: calibrating   36%"},
		{weights, 20, " 36% 2 of 3: calibra"},
		{weights, 0, ""},
		{size, 200, "quantizing   25%  [##########..............................]  1.00 MB of 4.00 MB  1.00 MB/s  3s left"},
		{size, 80, "quantizing   25%  [#####...............]  1.00 MB of 4.00 MB  1.00 MB/s  3s left"},
		{size, 60, "quantizing   25%  [##.........]  1.00 MB of 4.00 MB  3s left"},
		{size, 40, "quantizing   25%  [##.........]  3s left"},
		{&status{label: "reading", unit: "lines", elapsed: 5 * time.Second}, 40, "reading  5s"},
		{&status{label: "x", unit: "steps", total: 3, left: -1, job: -1}, 40, "x    0%  [...............]  0 of 3 steps"},
		{&status{label: "x", unit: "steps", done: 3, total: 3, rate: .25, job: -1}, 80, "x  100%  [################################]  3 of 3 steps  0.25 steps/s  0s left"},
	} {
		got := c.s.bar(c.columns)
		if got != c.want {
			t.Errorf("%d columns:\n%s\nwant\n%s", c.columns, got, c.want)
		}
	}
	for columns := range 220 {
		for _, s := range []*status{weights, size} {
			if got := s.bar(columns); len(got) > columns {
				t.Errorf("%d columns: %q takes %d", columns, got, len(got))
			}
		}
	}
}

func TestLine(t *testing.T) {
	for _, c := range []struct {
		s    status
		want string
	}{
		{status{label: "quantizing", unit: "bytes", done: 1e6, total: 4e6, rate: 5e5, left: 6 * time.Second, job: -1}, "quantizing: 1.00 MB of 4.00 MB (25%), 500 kB/s, 6s left"},
		{status{number: 1, count: 2, label: "scoring", unit: "tokens", total: 400, left: -1, job: -1}, "1 of 2: scoring: 0 of 400 tokens (0%)"},
		{status{number: 1, count: 2, label: "scoring", unit: "tokens", done: 100, total: 400, rate: 50, left: 6 * time.Second, job: time.Hour}, "1 of 2: scoring: 100 of 400 tokens (25%), 50 tokens/s, 6s left, job 1h00m"},
		{status{label: "reading", elapsed: time.Minute}, "reading: 1m00s so far"},
	} {
		if got := c.s.line(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 499 * time.Millisecond: "0s", 59600 * time.Millisecond: "1m00s", 61 * time.Second: "1m01s", 2*time.Hour + 5*time.Minute: "2h05m", 49 * time.Hour: "2d1h",
	} {
		if got := short(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// TestPace has a job that passes over half of its units at once, since an earlier job did them, and
// one with long steps.
func TestPace(t *testing.T) {
	var resumed, steps pace
	for second := 1; second <= 1000; second++ {
		at := time.Duration(second) * time.Second
		resumed.add(at, 500_000+int64(second)*100)
		steps.add(at, int64(second/600))
	}
	if got := resumed.rate(); got < 99 || got > 101 {
		t.Errorf("a resumed job does %g units per second, want 100", got)
	}
	if got := steps.rate(); got < .9/1000 || got > 2.1/1000 {
		t.Errorf("a job of long steps does %g units per second", got)
	}
	if n := len(resumed.samples); n > maxSamples {
		t.Errorf("%d samples", n)
	}
	var none pace
	if none.rate() != 0 || left(10, 0) != -1 || left(10, 5) != 2*time.Second || left(0, 5) != 0 || left(1<<62, 1e-9) != -1 {
		t.Error("the time of a job that has not begun is known")
	}
}

// display gives a Display of so many columns on a buffer; 0: no terminal.
func display(columns int) (*Display, *bytes.Buffer) {
	var b bytes.Buffer
	d := &Display{w: &b}
	if columns > 0 {
		d.columns = func() int { return columns }
	}
	return d, &b
}

// screen is what a terminal shows of the text that it gets.
func screen(text string) string {
	var lines []string
	for _, line := range strings.Split(text, "\n") {
		var cells []byte
		for _, part := range strings.Split(line, "\r") {
			cells = append([]byte(part), cells[min(len(part), len(cells)):]...)
		}
		lines = append(lines, strings.TrimRight(string(cells), " "))
	}
	return strings.Join(lines, "\n")
}

// TestDisplayTerminal goes through two stages on a terminal.
func TestDisplayTerminal(t *testing.T) {
	d, b := display(60)
	start := time.Unix(1e9, 0)
	s := d.begin(gq.Stage{Name: "writing text", Unit: "tokens", Total: 100, Number: 1, Count: 2, Cost: 1, Later: 3}, start)
	s.done.Add(50)
	d.show(s, start.Add(10*time.Second))
	if got, want := screen(b.String()), "1 of 2: writing text   50%  [####....]  10s left  job 1m10s"; got != want {
		t.Errorf("the screen shows %q, want %q", got, want)
	}
	d.Log("a line")
	if got, want := screen(b.String()), "a line\n"; got != want {
		t.Errorf("the screen shows %q, want %q", got, want)
	}
	s.done.Add(1000) // more than there is
	d.show(s, start.Add(20*time.Second))
	if got, want := screen(b.String()), "a line\n1 of 2: writing text  100%  [#########]  0s left  job 1m00s"; got != want {
		t.Errorf("the screen shows %q, want %q", got, want)
	}
	d.finish(s)
	s = d.begin(gq.Stage{Name: "quantizing", Unit: "bytes", Total: 4e6, Number: 2, Count: 2, Cost: 3}, start.Add(20*time.Second))
	s.done.Add(1e6)
	d.show(s, start.Add(30*time.Second))
	if got, want := screen(b.String()), "a line\n2 of 2: quantizing   25%  [##.........]  100 kB/s  30s left"; got != want {
		t.Errorf("the screen shows %q, want %q", got, want)
	}
	d.finish(s)
	if got, want := screen(b.String()), "a line\n"; got != want {
		t.Errorf("the end leaves %q, want %q", got, want)
	}
}

// TestDisplayLines has no terminal: nothing for ten seconds, then a line now and then.
func TestDisplayLines(t *testing.T) {
	d, b := display(0)
	start := time.Unix(1e9, 0)
	s := d.begin(gq.Stage{Name: "quantizing", Unit: "bytes", Total: 10e6}, start)
	lines := 0
	for second := range 3600 {
		now := start.Add(time.Duration(second) * time.Second)
		s.done.Store(int64(second) * 1000)
		d.show(s, now)
		switch n := strings.Count(b.String(), "\n"); {
		case second == 9 && n != 0:
			t.Fatalf("after %d seconds: %q", second, b)
		case second == 10:
			if got, want := b.String(), "quantizing: 10.0 kB of 10.0 MB (0%), 1.00 kB/s, 2h46m left\n"; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		case second == 100 && n != 10:
			t.Errorf("%d lines in 100 seconds", n)
		}
		lines = strings.Count(b.String(), "\n")
	}
	if lines < 60 || lines > 90 {
		t.Errorf("%d lines in an hour", lines)
	}
	d.finish(s)
	if strings.Contains(b.String(), "\r") {
		t.Error("a carriage return in a file")
	}
}

// TestDisplayStage counts from many goroutines, and ends twice.
func TestDisplayStage(t *testing.T) {
	d, b := display(80)
	for i := range 3 {
		add, end := d.Stage(gq.Stage{Name: fmt.Sprint("stage ", i), Total: 1000})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 100 {
					add(1)
				}
			})
		}
		wg.Wait()
		if n := d.stage.done.Load(); n != 400 {
			t.Errorf("%d units were counted", n)
		}
		end()
		end()
	}
	if got := screen(b.String()); got != "" {
		t.Errorf("the end leaves %q", got)
	}
}

// TestDisplayNested has a stage run within another one.
func TestDisplayNested(t *testing.T) {
	d, b := display(40)
	start := time.Unix(1e9, 0)
	outer := d.begin(gq.Stage{Name: "outer", Unit: "steps", Total: 2}, start)
	inner := d.begin(gq.Stage{Name: "inner", Unit: "steps", Total: 2}, start)
	d.show(outer, start)
	if b.Len() != 0 {
		t.Errorf("the outer stage shows %q", b)
	}
	d.finish(inner)
	d.show(outer, start)
	if got := screen(b.String()); !strings.HasPrefix(got, "outer    0%") {
		t.Errorf("the outer stage shows %q", got)
	}
	d.finish(outer)
	if got := screen(b.String()); got != "" || d.stage != nil {
		t.Errorf("the end leaves %q", got)
	}
}

// TestDisplayToFile has no terminal and a short job: nothing is written.
func TestDisplayToFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, quiet := range []bool{false, true} {
		add, end := NewDisplay(f, quiet).Stage(gq.Stage{Name: "x", Unit: "bytes", Total: 100})
		add(50)
		end()
	}
	if st, err := f.Stat(); err != nil || st.Size() != 0 {
		t.Errorf("%d bytes written (%v)", st.Size(), err)
	}
}
