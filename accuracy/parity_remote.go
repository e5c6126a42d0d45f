package accuracy

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
)

// RemoteOptions are the options of RemoteParity.
type RemoteOptions struct {
	// Arch is the architecture of the other build: arm64 or amd64. Default: arm64.
	Arch string
	// Binary is the other build of gq, for Linux if it is for another architecture. Default: this
	// program itself if it has the architecture, else gq-linux-ARCH or a similar name in the
	// directory of this program.
	Binary string
	// CPUs are the qemu CPU models to run the build on. max compares the kernels of every
	// instruction set that qemu knows; others, such as neoverse-n1 and cortex-a53, show that gq
	// detects what a CPU lacks. Default: max. Not used without qemu.
	CPUs []string
	// Match selects tensors by any of their names. Default: all.
	Match func(name string) bool
	// Threads is the number of goroutines here. Default: GOMAXPROCS.
	Threads int
}

// architecture says how to run builds of an architecture.
type architecture struct {
	machine elf.Machine
	qemu    string
	debian  string // package of qemu
}

var architectures = map[string]architecture{
	"arm64": {elf.EM_AARCH64, "qemu-aarch64", "qemu-user"},
	"amd64": {elf.EM_X86_64, "qemu-x86_64", "qemu-user"},
}

// MissingError reports a program or file that the other build needs to run, and how to get it.
type MissingError struct{ Msg string }

func (e *MissingError) Error() string { return e.Msg }

// parityArgs are the arguments with which gq prints the ParityDigest of a file.
func parityArgs(path string) []string { return []string{"accuracy", "--parity-digest", path} }

// RemoteParity compares the kernels of another build of gq with this build's portable reference.
// The other build opens path, the file f, itself. It runs directly on a machine of its architecture
// and else under qemu's user mode. If the build or qemu is missing, the error is a *MissingError.
func RemoteParity(ctx context.Context, f *gqf.File, path string, o RemoteOptions) ([]Parity, error) {
	if o.Arch == "" {
		o.Arch = "arm64"
	}
	arch, ok := architectures[o.Arch]
	if !ok {
		return nil, fmt.Errorf("parity with %q: use arm64 or amd64", o.Arch)
	}
	binary, err := findBinary(o.Binary, o.Arch, arch)
	if err != nil {
		return nil, err
	}
	type machine struct {
		name   string
		prefix []string
	}
	machines := []machine{{name: o.Arch}}
	if o.Arch != runtime.GOARCH {
		qemu, err := findQemu(arch)
		if err != nil {
			return nil, err
		}
		if machines = nil; len(o.CPUs) == 0 {
			o.CPUs = []string{"max"}
		}
		for _, cpu := range o.CPUs {
			machines = append(machines, machine{fmt.Sprintf("%s, %s -cpu %s", o.Arch, arch.qemu, cpu), []string{qemu, "-cpu", cpu}})
		}
	}
	want, err := digests(ctx, f, ParityOptions{Threads: o.Threads}, nil)
	if err != nil {
		return nil, err
	}
	var list []Parity
	for _, m := range machines {
		got, err := runDigest(ctx, append(m.prefix, binary), path)
		if err != nil {
			return nil, err
		}
		if err := sameDigests(got, want, o.Arch); err != nil {
			return nil, fmt.Errorf("%s: %w", binary, err)
		}
		for _, p := range got.compare(want, m.name) {
			if t, ok := f.Lookup(p.Tensor); ok && matches(t, o.Match) {
				list = append(list, p)
			}
		}
	}
	return list, nil
}

