package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testoutliers"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

var update = flag.Bool("update", false, "rewrite the golden outputs in testdata/script")

// TestMain lets the test binary run as the command gq in scripts.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"gq": main})
}

// TestScript runs testdata/script/*.txt. Scripts have testscript's own commands, and the functions
// below under the same names. MODEL is the bundled model. SMALL has two of its layers and ONE has
// one, for jobs that run the model many times. ADAPTER is an adapter of SMALL. TEXT is the bundled
// text. Commands have one CPU, as scripts run in parallel; same-bytes.txt and TestGolden have all
// CPUs.
func TestScript(t *testing.T) {
	if path, err := exec.LookPath("gq"); err == nil {
		if err := exec.Command(path, "--version").Run(); errors.Is(err, syscall.ENOEXEC) {
			t.Skip("the system cannot run this binary by itself (an emulator did); the scripts are run natively")
		}
	}
	model, err := filepath.Abs("../../testdata/books1.3M-bf16")
	if err != nil {
		t.Fatal(err)
	}
	one, small := testmodels.Books(t, 1), testmodels.Books(t, 2)
	adapter := testmodels.Adapter(t, small)
	text, err := filepath.Abs("../../testdata/text/lighthouse.txt")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("MODEL", model)
			env.Setenv("SMALL", small)
			env.Setenv("ONE", one)
			env.Setenv("ADAPTER", adapter)
			env.Setenv("TEXT", text)
			env.Setenv("GOMAXPROCS", "1")
			env.Values[servedKey{}] = new(*served)
			return nil
		},
		Condition: condition,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"status":      status,
			"closedpipe":  closedPipe,
			"json":        jsonValue,
			"size":        size,
			"files":       files,
			"copydir":     copyDir,
			"samedir":     sameDir,
			"flip":        flip,
			"newer":       newer,
			"truncate":    truncate,
			"safetensors": safetensors,
			"outliers":    outliers,
			"midjob":      midJob,
			"plan":        plan,
			"gguf":        ggufFile,
			"imatrixgguf": imatrixGGUF,
			"refuses":     refuses,
			"protects":    protects,
			"bounded":     boundedCommand,
			"interrupts":  interrupts,
			"serving":     serving,
			"ask":         ask,
			"ends":        ends,
			"hub":         hub(t),
			"nosecrets":   noSecrets,
		},
	})
}

// condition implements [tmpfs], whether this user can mount one, and [root].
func condition(cond string) (bool, error) {
	switch cond {
	case "tmpfs":
		if runtime.GOOS != "linux" {
			return false, nil
		}
		dir, err := os.MkdirTemp("", "gq-tmpfs")
		if err != nil {
			return false, err
		}
		defer os.Remove(dir)
		return exec.Command("unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", dir).Run() == nil, nil
	case "root":
		return os.Geteuid() == 0, nil
	}
	return false, fmt.Errorf("unknown condition %q", cond)
}

// status N COMMAND...: the command must exit with status N. If N is not 0, it must print one line
// on standard error that starts with "gq: "; if N is 2, nothing on standard output.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command...")
	}
	err := ts.Exec(args[1], args[2:]...)
	checkStatus(ts, args[0], err)
	stderr := ts.ReadFile("stderr")
	if args[0] == "0" {
		return
	}
	if !strings.HasPrefix(stderr, "gq: ") || strings.Count(stderr, "\n") != 1 || !strings.HasSuffix(stderr, "\n") {
		ts.Fatalf("standard error is not one line that starts with gq: %q", stderr)
	}
	if stdout := ts.ReadFile("stdout"); args[0] == "2" && stdout != "" {
		ts.Fatalf("wrong usage wrote to standard output: %q", stdout)
	}
}

func checkStatus(ts *testscript.TestScript, want string, err error) {
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != want {
		ts.Fatalf("exit status %d, want %s", code, want)
	}
}

// closedPipe N COMMAND...: with a closed standard output, the command must exit with status N and
// must not be killed.
func closedPipe(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: closedpipe N command...")
	}
	r, w, err := os.Pipe()
	ts.Check(err)
	ts.Check(r.Close())
	defer w.Close()
	cmd := command(ts, args[1:])
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &stderr
	checkStatus(ts, args[0], cmd.Run())
	if lines := strings.Count(stderr.String(), "\n"); (lines == 0) != (args[0] == "0") || lines > 1 {
		ts.Fatalf("standard error has %d lines: %q", lines, stderr.String())
	}
}

