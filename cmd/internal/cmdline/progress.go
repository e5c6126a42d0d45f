package cmdline

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/lowbit-go/gq"
)

// A Display shows how far a job is, stage by stage. On a terminal it shows a bar that fits the
// width and disappears at the end of the stage; elsewhere it writes a line from time to time, so
// that a short job writes nothing. A nil Display shows nothing.
type Display struct {
	w       io.Writer
	columns func() int // of the terminal; nil: w is no terminal

	mu      sync.Mutex
	started time.Time // of the job
	cost    float64   // of the stages that have ended
	stage   *stage    // nil: between two stages
	drawn   int       // columns that the bar takes on the screen
	lined   time.Time // when the last line was written
}

type stage struct {
	gq.Stage
	outer   *stage // the stage around it; nil: none
	started time.Time
	done    atomic.Int64
	pace    pace
}

const (
	barInterval  = 100 * time.Millisecond
	lineInterval = 10 * time.Second
	maxInterval  = time.Minute // of the lines of a long job
)

// NewDisplay returns a Display on f (os.Stderr), or nil if quiet is set.
func NewDisplay(f *os.File, quiet bool) *Display {
	switch {
	case quiet:
		return nil
	case term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb":
		return &Display{w: f, columns: func() int { return columns(f) }}
	}
	return &Display{w: f}
}

// columns is the width of a terminal; 80 for another file.
func columns(f *os.File) int {
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		return width
	}
	return 80
}

// Stage implements gq.Progress. add is one atomic addition. end must be called at least once;
// nothing is written after it.
func (d *Display) Stage(s gq.Stage) (add func(n int64), end func()) {
	if d == nil {
		return func(int64) {}, func() {}
	}
	running := d.begin(s, time.Now())
	stop := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		ticker := time.NewTicker(barInterval)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-ticker.C:
				d.show(running, now)
			}
		}
	})
	once := sync.OnceFunc(func() {
		close(stop)
		ticking.Wait()
		d.finish(running)
	})
	return func(n int64) { running.done.Add(n) }, once
}

// Log implements gq.Progress: it writes a line of text above the bar.
func (d *Display) Log(line string) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
	_, _ = fmt.Fprintln(d.w, Printable(line))
}

func (d *Display) begin(s gq.Stage, now time.Time) *stage {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.started.IsZero() {
		d.started = now
	}
	d.stage = &stage{Stage: s, outer: d.stage, started: now}
	d.lined = now
	return d.stage
}

func (d *Display) finish(s *stage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
	d.cost += s.Cost
	if d.stage == s {
		d.stage = s.outer
	}
}

// show shows the stage unless another stage runs within it. It ignores errors: a failing display
// must not fail the job.
func (d *Display) show(st *stage, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stage != st {
		return
	}
	s := d.status(now)
	if d.columns != nil {
		text := s.bar(d.columns() - 1) // the last column makes some terminals begin a new line
		_, _ = fmt.Fprint(d.w, "\r"+text+strings.Repeat(" ", max(0, d.drawn-len(text))))
		d.drawn = len(text)
		return
	}
	wait := min(max(lineInterval, now.Sub(d.stage.started)/10), maxInterval)
	if now.Sub(d.lined) < wait {
		return
	}
	d.lined = now
	_, _ = fmt.Fprintln(d.w, s.line())
}

func (d *Display) status(now time.Time) *status {
	st := d.stage
	elapsed := now.Sub(st.started)
	s := &status{
		number: st.Number, count: st.Count, label: st.Name, unit: st.Unit,
		done: min(st.done.Load(), st.Total), total: st.Total, elapsed: elapsed, left: -1, job: -1,
	}
	if s.total <= 0 {
		return s
	}
	st.pace.add(elapsed, s.done)
	s.rate = st.pace.rate()
	s.left = left(s.total-s.done, s.rate)
	part := float64(s.done) / float64(s.total)
	if cost := d.cost + st.Cost*part; s.left >= 0 && st.Later > 0 && cost > 0 {
		perCost := now.Sub(d.started).Seconds() / cost
		s.job = s.left + time.Duration(st.Later*perCost*float64(time.Second))
	}
	return s
}

// clear removes the bar from the screen.
func (d *Display) clear() {
	if d.drawn > 0 {
		_, _ = fmt.Fprint(d.w, "\r"+strings.Repeat(" ", d.drawn)+"\r")
		d.drawn = 0
	}
}

// Reporter shows the progress and the log of a job on standard error. With --quiet it is nil and
// shows nothing.
func Reporter(c *cli.Context) gq.Progress {
	if d := NewDisplay(os.Stderr, c.Bool("quiet")); d != nil {
		return d
	}
	return nil
}

// status is the state of a stage that a display shows.
type status struct {
	number, count int // of the stages of a job; 0: a single stage
	label, unit   string
	done, total   int64         // total 0: nothing is counted
	elapsed       time.Duration // since the stage began
	rate          float64       // units per second; 0: unknown
	left          time.Duration // of the stage; -1: unknown
	job           time.Duration // left of the whole job; -1: unknown, or there is no other stage
}

