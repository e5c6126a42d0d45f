package atomicfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// childEnv makes the test binary a writer of the file it names.
const (
	childEnv = "GQ_ATOMICFILE_TEST_TARGET"
	loopEnv  = "GQ_ATOMICFILE_TEST_LOOP"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		if err := child(path, os.Getenv(loopEnv) != ""); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// child half-writes the file at path, says so and waits; or, with loop, commits one
// content after the other. It ends by being killed.
func child(path string, loop bool) error {
	for i := 0; ; i++ {
		f, err := Create(path)
		if err != nil {
			return err
		}
		content := generation(i)
		half := len(content) / 2
		if _, err := f.WriteAt(content[:half], 0); err != nil {
			return err
		}
		fmt.Println("writing")
		if !loop {
			time.Sleep(time.Hour)
		}
		if _, err := f.WriteAt(content[half:], int64(half)); err != nil {
			return err
		}
		if err := f.Commit(); err != nil {
			return err
		}
	}
}

// generation is the i-th complete content.
func generation(i int) []byte {
	return bytes.Repeat([]byte{byte(i)}, 100_000+i%7)
}

// start runs a child until it is writing for the times-th time.
func start(t *testing.T, path string, loop bool, times int) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	if loop {
		cmd.Env = append(cmd.Env, loopEnv+"=1")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	if errors.Is(err, syscall.ENOEXEC) {
		t.Skip("this machine runs the test in an emulator and cannot start its like")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	lines := bufio.NewScanner(out)
	for range times {
		if !lines.Scan() || lines.Text() != "writing" {
			t.Fatalf("the child says %q (%v)", lines.Text(), lines.Err())
		}
	}
	go func() { // or the child would stop at a full pipe
		for lines.Scan() {
		}
	}()
	return cmd
}

// kill ends the process as kill -9 does.
func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	put(t, path, "old")
	cmd := start(t, path, false, 1)

	create(t, path).Abort()
	if list := names(t, dir); len(list) != 2 {
		t.Fatalf("with a live writer the directory holds %q, want its temporary and the target", list)
	}
	kill(cmd)
	wantContent(t, path, "old")
	if list := names(t, dir); len(list) != 2 || !isTempOf(list[0], "out") {
		t.Fatalf("after the kill the directory holds %q", list)
	}
	create(t, path).Abort()
	wantNames(t, dir, "out")
	wantContent(t, path, "old")
}

func TestKilledAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	for range 8 {
		cmd := start(t, path, true, 2)
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		kill(cmd)
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if i := int(got[0]); len(bytes.Trim(got, string(got[:1]))) != 0 || len(got) < 100_000 {
			t.Fatalf("the target is not a complete content: %d bytes, the first is %d", len(got), i)
		}
		if list := names(t, dir); len(list) > 2 {
			t.Fatalf("more than one temporary is left: %q", list)
		}
	}
	create(t, path).Abort()
	wantNames(t, dir, "out")
}
