package cmdline

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A Progress shows how far a job of a known number of bytes has come: on a terminal
// as a bar with rate and remaining time, which Finish removes again; elsewhere as a
// line every ten seconds, so that a shorter job writes nothing.
type Progress struct {
	total int64
	label string
	unit  string // what is counted; "": bytes
	w     io.Writer
	start time.Time
	done  atomic.Int64

	stop    chan struct{}
	stopped sync.WaitGroup
	once    sync.Once
}

const (
	barInterval  = 100 * time.Millisecond
	lineInterval = 10 * time.Second
)

// NewProgress starts showing a job of total bytes on f (os.Stderr). label says what
// is done ("quantizing"). With quiet, nothing is shown.
func NewProgress(f *os.File, total int64, label string, quiet bool) *Progress {
	return NewCount(f, total, label, "", quiet)
}

// NewCount is NewProgress for a job that is not counted in bytes but in unit ("tokens").
func NewCount(f *os.File, total int64, label, unit string, quiet bool) *Progress {
	p := newProgress(f, total, label)
	p.unit = unit
	switch {
	case quiet || total <= 0:
	case term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb":
		p.run(barInterval, p.bar())
	default:
		p.run(lineInterval, p.line)
	}
	return p
}

func newProgress(w io.Writer, total int64, label string) *Progress {
	return &Progress{total: total, label: label, w: w, start: time.Now(), stop: make(chan struct{})}
}

// Add says that n more bytes are done. It may be called by many goroutines often: it
// is one atomic addition.
func (p *Progress) Add(n int64) { p.done.Add(n) }

// Finish stops the display, whether the job succeeded or not. On return nothing more
// is written. It may be called more than once.
func (p *Progress) Finish() {
	p.once.Do(func() { close(p.stop) })
	p.stopped.Wait()
}

// run calls show(false) at intervals, and show(true) at the end.
func (p *Progress) run(interval time.Duration, show func(last bool)) {
	p.stopped.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-p.stop:
				show(true)
				return
			case <-ticker.C:
				show(false)
			}
		}
	})
}

// bar returns what draws the bar for run.
func (p *Progress) bar() func(last bool) {
	b := progressbar.NewOptions64(p.total,
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetDescription(p.label),
		progressbar.OptionSetWidth(30),
		progressbar.OptionShowBytes(p.unit == ""),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString(p.unit),
		progressbar.OptionShowTotalBytes(p.unit == ""),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(0),
		progressbar.OptionClearOnFinish(),
	)
	var shown int64
	return func(last bool) {
		// A display that fails is no reason to fail the job.
		if last {
			_ = b.Clear()
			return
		}
		now := min(p.done.Load(), p.total)
		_ = b.Add64(now - shown)
		shown = now
	}
}

// line writes one line for run.
func (p *Progress) line(last bool) {
	if last {
		return
	}
	done := min(p.done.Load(), p.total)
	seconds := time.Since(p.start).Seconds()
	rate := float64(done) / seconds
	left := "unknown time"
	if done > 0 {
		left = time.Duration(float64(p.total-done) / rate * float64(time.Second)).Round(time.Second).String()
	}
	percent := int(100 * (float64(done) / float64(p.total)))
	if p.unit != "" {
		fmt.Fprintf(p.w, "%s: %d of %d %s (%d %%), %.0f %s/s, %s left\n", p.label, done, p.total, p.unit, percent, rate, p.unit, left)
		return
	}
	fmt.Fprintf(p.w, "%s: %s of %s (%d %%), %s/s, %s left\n", p.label, Bytes(done), Bytes(p.total), percent, Bytes(int64(rate)), left)
}