const (
	minBar = 10 // columns of a bar with its brackets
	maxBar = 42
)

func (s *status) head() string {
	if s.count > 1 {
		return fmt.Sprintf("%d of %d: %s", s.number, s.count, s.label)
	}
	return s.label
}

func (s *status) percent() int {
	return int(100 * (float64(s.done) / float64(s.total)))
}

func (s *status) amounts() string {
	if s.unit == "bytes" {
		return Bytes(s.done) + " of " + Bytes(s.total)
	}
	return Count(s.done) + " of " + Count(s.total) + " " + s.unit
}

func (s *status) speed() string {
	switch {
	case s.rate <= 0:
		return ""
	case s.unit == "bytes":
		return Bytes(int64(s.rate)) + "/s"
	case s.rate < 10:
		return fmt.Sprintf("%.2g %s/s", s.rate, s.unit)
	}
	return Count(int64(s.rate)) + " " + s.unit + "/s"
}

func (s *status) remaining() string {
	if s.left < 0 {
		return ""
	}
	return short(s.left) + " left"
}

func (s *status) whole() string {
	if s.job < 0 {
		return ""
	}
	return "job " + short(s.job)
}

// bar is the status as a line of at most columns columns. The least important parts are left out
// first.
func (s *status) bar(columns int) string {
	head := s.head()
	if s.total <= 0 {
		return clip(head+"  "+short(s.elapsed), columns)
	}
	const percent = "  100%"
	if len(head)+len(percent) > columns {
		return clip(fmt.Sprintf("%3d%% %s", s.percent(), head), columns)
	}
	room := columns - len(head) - len(percent)
	take := func(part string) string {
		if n := len(part) + 2; part != "" && n <= room {
			room -= n
			return "  " + part
		}
		return ""
	}
	remaining, whole := take(s.remaining()), take(s.whole())
	bar := take(strings.Repeat("#", minBar))
	amounts := take(s.amounts())
	speed := take(s.speed())
	if bar != "" {
		n := min(minBar-2+room, maxBar-2)
		full := int(float64(n) * (float64(s.done) / float64(s.total)))
		bar = "  [" + strings.Repeat("#", full) + strings.Repeat(".", n-full) + "]"
	}
	return fmt.Sprintf("%s  %3d%%%s%s%s%s%s", head, s.percent(), bar, amounts, speed, remaining, whole)
}

// line is the status for a file or a pipe.
func (s *status) line() string {
	if s.total <= 0 {
		return fmt.Sprintf("%s: %s so far", s.head(), short(s.elapsed))
	}
	parts := []string{fmt.Sprintf("%s: %s (%d%%)", s.head(), s.amounts(), s.percent())}
	for _, part := range []string{s.speed(), s.remaining(), s.whole()} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}

// clip cuts an ASCII text to columns.
func clip(s string, columns int) string { return s[:min(len(s), max(columns, 0))] }

// short writes a time with its two largest units: "42s", "3m05s", "2h10m", "1d3h".
func short(d time.Duration) string {
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 24*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%dh", s/(24*3600), s/3600%24)
}

// pace estimates the rate of units. It forgets the first half of the time: a resumed job skips
// finished units within seconds, and the beginning of a stage is not typical.
type pace struct {
	samples []sample // in order of time; the first is 0, 0
}

type sample struct {
	at   time.Duration // since the beginning
	done int64
}

// maxSamples bounds the memory: at this number every second sample is dropped.
const maxSamples = 256

// add records the number of units done at a time.
func (p *pace) add(at time.Duration, done int64) {
	if len(p.samples) == 0 {
		p.samples = append(p.samples, sample{})
	}
	if len(p.samples) == maxSamples {
		for i := range maxSamples / 2 {
			p.samples[i] = p.samples[2*i]
		}
		p.samples = p.samples[:maxSamples/2]
	}
	p.samples = append(p.samples, sample{at, done})
}

// rate is units per second at the last sample; 0 if nothing was done.
func (p *pace) rate() float64 {
	if len(p.samples) == 0 {
		return 0
	}
	last := p.samples[len(p.samples)-1]
	from := p.samples[0]
	for _, s := range p.samples {
		if s.at > last.at/2 {
			break
		}
		from = s
	}
	if from.done == last.done { // long steps
		from = p.samples[0]
	}
	if last.at <= from.at {
		return 0
	}
	return float64(last.done-from.done) / (last.at - from.at).Seconds()
}

// left is the time that so many units take at a rate; -1 if that is unknown.
func left(units int64, rate float64) time.Duration {
	seconds := float64(units) / rate
	if !(rate > 0) || seconds > 1e9 {
		return -1
	}
	return time.Duration(seconds * float64(time.Second))
}
