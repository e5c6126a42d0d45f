// Command soak checks gq serve under load: many clients ask for answers at the same time, some go
// away in the middle, and some are refused because the server is full.
//
//	go build -o gq ./cmd/gq
//	go run -C tools ./soak -gq ./gq -clients 64 -time 60s testdata/books1.3M-bf16
//
// It fails unless
//   - every complete answer has the text that [generate.Generator.Run] gives alone for the same
//     prompt, options and seed, and an answer that was cut off has the beginning of that text;
//   - every request ends with an answer, or with status 429 and Retry-After, or its client left;
//   - afterwards nothing runs or waits; there are as many goroutines, and there is as much private
//     memory, as before the load, which follows on a few seconds of such a load. Memory may grow
//     once, because caches and the heap do not reach their full sizes at the same time on every
//     machine, but not in each of three such loads.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/lowbit-go/gq/tools/internal/repository"
)

type options struct {
	gq                       string
	clients, parallel, queue int
	time                     time.Duration
	model                    string
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("soak: ")
	var o options
	flag.StringVar(&o.gq, "gq", "gq", "the program `FILE`")
	flag.IntVar(&o.clients, "clients", 64, "`NUMBER` of clients")
	flag.IntVar(&o.parallel, "parallel", 8, "--parallel of the server")
	flag.IntVar(&o.queue, "queue", 48, "--queue of the server; some clients are refused if both are less than the clients")
	flag.DurationVar(&o.time, "time", time.Minute, "`TIME` of the load that is measured")
	flag.Parse()
	if err := repository.Enter(); err != nil {
		log.Fatal(err)
	}
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	o.model = flag.Arg(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		log.Fatal(err)
	}
}

// warmUp is how long the server is loaded before its memory is measured for the first time: its
// caches fill, and its heap reaches the size that the load needs.
const warmUp = 15 * time.Second

// memoryGrowth is the allowed growth of private memory in a load, as a fraction of the memory
// before it. A leak exceeds it in each of the loads.
const (
	memoryGrowth = 0.05
	loads        = 3
)

func run(ctx context.Context, o options) error {
	cases, err := makeCases(ctx, o.model)
	if err != nil {
		return err
	}
	s, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer s.kill()
	if _, err := load(ctx, s.url, o.clients, warmUp, cases, 1); err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	before, err := s.rest(ctx, cases)
	if err != nil {
		return err
	}
	for i := 1; ; i++ {
		after, err := measure(ctx, o, s, cases, before, uint64(1+i))
		if err != nil {
			return err
		}
		if after.memory <= before.memory*(1+memoryGrowth) {
			return s.stop()
		}
		err = fmt.Errorf("private memory grew by %.1f %%", 100*(after.memory/before.memory-1))
		if i == loads {
			return fmt.Errorf("%w, as in each load before", err)
		}
		log.Printf("%v: another load shows whether it grows again", err)
		before = after
	}
}

// measure sends requests to the server for a while, prints the counts of answers and the memory,
// and returns the server's state afterwards.
func measure(ctx context.Context, o options, s *server, cases []testCase, before state, seed uint64) (after state, err error) {
	counts, err := load(ctx, s.url, o.clients, o.time, cases, seed)
	if err != nil {
		return after, err
	}
	if after, err = s.rest(ctx, cases); err != nil {
		return after, err
	}
	fmt.Printf("%d clients for %v: %d answers equal to those of a model alone, %d cut off by the client, %d refused with status 429\n",
		o.clients, o.time, counts.finished, counts.aborted, counts.refused)
	fmt.Printf("%.0f tokens/s of complete answers; private memory %.2f MB before, %.2f MB after; goroutines %d before, %d after\n",
		float64(counts.tokens)/o.time.Seconds(), before.memory/1e6, after.memory/1e6, before.goroutines, after.goroutines)
	if counts.finished == 0 || counts.aborted == 0 {
		return after, errors.New("the load was too small to show anything")
	}
	if after.goroutines > before.goroutines {
		return after, fmt.Errorf("%d goroutines are left over", after.goroutines-before.goroutines)
	}
	return after, nil
}