// command prepares a process outside testscript, in the script's environment.
func command(ts *testscript.TestScript, args []string) *exec.Cmd {
	path, err := exec.LookPath(args[0])
	ts.Check(err)
	cmd := exec.Command(path, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = os.Environ()
	for _, name := range []string{"MODEL", "SMALL", "ONE", "TEXT", "GQ_CPU", "GOMAXPROCS"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	return cmd
}

// json [KEY.KEY... [WANT]]: standard output must be one JSON value. A path of keys and indices must
// have a value, which is WANT; without WANT it goes to the environment variable JSON.
func jsonValue(ts *testscript.TestScript, neg bool, args []string) {
	d := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		ts.Fatalf("standard output is not JSON: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		ts.Fatalf("standard output goes on after the JSON value")
	}
	if neg || len(args) == 0 {
		return
	}
	for key := range strings.SplitSeq(args[0], ".") {
		switch x := v.(type) {
		case map[string]any:
			inner, ok := x[key]
			if !ok {
				ts.Fatalf("no key %q of %s", key, args[0])
			}
			v = inner
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(x) {
				ts.Fatalf("no element %q of %s: the list has %d", key, args[0], len(x))
			}
			v = x[i]
		default:
			ts.Fatalf("%s: nothing below %v", args[0], v)
		}
	}
	got := fmt.Sprint(v)
	if len(args) > 1 && got != args[1] {
		ts.Fatalf("%s is %s, want %s", args[0], got, args[1])
	}
	if js, err := json.Marshal(v); err == nil && js[0] != '"' {
		got = string(js)
	}
	ts.Setenv("JSON", got)
}

// size FILE N: the file must have N bytes.
func size(ts *testscript.TestScript, neg bool, args []string) {
	st, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if got := strconv.FormatInt(st.Size(), 10); (got == args[1]) == neg {
		ts.Fatalf("%s has %s bytes", args[0], got)
	}
}

// files DIR NAME...: the directory must hold exactly these files, including hidden ones. The random
// part of a temporary's name is spelled "*".
func files(ts *testscript.TestScript, neg bool, args []string) {
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	got := []string{}
	for _, e := range entries {
		name := e.Name()
		if i := strings.LastIndex(name, ".gq-"); i >= 0 && strings.HasSuffix(name, ".tmp") {
			name = name[:i] + ".gq-*.tmp"
		}
		if name != ".tmp" { // testscript's
			got = append(got, name)
		}
	}
	want := slices.Sorted(slices.Values(args[1:]))
	slices.Sort(got)
	if slices.Equal(got, want) == neg {
		ts.Fatalf("%s holds %q", args[0], got)
	}
}

// plan: sets PLAN to the plan of the part that the last command has made.
func plan(ts *testscript.TestScript, _ bool, _ []string) {
	m := regexp.MustCompile(`plan ([0-9a-f]{24})\b`).FindStringSubmatch(ts.ReadFile("stdout"))
	if m == nil {
		ts.Fatalf("the output has no plan")
	}
	ts.Setenv("PLAN", m[1])
}

// copydir SRC DST: copies the files of a directory to a new one.
func copyDir(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.CopyFS(ts.MkAbs(args[1]), os.DirFS(ts.MkAbs(args[0]))))
}

// samedir A B: the directories must hold files of the same names and contents.
func sameDir(ts *testscript.TestScript, neg bool, args []string) {
	var list [2]map[string]string
	for i, dir := range args[:2] {
		list[i] = map[string]string{}
		entries, err := os.ReadDir(ts.MkAbs(dir))
		ts.Check(err)
		for _, e := range entries {
			list[i][e.Name()] = ts.ReadFile(filepath.Join(ts.MkAbs(dir), e.Name()))
		}
	}
	if len(list[0]) == 0 {
		ts.Fatalf("%s is empty", args[0])
	}
	for name := range list[0] {
		if _, ok := list[1][name]; !ok || list[0][name] != list[1][name] {
			ts.Fatalf("%s differs", name)
		}
	}
	if len(list[0]) != len(list[1]) {
		ts.Fatalf("%s has %d files, %s has %d", args[0], len(list[0]), args[1], len(list[1]))
	}
}

// flip FILE OFFSET[+N] BIT: flips a bit of the file.
func flip(ts *testscript.TestScript, _ bool, args []string) {
	offset := 0
	for term := range strings.SplitSeq(args[1], "+") {
		n, err := strconv.Atoi(term)
		ts.Check(err)
		offset += n
	}
	bit, err := strconv.Atoi(args[2])
	ts.Check(err)
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	b[offset] ^= 1 << bit
	ts.Check(os.WriteFile(path, b, 0o666))
}

// truncate FILE N: truncates the file to N bytes.
func truncate(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), n))
}

