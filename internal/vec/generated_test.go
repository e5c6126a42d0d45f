//go:build amd64 && !purego

package vec

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGenerated runs go generate on a copy of _asm and compares what it writes with the files here. Without CI set it
// takes the generator's modules from the module cache only, and is skipped if they are not there.
func TestGenerated(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the generator")
	}
	dir := t.TempDir()
	asm := filepath.Join(dir, "_asm")
	if err := os.CopyFS(asm, os.DirFS("_asm")); err != nil {
		t.Fatal(err)
	}
	inCI := os.Getenv("CI") != ""
	run := func(args ...string) ([]byte, error) {
		cmd := exec.Command("go", args...)
		cmd.Dir = asm
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOAMD64=v1") // v1: one build of the generator for all tests
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
	for _, name := range []string{"kernels_amd64.s", "kernels_amd64.go"} {
		if readFile(t, filepath.Join(dir, name)) != readFile(t, name) {
			t.Errorf("%s is not what _asm writes: run go generate in internal/vec/_asm", name)
		}
	}
}
