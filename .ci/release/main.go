// Command release builds what a release of gq consists of, without publishing it:
//
//   - for each of six platforms an archive with a static binary, the licence, the changelog, shell
//     completions and man pages, a wheel for pip, and a software bill of materials;
//   - a Homebrew formula that installs the archives;
//   - a container image for Linux on two CPUs, as an archive in the layout of OCI;
//   - SHA256SUMS over all files.
//
// The same commit and Go version give the same bytes on every machine.
//
//	go run -C .ci/release . -version 0.1.0 -o DIR
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// root is the module of gq, seen from this directory.
const root = "../.."

// What formula, wheels and image say about gq.
const (
	summary = "Quantize language models offline and pack their weights for CPUs"
	licence = "Apache-2.0"
)

// platforms are the systems that a release has binaries for, as GOOS/GOARCH.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

func main() {
	log.SetFlags(0)
	log.SetPrefix("release: ")
	var r release
	flag.StringVar(&r.version, "version", "", "`VERSION` of the release, without a leading v")
	flag.StringVar(&r.out, "o", "", "new or empty `DIR` for the files")
	flag.StringVar(&r.url, "url", "", "`URL` of the directory that the archives will be published in, for the formula; the default is the release's page at the module's address")
	flag.Parse()
	if r.version == "" || r.out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := r.make(); err != nil {
		log.Fatal(err)
	}
}

// release is a release in the making.
type release struct {
	version, out, url string
	home              string            // the page of the project
	sums              map[string]string // SHA-256 of each file in out
}

// program is the binary for one platform.
type program struct {
	goos, goarch string
	path         string // on this machine
	file         file   // gq or gq.exe
}

func (r *release) make() error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	if list, err := os.ReadDir(r.out); err != nil {
		return err
	} else if len(list) > 0 {
		return fmt.Errorf("%s is not empty: choose another directory with -o", r.out)
	}
	module, err := command("go", "list", "-m").Output()
	if err != nil {
		return fmt.Errorf("go list -m: %w", err)
	}
	r.home = "https://" + strings.TrimSpace(string(module))
	if r.url == "" {
		r.url = r.home + "/releases/download/v" + r.version
	}
	r.sums = map[string]string{}
	work, err := os.MkdirTemp("", "gq-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	shared, err := sharedFiles(work)
	if err != nil {
		return err
	}
	reader, err := readPython()
	if err != nil {
		return err
	}
	var linux []program
	for _, platform := range platforms {
		goos, goarch, _ := strings.Cut(platform, "/")
		p, err := build(filepath.Join(work, goos+"-"+goarch), goos, goarch)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		if err := r.addPlatform(p, shared, reader); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		if goos == "linux" {
			linux = append(linux, p)
		}
	}
	if err := r.addFormula(); err != nil {
		return err
	}
	if err := r.addImage(linux); err != nil {
		return err
	}
	return r.writeSums()
}

// add writes a file of the release.
func (r *release) add(name string, data []byte) error {
	r.sums[name] = fmt.Sprintf("%x", sha256.Sum256(data))
	log.Print(name)
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

// archive names the archive of a platform without its suffix.
func (r *release) archive(goos, goarch string) string {
	return fmt.Sprintf("gq-%s-%s-%s", r.version, goos, goarch)
}

// addPlatform adds the archive, the bill of materials and the wheel of one platform.
func (r *release) addPlatform(p program, shared []file, reader python) error {
	name := r.archive(p.goos, p.goarch)
	files := below(name, append([]file{p.file}, shared...))
	var data []byte
	var err error
	suffix := ".tar.gz"
	if p.goos == "windows" {
		suffix = ".zip"
		data, err = zipOf(files)
	} else if data, err = tarOf(files); err == nil {
		data, err = gzipped(data)
	}
	if err != nil {
		return err
	}
	if err := r.add(name+suffix, data); err != nil {
		return err
	}
	if data, err = sbom(p.path, r.version); err != nil {
		return err
	}
	if err := r.add(name+".cdx.json", data); err != nil {
		return err
	}
	return r.addWheel(p, reader)
}

// command is a command in the module of gq.
func command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	return cmd
}

// build compiles a static, stripped binary without paths of this machine into a new directory.
func build(dir, goos, goarch string) (program, error) {
	p := program{goos: goos, goarch: goarch, file: file{name: "gq", mode: 0o755}}
	if goos == "windows" {
		p.file.name += ".exe"
	}
	p.path = filepath.Join(dir, p.file.name)
	cmd := command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", p.path, "./cmd/gq")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch, "GOFLAGS=")
	if b, err := cmd.CombinedOutput(); err != nil {
		return p, fmt.Errorf("go build: %w\n%s", err, b)
	}
	var err error
	p.file.data, err = os.ReadFile(p.path)
	return p, err
}

// sharedFiles makes the files that every archive holds: documents of the repository, and
// completions and man pages as a binary for this machine prints them.
func sharedFiles(work string) ([]file, error) {
	var list []file
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		list = append(list, file{name: name, data: data, mode: 0o644})
	}
	host, err := build(filepath.Join(work, "host"), runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	for _, p := range []struct {
		name string
		args []string
	}{
		{"completions/gq.bash", []string{"completion", "bash"}},
		{"completions/_gq", []string{"completion", "zsh"}},
		{"completions/gq.fish", []string{"completion", "fish"}},
		{"completions/gq.ps1", []string{"completion", "powershell"}},
		{"man/man1/gq.1", []string{"man"}},
	} {
		b, err := exec.Command(host.path, p.args...).Output()
		if err != nil {
			return nil, fmt.Errorf("gq %s: %w", strings.Join(p.args, " "), err)
		}
		list = append(list, file{name: p.name, data: b, mode: 0o644})
	}
	return list, nil
}

// writeSums writes SHA256SUMS in the form that sha256sum -c reads.
func (r *release) writeSums() error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.sums)) {
		fmt.Fprintf(&b, "%s  %s\n", r.sums[name], name)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(b.String()), 0o644)
}
