package cluster

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// gq is the program under test.
var gq string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cluster")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	gq = filepath.Join(dir, "gq")
	build := exec.Command("go", "build", "-o", gq, "./cmd/gq")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Printf("%v\n%s", err, out)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// root is gq's own directory, model a small checkpoint there.
var (
	root, _ = filepath.Abs("../..")
	model   = filepath.Join(root, "testdata", "books1.3M-bf16")
)

// Credentials, which no output may hold.
const (
	accessKey = "AKIDTESTTESTTESTTEST"
	secretKey = "secretSECRETsecretSECRETsecretSECRET0123"
	session   = "sessionTOKENsessionTOKENsessionTOKEN4567"
)

// store is an S3 server with one bucket, behind a proxy that counts requests and fails some.
type store struct {
	t       testing.TB
	backend *s3mem.Backend
	url     string
	proxy   *httputil.ReverseProxy

	mu       sync.Mutex
	requests []string
	tags     *tags // nil: ETags are the server's
	// fault answers the request in place of the server, and says so; n counts requests from 1. nil: no
	// faults.
	fault func(n int, w http.ResponseWriter, r *http.Request) bool
}

const bucket = "bucket"

func newStore(t testing.TB) *store {
	s := &store{t: t, backend: s3mem.New()}
	if err := s.backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(s.backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(server.Close)
	to, _ := url.Parse(server.URL)
	s.proxy = httputil.NewSingleHostReverseProxy(to)
	s.proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { reset(w) }
	front := httptest.NewServer(s)
	t.Cleanup(front.Close)
	s.url = front.URL
	return s
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	n, fault := len(s.requests), s.fault
	s.mu.Unlock()
	if fault == nil || !fault(n, w, r) {
		s.forward(w, r)
	}
}

// forward lets the server answer.
func (s *store) forward(w http.ResponseWriter, r *http.Request) {
	if s.tags != nil {
		s.tags.forward(s.proxy, w, r)
		return
	}
	s.proxy.ServeHTTP(w, r)
}

// count is how many requests came so far.
func (s *store) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func (s *store) setFault(f func(n int, w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.requests = f, nil
}

// reset breaks the connection.
func reset(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
}

// get returns an object, or nil if there is none.
func (s *store) get(key string) []byte {
	s.t.Helper()
	o, err := s.backend.GetObject(bucket, key, nil)
	if err != nil {
		return nil
	}
	defer o.Contents.Close()
	b, err := io.ReadAll(o.Contents)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// put stores an object.
func (s *store) put(key string, data []byte) {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodPut, s.url+"/"+bucket+"/"+key, bytes.NewReader(data))
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	a.Body.Close()
	if a.StatusCode != http.StatusOK {
		s.t.Fatal(a.Status)
	}
}

// uploads lists the unfinished uploads.
func (s *store) uploads() (list []string) {
	s.t.Helper()
	a, err := http.Get(s.url + "/" + bucket + "?uploads")
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil || a.StatusCode != http.StatusOK {
		s.t.Fatalf("%v: %s", a.Status, b)
	}
	for _, piece := range strings.Split(string(b), "<UploadId>")[1:] {
		list = append(list, piece[:strings.IndexByte(piece, '<')])
	}
	return list
}

// command is gq with arguments, the credentials of the store, and directories of its own.
func (s *store) command(args ...string) *exec.Cmd {
	c := exec.CommandContext(s.t.Context(), gq, args...)
	home := s.t.TempDir()
	c.Dir = home
	c.Env = append(os.Environ(), "HOME="+home, "XDG_CACHE_HOME="+filepath.Join(home, "cache"), "AWS_ENDPOINT_URL="+s.url,
		"AWS_ACCESS_KEY_ID="+accessKey, "AWS_SECRET_ACCESS_KEY="+secretKey, "AWS_SESSION_TOKEN="+session, "AWS_EC2_METADATA_DISABLED=true", "NO_COLOR=1")
	return c
}

// run runs gq and returns everything it says, which holds no credential.
func (s *store) run(args ...string) (string, error) {
	s.t.Helper()
	return output(s.t, s.command(args...))
}

// merge is the command that merges the parts of an object. part are the arguments that make one of
// them.
func (s *store) merge(object string, part []string) []string {
	s.t.Helper()
	plan, err := s.run(with(part, "--dry-run")...)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, plan)
	}
	return []string{"merge", object, "--plan", strings.TrimSpace(plan), "-q"}
}

func output(t testing.TB, c *exec.Cmd) (string, error) {
	t.Helper()
	out, err := c.CombinedOutput()
	for _, secret := range []string{accessKey, secretKey, session} {
		if strings.Contains(string(out), secret) {
			t.Errorf("gq %q prints a credential:\n%s", c.Args[1:], out)
		}
	}
	return string(out), err
}

// local is the file that gq makes with the arguments on this machine.
func local(t testing.TB, name string, args ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command(gq, append(args, "-o", path)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
