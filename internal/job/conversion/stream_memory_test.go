package conversion

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/divide"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/internal/test/testgiant"
)

// giants are checkpoints that are larger than any disk of a test machine.
var giants = map[string]func() *testgiant.Model{
	"1T":     func() *testgiant.Model { return testgiant.Experts("BF16", 61, 384, 7168, 2048, 163840) },
	"1T FP8": func() *testgiant.Model { return testgiant.Experts("F8_E4M3", 61, 384, 7168, 2048, 163840) },
	"70B":    func() *testgiant.Model { return testgiant.Dense(80, 8192, 28672, 128256, 64, 8) },
}

const (
	memoryURL  = "GQ_TEST_STREAM_URL" // makes the test binary the child of TestStreamMemory
	memoryJob  = "GQ_TEST_STREAM_JOB"
	maxPrivate = 256 << 20
)

// streamMemory is the report of the child process.
type streamMemory struct {
	Tensors, Units int
	Output         int64
	Headers, Plan  int64 // the largest RssAnon up to the end of a step
	Peak           int64
	Bytes          int64 // of the checkpoint, quantized
}

// TestStreamMemory plans giants from the headers that a server makes, and makes one part of 3,000.
// The part reads more than 256 MiB. Private memory stays below 256 MiB.
func TestStreamMemory(t *testing.T) {
	if url := os.Getenv(memoryURL); url != "" {
		streamChild(t, url, os.Getenv(memoryJob))
		return
	}
	if runtime.GOOS != "linux" {
		t.Skip("memory is read from /proc")
	}
	if testing.Short() {
		t.Skip("-short: the race detector takes memory too, and an emulator takes minutes")
	}
	for _, c := range []struct{ giant, job string }{{"1T", "plan"}, {"1T FP8", "123/12000"}, {"70B", "7/2000"}} {
		t.Run(c.giant+" "+strings.ReplaceAll(c.job, "/", " of "), func(t *testing.T) {
			m := giants[c.giant]()
			server := httptest.NewServer(serveGiant(m))
			defer server.Close()
			cmd := exec.Command(os.Args[0], "-test.run=^TestStreamMemory$", "-test.v")
			cmd.Env = append(os.Environ(), "GOMEMLIMIT=", "GOGC=", memoryURL+"="+server.URL, memoryJob+"="+c.job)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			_, result, _ := bytes.Cut(out, []byte("RESULT "))
			line, _, _ := bytes.Cut(result, []byte("\n"))
			var r streamMemory
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%d parameters, %d tensors, %d units, %d MB of output: RssAnon at most %d MB for headers, %d for the plan, %d for all; %d MB quantized",
				m.Parameters, r.Tensors, r.Units, r.Output/1e6, r.Headers>>20, r.Plan>>20, r.Peak>>20, r.Bytes/1e6)
			if r.Peak > maxPrivate || r.Peak < 1<<20 {
				t.Errorf("RssAnon was up to %d bytes, the limit is %d", r.Peak, maxPrivate)
			}
			if c.job != "plan" && r.Bytes < 50e6 {
				t.Errorf("%d bytes were quantized", r.Bytes)
			}
		})
	}
}

// serveGiant serves the files of a model by range.
func serveGiant(m *testgiant.Model) http.Handler {
	mux := http.NewServeMux()
	for _, f := range m.Files {
		mux.HandleFunc("/"+f.Name, func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, f.Name, time.Time{}, io.NewSectionReader(f, 0, f.Size))
		})
	}
	small := func(b []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(b) }
	}
	mux.HandleFunc("/config.json", small(m.Config))
	mux.HandleFunc("/"+safetensors.IndexName, small(m.Index))
	var list []string
	for _, f := range m.Files {
		list = append(list, fmt.Sprintf("%s %d", f.Name, f.Size))
	}
	mux.HandleFunc("/list", small([]byte(strings.Join(list, "\n"))))
	return mux
}

// streamChild runs a job on the checkpoint at a URL, with the memory limit of the command.
func streamChild(t *testing.T, url, job string) {
	memlimit.Set(212 << 20) // as the command gq
	dir := t.TempDir()
	for _, name := range []string{"config.json", safetensors.IndexName, "list"} {
		if err := download(url+"/"+name, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	list, err := os.ReadFile(filepath.Join(dir, "list"))
	if err != nil {
		t.Fatal(err)
	}
	var remote []safetensors.RemoteFile
	for line := range strings.Lines(string(list)) {
		var f safetensors.RemoteFile
		if _, err := fmt.Sscan(line, &f.Name, &f.Size); err != nil {
			t.Fatal(err)
		}
		f.ReadAt = func(ctx context.Context, dst []byte, off int64) error {
			return readRange(ctx, url+"/"+f.Name, dst, off)
		}
		remote = append(remote, f)
	}
	list = nil

	var r streamMemory
	var peak, quantized atomic.Int64
	stop := watchPrivate(&peak)
	ck, err := safetensors.Open(dir, safetensors.Options{Remote: remote})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	r.Headers = peak.Load()
	opts := Options{Threads: 2}
	opts.Recipe.Algorithm, opts.Recipe.Bits = gqf.AlgorithmRTN, 8 // the memory does not depend on them
	p := planElsewhere(t, ck, opts)
	r.Plan = peak.Load()
	r.Tensors, r.Units, r.Output = len(ck.Tensors()), p.Units().N, p.OutputBytes
	if job != "plan" {
		o := divide.PartOptions{Progress: func(n int64) { quantized.Add(n) }}
		if _, err := fmt.Sscanf(job, "%d/%d", &o.Index, &o.Of); err != nil {
			t.Fatal(err)
		}
		if _, err := divide.WritePart(t.Context(), p, filepath.Join(dir, "x.gqf"), o); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	r.Peak, r.Bytes = peak.Load(), quantized.Load()
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("RESULT %s\n", line)
}

// readRange reads a range from a server.
func readRange(ctx context.Context, url string, dst []byte, off int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+int64(len(dst))-1))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusPartialContent {
		return fmt.Errorf("status %s", resp.Status)
	}
	_, err = io.ReadFull(resp.Body, dst)
	return err
}

func download(url, path string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(f, resp.Body)
	return err
}

// watchPrivate raises most to the private memory of this process, again and again, until stop.
func watchPrivate(most *atomic.Int64) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	look := func() {
		raw, err := os.ReadFile("/proc/self/status")
		_, after, found := bytes.Cut(raw, []byte("RssAnon:"))
		if err != nil || !found {
			return
		}
		field := bytes.Fields(after)[0]
		if n, err := strconv.ParseInt(string(field), 10, 64); err == nil {
			most.Store(max(most.Load(), n<<10))
		}
	}
	go func() {
		defer close(ended)
		for {
			look()
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return func() { close(done); <-ended; look() }
}
