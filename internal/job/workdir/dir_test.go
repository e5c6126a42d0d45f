package workdir

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childEnv makes the test binary a process that has the directory it names open.
const childEnv = "GQ_WORKDIR_TEST_DIR"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		d, err := Open(path)
		if err == nil {
			err = d.PutJSON("text", "key", "from the child")
		}
		fmt.Println("open", err)
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

func mustOpen(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestLocked opens the directory in another process: the error names that process. When the process
// is killed, the directory is free, and holds the entries that the process finished.
func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.calib")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); errors.Is(err, syscall.ENOEXEC) {
		t.Skip("this machine runs the test in an emulator and cannot start its like")
	} else if err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open <nil>\n" {
		t.Fatalf("the child says %q (%v)", line, err)
	}
	_, err = Open(path)
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Dir != path || locked.PID != cmd.Process.Pid {
		t.Fatalf("a second job: %v, want one that names %s and process %d", err, path, cmd.Process.Pid)
	}
	if text := err.Error(); !strings.Contains(text, path) || !strings.Contains(text, fmt.Sprint("process ", cmd.Process.Pid)) {
		t.Errorf("the error says %q", text)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	d := mustOpen(t, path)
	var text string
	if !d.GetJSON("text", "key", &text) || text != "from the child" {
		t.Errorf("the killed process left %q", text)
	}
}

// TestLockedHere opens a directory twice in one process.
func TestLockedHere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.calib")
	d := mustOpen(t, path)
	var locked *LockedError
	if _, err := Open(path); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Fatalf("opened twice: %v", err)
	}
	if kept, err := d.Close(); kept || err != nil || exists(path) {
		t.Fatalf("an empty directory stays: %v, %v", kept, err)
	}
	d = mustOpen(t, path)
	if err := d.PutJSON("text", "key", 1); err != nil {
		t.Fatal(err)
	}
	if kept, err := d.Close(); !kept || err != nil {
		t.Fatalf("a directory with an entry: kept %v, %v", kept, err)
	}
	if list, _ := os.ReadDir(path); len(list) != 1 || list[0].Name() != "text.work" {
		t.Errorf("it holds %v", list)
	}
	if err := mustOpen(t, path).Remove(); err != nil || exists(path) {
		t.Errorf("a removed directory is there (%v)", err)
	}
}

// TestOpenClose has many jobs open and close one directory at the same time: at most one has it.
func TestOpenClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.calib")
	inside := make(chan struct{}, 1)
	done := make(chan error)
	for range 8 {
		go func() {
			for range 200 {
				d, err := Open(path)
				if _, locked := errors.AsType[*LockedError](err); locked {
					continue
				}
				if err != nil {
					done <- err
					return
				}
				select {
				case inside <- struct{}{}:
					<-inside
				default:
					done <- errors.New("two jobs have the directory")
					return
				}
				if _, err := d.Close(); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestForeign refuses a directory with anything that is not ours and leaves it as it is.
func TestForeign(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"thesis.txt": func(path string) error { return os.WriteFile(path, nil, 0o666) },
		"a.work":     func(path string) error { return os.Mkdir(path, 0o777) },
		"a.tree":     func(path string) error { return os.WriteFile(path, nil, 0o666) },
		"job.lock":   func(path string) error { return os.Symlink("/dev/null", path) },
		".x.gq-0123456789abcdef.tmp": func(path string) error {
			return os.WriteFile(path, nil, 0o666)
		},
	} {
		path := t.TempDir()
		if err := make(filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path)
		var foreign *ForeignError
		if !errors.As(err, &foreign) || foreign.Name != name {
			t.Errorf("%s: %v", name, err)
		}
		if list, _ := os.ReadDir(path); len(list) != 1 {
			t.Errorf("%s: the directory holds %v", name, list)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file); err == nil {
		t.Error("a file was opened")
	}
	if _, err := Open(filepath.Join(file, "none")); err == nil {
		t.Error("a directory without a parent was made")
	}
}

// TestUnfinished removes what a killed job had not finished writing.
func TestUnfinished(t *testing.T) {
	path := t.TempDir()
	temp := filepath.Join(path, ".layer-1.work.gq-0123456789abcdef.tmp")
	if err := os.WriteFile(temp, []byte("half"), 0o666); err != nil {
		t.Fatal(err)
	}
	if mustOpen(t, path); exists(temp) {
		t.Error("a temporary file stays")
	}
}
