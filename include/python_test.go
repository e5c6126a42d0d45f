//go:build unix

package include_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lowbit-go/gq/formats/gqf"
)

// A reader is another implementation of docs/FORMAT.md behind a driver, a program that prints what
// it finds in files: gqf.h behind driver.c, or package gqf of python/ behind driver.py.
type reader interface {
	// driver returns a function that runs the driver.
	driver(t testing.TB) func(stdin []byte, args ...string) (string, error)
}

func (tc toolchain) driver(t testing.TB) func(stdin []byte, args ...string) (string, error) {
	return tc.compile(t, driver)
}

// python is package gqf of python/.
type python struct{}

func (python) driver(t testing.TB) func(stdin []byte, args ...string) (string, error) {
	t.Helper()
	interpreter := ""
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(name, "-c", "import numpy, zstandard").Run() == nil {
			interpreter = name
			break
		}
	}
	if interpreter == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("no Python with numpy and zstandard, and CI is set: this test must not be skipped")
		}
		t.Skip("needs Python with numpy and zstandard (Debian: apt-get install python3-numpy python3-zstandard)")
	}
	// go test caches results by the files that the test itself reads.
	sources, err := filepath.Glob("../python/gqf/*.py")
	if err != nil || len(sources) == 0 {
		t.Fatal(sources, err)
	}
	const program = "../python/tests/driver.py"
	for _, file := range append(sources, program) {
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	return func(stdin []byte, args ...string) (string, error) {
		cmd := exec.Command(interpreter, append([]string{"-B", program}, args...)...)
		cmd.Stdin = bytes.NewReader(stdin)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil || stderr.Len() > 0 {
			return stdout.String(), fmt.Errorf("python: %v: %s", err, stderr.String())
		}
		return stdout.String(), nil
	}
}

// TestPython compares all that the Python reader hands out of a good file.
func TestPython(t *testing.T) {
	run := python{}.driver(t)
	path := filepath.Join(t.TempDir(), "good.gqf")
	good := everything(t)
	if err := os.WriteFile(path, good, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := gqf.OpenBytes(good, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := run(nil, "dump", path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(dump(f), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("Go (-), Python (+):\n%s", diff)
	}
}

// TestPythonMutations gives the Python reader damaged files, as TestMutations does to gqf.h.
func TestPythonMutations(t *testing.T) {
	good := everything(t)
	const random = 60
	opened, verified := differ(t, python{}, good, true, random, func(i int) []byte { return mutate(good, uint64(i)) })
	t.Logf("%d of %d random changes could be opened, %d verified", opened, random, verified)
	if opened < random/20 || verified < random/100 {
		t.Error("too few to test what comes behind opening")
	}
	list := append(consistent(good), otherCompanions(t, good)...)
	for i, change := range structural(good) {
		if i%167 == 0 {
			list = append(list, change)
		}
	}
	opened, _ = differ(t, python{}, good, false, len(list), func(i int) []byte {
		b := bytes.Clone(good)
		list[i](b)
		sealAll(b)
		return b
	})
	t.Logf("%d of %d structural changes could be opened", opened, len(list))
}