// safetensors FILE HEADER BYTES: makes a file with a JSON header and so many zero bytes of data. It
// is sparse, so a large one takes no time and no space.
func safetensors(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.ParseInt(args[2], 10, 64)
	ts.Check(err)
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(args[1])))
	b = append(b, args[1]...)
	path := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(path, b, 0o666))
	ts.Check(os.Truncate(path, int64(len(b))+n))
}

// midjob KILL|INT TARGET COMMAND...: the file TARGET must still hold "old" if the command, which
// replaces it, gets the signal while its temporary exists. Standard error goes to the file
// "midjob.stderr".
//
// If the job ends before the signal arrives, midjob tries again. A job that changes TARGET too
// early fails all tries.
func midJob(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || args[0] != "KILL" && args[0] != "INT" {
		ts.Fatalf("usage: midjob KILL|INT target command...")
	}
	target := ts.MkAbs(args[1])
	for range 20 {
		ts.Check(os.WriteFile(target, []byte("old\n"), 0o666))
		cmd := command(ts, args[2:])
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		ts.Check(cmd.Start())
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		err := error(nil)
		for ended := false; !ended; {
			temps, _ := filepath.Glob(filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+".gq-*.tmp"))
			if len(temps) > 0 {
				if args[0] == "KILL" {
					cmd.Process.Kill()
				} else {
					cmd.Process.Signal(os.Interrupt)
				}
				err, ended = <-done, true
				break
			}
			select {
			case err = <-done:
				ended = true
			case <-time.After(100 * time.Microsecond):
			}
		}
		if now, _ := os.ReadFile(target); err == nil || string(now) != "old\n" {
			continue // it ended before the signal
		}
		if args[0] == "INT" {
			checkStatus(ts, "130", err)
		}
		ts.Check(os.WriteFile(ts.MkAbs("midjob.stderr"), stderr.Bytes(), 0o666))
		return
	}
	ts.Fatalf("the job was done before the signal, in all tries")
}

// newer FILE PREFIX VARIANT: gives the variant of each quantized tensor with this prefix a layout
// of a newer version.
func newer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: newer FILE PREFIX VARIANT")
	}
	path := ts.MkAbs(args[0])
	variant, err := strconv.Atoi(args[2])
	ts.Check(err)
	b, err := os.ReadFile(path)
	ts.Check(err)
	f, err := gqf.OpenBytes(b, gqf.Options{})
	ts.Check(err)
	changed := 0
	for i := range f.NumPayloads() {
		if p := f.Payload(i); p.Stored == variant && p.Header.Bits > 0 && strings.HasPrefix(f.Tensor(p.Tensor).Name, args[1]) {
			testshared.Record(b, testshared.SecPayloads, i)[32+6] = 99
			changed++
		}
	}
	if changed == 0 {
		ts.Fatalf("no tensor %s... with a variant %d", args[1], variant)
	}
	testshared.Seal(b)
	ts.Check(os.WriteFile(path, b, 0o666))
}

// outliers makes a copy of a checkpoint with outliers in its activations: outliers SOURCE COPY.
func outliers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: outliers SOURCE COPY")
	}
	_, err := testoutliers.Copy(context.Background(), ts.MkAbs(args[0]), ts.MkAbs(args[1]), testoutliers.Options{Seed: 1})
	ts.Check(err)
}
