// Command remote measures gq quantize on a checkpoint that a throttled server makes while it is
// read: against a plain download at the same rate, and its private memory.
//
//	go build -o /tmp/gq ./cmd/gq && go run -C tools ./remote -gq /tmp/gq
//	go run -C tools ./remote -gq /tmp/gq -shapes 70B -rate 0 -seconds 120
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/lowbit-go/gq/internal/test/testgiant"
	"github.com/lowbit-go/gq/tools/internal/repository"
)

// shapes are the models that can be served.
var shapes = map[string]func() *testgiant.Model{
	"1B":  func() *testgiant.Model { return testgiant.Dense(16, 2048, 8192, 128256, 32, 8) },
	"70B": func() *testgiant.Model { return testgiant.Dense(80, 8192, 28672, 128256, 64, 8) },
	"1T":  func() *testgiant.Model { return testgiant.Experts("F8_E4M3", 61, 384, 7168, 2048, 163840) },
}

func main() {
	log.SetFlags(0)
	gq := flag.String("gq", "gq", "the `PROGRAM`")
	shape := flag.String("shapes", "1B", "1B, 70B or 1T")
	rate := flag.Int64("rate", 100_000_000, "`BYTES` a second of the server; 0: no limit")
	seconds := flag.Float64("seconds", 0, "end gq after so many seconds; 0: let it finish")
	flag.Parse()
	if err := repository.Enter(); err != nil {
		log.Fatal(err)
	}
	if err := measure(*gq, *shape, *rate, *seconds, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

// measure downloads and quantizes a model. args are further arguments of gq quantize.
func measure(gq, shape string, rate int64, seconds float64, args []string) error {
	build, ok := shapes[shape]
	if !ok {
		return fmt.Errorf("no shapes of the name %s", shape)
	}
	m := build()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	line := &line{rate: rate}
	server := &http.Server{Handler: serve(m, line)}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	base := "http://" + listener.Addr().String() + "/model"
	dir, err := os.MkdirTemp("", "gq-remote")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	size := int64(0)
	for _, f := range m.Files {
		size += f.Size
	}
	fmt.Printf("%s: %.2f G parameters, %.2f GB\n", shape, float64(m.Parameters)/1e9, float64(size)/1e9)
	plain := 0.0
	if seconds == 0 {
		if plain, err = download(m, base); err != nil {
			return err
		}
		fmt.Printf("plain download: %.1f s, %.1f MB/s\n", plain, float64(size)/plain/1e6)
	}
	before := line.sent()
	cmd := exec.Command(gq, append([]string{"quantize", base, "-o", filepath.Join(dir, "x.gqf"), "--quiet"}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+dir)
	cmd.Stderr = os.Stderr
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	most := make(chan int64)
	go func() { most <- watch(ctx, cmd.Process.Pid) }()
	if seconds > 0 {
		time.AfterFunc(time.Duration(seconds*float64(time.Second)), func() { _ = cmd.Process.Kill() })
	}
	err = cmd.Wait()
	took := time.Since(start).Seconds()
	stop()
	private := <-most
	if exit := new(exec.ExitError); err != nil && (seconds == 0 || !errors.As(err, &exit)) {
		return err
	}
	fmt.Printf("gq quantize: %.1f s, CPU time %.1f s user and %.1f s system, RssAnon at most %.0f MB, %.2f GB were read\n",
		took, cmd.ProcessState.UserTime().Seconds(), cmd.ProcessState.SystemTime().Seconds(), float64(private)/1e6, float64(line.sent()-before)/1e9)
	if plain > 0 {
		fmt.Printf("%.3f times the plain download\n", took/plain)
	}
	return nil
}

// line is the connection of the server to everybody.
type line struct {
	rate int64
	mu   sync.Mutex
	free time.Time
	n    int64
}

func (l *line) sent() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// credit is how long a line that was idle may send faster.
const credit = 200 * time.Millisecond

// send waits until n bytes fit the rate.
func (l *line) send(n int) {
	l.mu.Lock()
	l.n += int64(n)
	if now := time.Now(); l.free.Before(now.Add(-credit)) { // a late wake-up costs no rate
		l.free = now.Add(-credit)
	}
	if l.rate > 0 {
		l.free = l.free.Add(time.Duration(float64(n) / float64(l.rate) * 1e9))
	}
	until := l.free
	l.mu.Unlock()
	time.Sleep(time.Until(until))
}

// throttled is an answer on the line.
type throttled struct {
	http.ResponseWriter
	line *line
}

func (t throttled) Write(p []byte) (int, error) {
	done := 0
	for len(p) > 0 {
		n, err := t.ResponseWriter.Write(p[:min(len(p), 64<<10)])
		done += n
		if err != nil {
			return done, err
		}
		t.line.send(n)
		p = p[n:]
	}
	return done, nil
}

// serve serves the files of a model below /model/.
func serve(m *testgiant.Model, l *line) http.Handler {
	mux := http.NewServeMux()
	add := func(name string, size int64, content io.ReaderAt) {
		mux.HandleFunc("/model/"+name, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`)
			http.ServeContent(throttled{w, l}, r, name, time.Time{}, io.NewSectionReader(content, 0, size))
		})
	}
	for _, f := range m.Files {
		add(f.Name, f.Size, f)
	}
	add("config.json", int64(len(m.Config)), bytes.NewReader(m.Config))
	add("model.safetensors.index.json", int64(len(m.Index)), bytes.NewReader(m.Index))
	return mux
}

// download reads all files by ranges, six at a time, and throws them away.
func download(m *testgiant.Model, base string) (seconds float64, err error) {
	const piece = 64 << 20
	start := time.Now()
	places := make(chan struct{}, 6)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, f := range m.Files {
		for off := int64(0); off < f.Size; off += piece {
			places <- struct{}{}
			wg.Go(func() {
				defer func() { <-places }()
				if e := discard(base+"/"+f.Name, off, min(piece, f.Size-off)); e != nil {
					mu.Lock()
					defer mu.Unlock()
					err = errors.Join(err, e)
				}
			})
		}
	}
	wg.Wait()
	return time.Since(start).Seconds(), err
}

// discard reads a range.
func discard(url string, off, n int64) error {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if got, err := io.Copy(io.Discard, resp.Body); err != nil || got != n {
		return fmt.Errorf("%s: %d bytes of %d, %w", url, got, n, err)
	}
	return nil
}

// watch returns the greatest private memory of a process, looked at every 10 ms.
func watch(ctx context.Context, pid int) (most int64) {
	for ctx.Err() == nil {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if _, after, ok := bytes.Cut(status, []byte("RssAnon:")); ok {
			if n, err := strconv.ParseInt(string(bytes.Fields(after)[0]), 10, 64); err == nil {
				most = max(most, n<<10)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return most
}
