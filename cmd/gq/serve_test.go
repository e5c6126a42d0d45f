package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// A served is a running gq serve of a script.
type served struct {
	cmd *exec.Cmd
	url string
	log bytes.Buffer
}

// servedKey finds the running server of a script.
type servedKey struct{}

// serving ARGS...: starts gq serve on a free port and waits until it is ready. Standard output is
// its line of JSON. The environment variable KEY is the API key of later requests.
func serving(ts *testscript.TestScript, neg bool, args []string) {
	cmd := command(ts, append([]string{"gq", "serve", "--port", "0", "--json"}, args...))
	s := &served{cmd: cmd}
	cmd.Stderr = &s.log
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() {
		if s.cmd.ProcessState == nil {
			s.cmd.Process.Kill()
			s.cmd.Wait()
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		cmd.Wait()
		ts.Fatalf("gq serve is not ready: %v\n%s", err, s.log.String())
	}
	io.WriteString(ts.Stdout(), line)
	var ready struct{ URL string }
	ts.Check(json.Unmarshal([]byte(line), &ready))
	s.url = ready.URL
	*ts.Value(servedKey{}).(**served) = s
}

// ask STATUS PATH [BODY]: sends a request, which must be answered with the status. Standard output
// is the answer.
func ask(ts *testscript.TestScript, neg bool, args []string) {
	s := *ts.Value(servedKey{}).(**served)
	if neg || len(args) < 2 || s == nil {
		ts.Fatalf("usage: ask status path [body], after serving")
	}
	method, body := http.MethodGet, ""
	if len(args) > 2 {
		method, body = http.MethodPost, args[2]
	}
	r, err := http.NewRequest(method, s.url+args[1], strings.NewReader(body))
	ts.Check(err)
	r.Header.Set("Content-Type", "application/json")
	if key := ts.Getenv("KEY"); key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := http.DefaultClient.Do(r)
	ts.Check(err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	ts.Check(err)
	ts.Stdout().Write(b)
	if strconv.Itoa(answer.StatusCode) != args[0] {
		ts.Fatalf("status %d, want %s: %s", answer.StatusCode, args[0], b)
	}
}

// ends STATUS: sends SIGTERM to the server, which must exit with the status. Standard output is its
// log.
func ends(ts *testscript.TestScript, neg bool, args []string) {
	s := *ts.Value(servedKey{}).(**served)
	if neg || len(args) != 1 || s == nil {
		ts.Fatalf("usage: ends status, after serving")
	}
	ts.Check(s.cmd.Process.Signal(syscall.SIGTERM))
	checkStatus(ts, args[0], s.cmd.Wait())
	ts.Check(os.WriteFile(ts.MkAbs("serve.log"), s.log.Bytes(), 0o666))
	ts.Stdout().Write(s.log.Bytes())
}