// findBinary finds the other build and checks its architecture.
func findBinary(path, name string, arch architecture) (string, error) {
	own, err := os.Executable()
	if err != nil {
		own = ""
	}
	if path == "" && name == runtime.GOARCH && own != "" {
		return own, nil
	}
	if path == "" {
		candidates := []string{"gq-linux-" + name, "gq_linux_" + name, "gq-" + name, "gq_" + name, filepath.Join("linux-"+name, "gq"), filepath.Join("linux_"+name, "gq")}
		for _, c := range candidates {
			c = filepath.Join(filepath.Dir(own), c)
			if fi, err := os.Stat(c); err == nil && fi.Mode().IsRegular() {
				path = c
				break
			}
		}
		if path == "" {
			return "", &MissingError{fmt.Sprintf("parity with %s needs the linux/%[1]s build of gq, and there is none in %s: put it there as %s, name it with --parity-binary, or make it with GOOS=linux GOARCH=%[1]s go build -o %[3]s github.com/lowbit-go/gq/cmd/gq",
				name, filepath.Dir(own), candidates[0])}
		}
	}
	if name == runtime.GOARCH && runtime.GOOS != "linux" {
		return path, nil
	}
	f, _, err := files.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &MissingError{fmt.Sprintf("parity with %s: there is no %s", name, path)}
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := elf.NewFile(f)
	if err != nil {
		return "", fmt.Errorf("parity with %s: %s is not a Linux program: %w", name, path, err)
	}
	if b.Machine != arch.machine {
		return "", fmt.Errorf("parity with %s: %s is a program for %s", name, path, strings.TrimPrefix(b.Machine.String(), "EM_"))
	}
	return path, nil
}

func findQemu(arch architecture) (string, error) {
	for _, name := range []string{arch.qemu, arch.qemu + "-static"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	msg := fmt.Sprintf("%s is not installed: apt install %s (Debian, Ubuntu), dnf install qemu-user (Fedora)", arch.qemu, arch.debian)
	if runtime.GOOS != "linux" {
		msg = fmt.Sprintf("this machine cannot run that build: qemu's user mode (%s) is for Linux hosts", arch.qemu)
	}
	return "", &MissingError{msg}
}

// runDigest runs the other build to compute its digests.
func runDigest(ctx context.Context, command []string, path string) (*Digests, error) {
	args := append(command[1:len(command):len(command)], parityArgs(path)...)
	cmd := exec.CommandContext(ctx, command[0], args...)
	for _, v := range os.Environ() { // settings for the kernels here mean nothing there
		if !strings.HasPrefix(v, "GQ_CPU=") && !strings.HasPrefix(v, "GQ_LOG=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%s: %w%s", strings.Join(cmd.Args, " "), err, lastLine(stderr.Bytes()))
	}
	d := &Digests{}
	if err := json.Unmarshal(stdout.Bytes(), d); err != nil {
		return nil, fmt.Errorf("%s printed no digests: %w", strings.Join(cmd.Args, " "), err)
	}
	return d, nil
}

func lastLine(text []byte) string {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return ""
	}
	return ": " + string(text[bytes.LastIndexByte(text, '\n')+1:])
}

// sameDigests fails if the digests cannot be compared.
func sameDigests(got, want *Digests, arch string) error {
	switch {
	case got.Version != want.Version:
		return fmt.Errorf("it prints digests of version %d, this gq compares version %d: use builds of the same version", got.Version, want.Version)
	case got.Arch != arch:
		return fmt.Errorf("it is a build for %s, not %s", got.Arch, arch)
	case got.Size != want.Size || len(got.Payloads) != len(want.Payloads):
		return fmt.Errorf("it read another file: %d bytes and %d payloads instead of %d and %d", got.Size, len(got.Payloads), want.Size, len(want.Payloads))
	}
	for i := range got.Payloads {
		g, w := &got.Payloads[i].Payload, &want.Payloads[i].Payload
		if g.Tensor != w.Tensor || g.Slice != w.Slice || g.Variant != w.Variant {
			return fmt.Errorf("it compares tensor %q, variant %d, where this gq compares %q, variant %d: use builds of the same version", g.Tensor, g.Variant, w.Tensor, w.Variant)
		}
	}
	return nil
}
