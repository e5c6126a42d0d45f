package serve

import (
	"testing"
	"time"
)

// TestGate: places are taken all at once or not at all, and the estimate follows what sequences
// took.
func TestGate(t *testing.T) {
	g := &gate{parallel: 2, queue: 3}
	leave, _, _ := g.enter(2)
	if leave == nil {
		t.Fatal("an empty gate is full")
	}
	if leave, _, _ := g.enter(3); leave == nil {
		t.Error("the queue is full")
	}
	if leave, taken, retry := g.enter(1); leave != nil || taken != 5 || retry != minRetry {
		t.Errorf("a place too many, or %d taken, or retry after %d", taken, retry)
	}
	leave(0)
	if leave, _, _ := g.enter(3); leave != nil {
		t.Error("3 places where 2 are free")
	}
	if leave, _, _ := g.enter(2); leave == nil {
		t.Error("2 free places are not given")
	}
	for _, c := range []struct {
		seconds float64
		places  int
		want    int
	}{{0, 1, 1}, {0.2, 1, 1}, {10, 1, 6}, {10, 2, 11}, {1e6, 1, maxRetry}} {
		g.seconds = c.seconds
		if leave, _, retry := g.enter(c.places); leave != nil || retry != c.want {
			t.Errorf("%d places at %v s each: retry after %d, want %d", c.places, c.seconds, retry, c.want)
		}
	}
	g = &gate{parallel: 2}
	g.leave(2, 0, time.Hour)     // none was complete
	g.leave(2, 4, 8*time.Second) // 2 at a time
	if g.seconds != 4 {
		t.Errorf("sequences of 4 s take %v", g.seconds)
	}
	g.leave(1, 1, 12*time.Second)
	if g.seconds != 5 {
		t.Errorf("the average of sequences of 4 s and one of 12 s is %v", g.seconds)
	}
}
