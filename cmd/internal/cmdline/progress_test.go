package cmdline

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// buffer is a bytes.Buffer that a display and the test may use at once.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// waitFor waits until the text in b matches pattern.
func waitFor(t *testing.T, b *buffer, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(5 * time.Second); !re.MatchString(b.String()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %q in %q", pattern, b.String())
		}
	}
}

func TestProgressLines(t *testing.T) {
	var b buffer
	p := newProgress(&b, 4_000_000, "quantizing")
	p.run(2*time.Millisecond, p.line)
	waitFor(t, &b, `(?m)^quantizing: 0 B of 4\.00 MB \(0 %\), 0 B/s, unknown time left$`)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				p.Add(2_500)
			}
		})
	}
	wg.Wait()
	waitFor(t, &b, `(?m)^quantizing: 1\.00 MB of 4\.00 MB \(25 %\), \S+ .?B/s, \d+s left$`)
	p.Finish()
	p.Finish()
	text := b.String()
	time.Sleep(10 * time.Millisecond)
	if b.String() != text {
		t.Error("something was written after Finish")
	}
}

// TestProgressCount counts tokens.
func TestProgressCount(t *testing.T) {
	var b buffer
	p := newProgress(&b, 400, "scoring")
	p.unit = "tokens"
	p.run(2*time.Millisecond, p.line)
	p.Add(100)
	waitFor(t, &b, `(?m)^scoring: 100 of 400 tokens \(25 %\), \d+ tokens/s, \d+s left$`)
	p.Finish()
}

func TestProgressBar(t *testing.T) {
	var b buffer
	p := newProgress(&b, 4_000_000, "quantizing")
	p.run(time.Millisecond, p.bar())
	p.Add(1_000_000)
	waitFor(t, &b, `quantizing\s+25%.*1\.0/4\.0 MB.*/s`)
	p.Add(5_000_000) // more than there is: the bar stays at its end
	waitFor(t, &b, `100%|\r +\r`)
	p.Finish()
	if text := b.String(); strings.Contains(text, "\n") || !strings.HasSuffix(text, "\r") {
		t.Errorf("the bar was not removed: %q", text[max(0, len(text)-200):])
	}
}

// TestProgressToFile has no terminal and a short job: nothing is written.
func TestProgressToFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range []struct {
		total int64
		quiet bool
	}{{100, false}, {100, true}, {0, false}} {
		p := NewProgress(f, c.total, "x", c.quiet)
		p.Add(50)
		p.Finish()
	}
	if st, err := f.Stat(); err != nil || st.Size() != 0 {
		t.Errorf("%d bytes written (%v)", st.Size(), err)
	}
}
