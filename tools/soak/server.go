package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a running gq serve.
type server struct {
	command *exec.Cmd
	url     string
}

// start runs gq serve on a free port.
func start(ctx context.Context, o options) (*server, error) {
	s := &server{command: exec.Command(o.gq, "serve", o.model, "--port", "0", "--json", "--quiet", "--parallel", strconv.Itoa(o.parallel), "--queue", strconv.Itoa(o.queue))}
	s.command.Stderr = os.Stderr
	out, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var ready struct{ URL string }
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		s.kill()
		return nil, fmt.Errorf("%s serve did not start: %w", o.gq, err)
	}
	s.url = strings.TrimSuffix(ready.URL, "/")
	return s, ctx.Err()
}

func (s *server) kill() {
	_ = s.command.Process.Kill() // it may have ended
	_ = s.command.Wait()
}

// stop ends the server as an operator does.
func (s *server) stop() error {
	if err := s.command.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := s.command.Wait(); err != nil {
		return fmt.Errorf("after SIGTERM: %w", err)
	}
	return nil
}

// state is what /metrics shows of a server without work.
type state struct {
	memory     float64 // private memory in bytes
	goroutines int
}

// A measurement of a server at rest takes rounds. In each round one client asks for a time, so that
// garbage is collected, and as long again nothing happens.
const (
	rounds    = 10
	roundTime = 250 * time.Millisecond
)

// rest returns the least memory and the fewest goroutines of some rounds. The size of a heap
// depends on when its garbage was last collected, but not the least size.
func (s *server) rest(ctx context.Context, cases []testCase) (least state, err error) {
	var m map[string]float64
	for i := range rounds {
		if _, err := load(ctx, s.url, 1, roundTime, cases, uint64(1000+i)); err != nil {
			return least, err
		}
		select {
		case <-time.After(roundTime):
		case <-ctx.Done():
			return least, ctx.Err()
		}
		if m, err = s.metrics(ctx); err != nil {
			return least, err
		}
		now := state{memory: m["process_resident_memory_anon_bytes"], goroutines: int(m["go_goroutines"])}
		if i == 0 {
			least = now
		}
		least = state{min(least.memory, now.memory), min(least.goroutines, now.goroutines)}
	}
	// On a busy machine the server may still have to notice that the last client has left.
	for end := time.Now().Add(time.Minute); ; time.Sleep(roundTime) {
		if err = idle(m); err == nil {
			break
		}
		if time.Now().After(end) {
			return least, err
		}
		if m, err = s.metrics(ctx); err != nil {
			return least, err
		}
	}
	if least.memory <= 0 || least.goroutines <= 0 {
		return least, fmt.Errorf("/metrics has no memory or no goroutines: %+v", least)
	}
	return least, nil
}

// idle returns an error if something runs or waits.
func idle(m map[string]float64) error {
	for _, name := range []string{"gq_sequences_running", "gq_sequences_waiting", "gq_cache_pages_used", "gq_answers_running"} {
		value, ok := m[name]
		if !ok {
			return fmt.Errorf("/metrics has no %s", name)
		}
		if value != 0 {
			return fmt.Errorf("%s is %v without a request", name, value)
		}
	}
	return nil
}

// metrics reads /metrics. Series of a metric are added up.
func (s *server) metrics(ctx context.Context) (map[string]float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	r.Close = true // no goroutine of the server waits for the next request
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		name, _, _ = strings.Cut(name, "{")
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue // a histogram's label may hold a space
		}
		values[name] += number
	}
	return values, nil
}
