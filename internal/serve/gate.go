package serve

import (
	"cmp"
	"sync"
	"time"
)

// A gate admits requests to a model's engine: as many sequences as run and wait there. A request
// takes a place for each sequence that runs at a time, all at once or none, so that a request with
// several prompts is refused at its start or not at all. The engine's own limit is the same and
// counts single sequences, so the engine never refuses an admitted request.
type gate struct {
	parallel int // sequences that run at a time
	queue    int // sequences that wait

	mu      sync.Mutex
	taken   int
	seconds float64 // an average of how long a sequence takes; 0: not known
}

// enter takes places. leave gives the places back after a number of sequences were done. If there
// are not enough places, leave is nil, taken says how many are taken, and retry is an estimate of
// the seconds until there are enough.
func (g *gate) enter(places int) (leave func(done int), taken, retry int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.taken+places > g.parallel+g.queue {
		// The sequences in front end one by one. Times in the gate include waiting, so a full server
		// errs on the long side.
		short := g.taken + places - g.parallel - g.queue
		return nil, g.taken, min(max(int(g.seconds*float64(short)/float64(g.parallel)+1), minRetry), maxRetry)
	}
	g.taken += places
	start := time.Now()
	return func(done int) { g.leave(places, done, time.Since(start)) }, g.taken, 0
}

func (g *gate) leave(places, done int, took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taken -= places
	if done == 0 {
		return
	}
	seconds := took.Seconds() * float64(places) / float64(done)
	g.seconds = cmp.Or(g.seconds, seconds)
	g.seconds += (seconds - g.seconds) / 8
}

// Retry-After in seconds.
const minRetry, maxRetry = 1, 120
