package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// refuses STATUS COMMAND...: the command, in which "@" stands for a path, must fail with STATUS and
// an error that names the path, for a named pipe, endless devices and a directory. It must not wait
// for any of them.
func refuses(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || !strings.Contains(strings.Join(args[1:], " "), "@") {
		ts.Fatalf("usage: refuses STATUS command with @")
	}
	for path, want := range map[string]string{"pipe": "", "/dev/zero": "", "/dev/full": "", "directory": "directory"} {
		stderr := bounded(ts, args[0], replace(args[1:], path))
		if !strings.Contains(stderr, path) || !strings.Contains(stderr, want) {
			ts.Fatalf("%s: standard error does not name it: %q", path, stderr)
		}
	}
}

// protects FILE COMMAND...: the command, in which "@" stands for an output, must refuse to
// overwrite the input FILE by its own path, another path, a hard link or a symbolic link.
func protects(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || !strings.Contains(strings.Join(args[1:], " "), "@") {
		ts.Fatalf("usage: protects FILE command with @")
	}
	file, ext := args[0], filepath.Ext(args[0])
	before, err := os.ReadFile(ts.MkAbs(file))
	ts.Check(err)
	hard, soft := "hardlink"+ext, "softlink"+ext
	ts.Check(os.Link(ts.MkAbs(file), ts.MkAbs(hard)))
	defer os.Remove(ts.MkAbs(hard))
	ts.Check(os.Symlink(file, ts.MkAbs(soft)))
	defer os.Remove(ts.MkAbs(soft))
	for _, path := range []string{file, "directory/../" + file, ts.MkAbs(file), hard, soft} {
		stderr := bounded(ts, "2", replace(args[1:], path))
		if !strings.Contains(stderr, path) || !strings.Contains(stderr, "of this job") {
			ts.Fatalf("%s: standard error does not say why: %q", path, stderr)
		}
		for _, name := range []string{file, hard} {
			if now, err := os.ReadFile(ts.MkAbs(name)); err != nil || !bytes.Equal(now, before) {
				ts.Fatalf("%s is not what it was (%v)", name, err)
			}
		}
	}
}

// bounded STATUS REGEXP COMMAND...: the command must fail with STATUS and one line that the
// expression matches, without waiting.
func boundedCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: bounded STATUS regexp command...")
	}
	want, err := regexp.Compile(args[1])
	ts.Check(err)
	if stderr := bounded(ts, args[0], args[2:]); !want.MatchString(strings.TrimSpace(stderr)) {
		ts.Fatalf("standard error is %q, want %q", stderr, args[1])
	}
}

// interrupts COMMAND...: the command, which waits for standard input, must exit with status 130
// when interrupted.
func interrupts(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: interrupts command...")
	}
	// The shell ignores signals that come before the command listens.
	cmd := command(ts, append([]string{"sh", "-c", `trap "" INT; exec "$@"`, "sh"}, args...))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	ts.Check(err)
	defer stdin.Close()
	ts.Check(cmd.Start())
	kill := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
	defer kill.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case <-tick.C:
			_ = cmd.Process.Signal(os.Interrupt)
		case err := <-done:
			checkStatus(ts, "130", err)
			if got := stderr.String(); got != "gq: interrupted\n" {
				ts.Fatalf("standard error is %q", got)
			}
			return
		}
	}
}

func replace(args []string, path string) []string {
	var list []string
	for _, a := range args {
		list = append(list, strings.ReplaceAll(a, "@", path))
	}
	return list
}

// bounded runs a command that must fail with a status and one line on standard error, and returns
// the line. It kills a command that waits.
func bounded(ts *testscript.TestScript, status string, args []string) string {
	cmd := command(ts, args)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	ts.Check(cmd.Start())
	kill := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	if !kill.Stop() {
		ts.Fatalf("%q waits", args)
	}
	ts.Logf("%q: %s", args, stderr.String())
	checkStatus(ts, status, err)
	if s := stderr.String(); !strings.HasPrefix(s, "gq: ") || strings.Count(s, "\n") != 1 {
		ts.Fatalf("%q: standard error is not one line: %q", args, s)
	}
	return stderr.String()
}
