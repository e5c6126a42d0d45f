package cmdline

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lowbit-go/gq"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"
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

// stage is a running stage.
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
		return &Display{w: f, columns: func() int {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil || width <= 0 {
				return 80
			}
			return width
		}}
	}
	return &Display{w: f}
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

// status computes the state of the stage.
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
