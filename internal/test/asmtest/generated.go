package asmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Generated runs go generate on a copy of the generator in _asm, a module of its own, and compares
// the result with the files here. Unless CI is set, the generator's modules come from the module
// cache only, and the test is skipped if modules are missing. With -short the test is skipped, too.
func Generated(t *testing.T, files ...string) {
	t.Helper()
	generated(t, "_asm", ".", nil, files)
}

// GeneratedBy is Generated for a command of the module ../_asm of several packages. The command
// reads the given sources of this package, in ../../<command>, and writes the files there.
func GeneratedBy(t *testing.T, command string, sources, files []string) {
	t.Helper()
	generated(t, filepath.Join("..", "_asm"), command, sources, files)
}

// generated runs a copy of the module next to a copy of the sources, in a directory with the
// command's name. If the command is the module itself, the files are in the directory above.
func generated(t *testing.T, module, command string, sources, files []string) {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles the generator")
	}
	dir := t.TempDir()
	asm, here := filepath.Join(dir, "_asm"), filepath.Join(dir, command)
	if err := os.CopyFS(asm, os.DirFS(module)); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(here, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range sources {
		if err := os.WriteFile(filepath.Join(here, name), []byte(readFile(t, name)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	inCI := os.Getenv("CI") != ""
	run := func(args ...string) ([]byte, error) {
		cmd := exec.Command("go", args...)
		cmd.Dir = filepath.Join(asm, command)
		// v1: the same build of the generator for all tests
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOAMD64=v1")
		if !inCI {
			cmd.Env = append(cmd.Env, "GOPROXY=off", "GOFLAGS=-mod=mod")
		}
		return cmd.CombinedOutput()
	}
	if out, err := run("list", "-deps", "."); err != nil && !inCI {
		t.Skipf("the generator's modules are missing: %s", out)
	}
	if out, err := run("generate"); err != nil {
		t.Fatalf("go generate: %v\n%s", err, out)
	}
	for _, name := range files {
		if readFile(t, filepath.Join(here, name)) != readFile(t, name) {
			t.Errorf("%s is not what %s writes: run go generate there", name, filepath.Join(module, command))
		}
	}
}
