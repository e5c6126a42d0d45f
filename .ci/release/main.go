// Command release builds what a release of gq consists of, without publishing it: for each of six
// platforms an archive with a static binary, the licence, the changelog, shell completions and man
// pages; a software bill of materials for each binary; and SHA256SUMS over all files.
//
//	go run -C .ci/release . -version 0.1.0 -o DIR
//
// The same commit and Go version give the same bytes on every machine.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
)

// root is the module of gq, seen from this directory.
const root = "../.."

// platforms are the systems that a release has binaries for, as GOOS/GOARCH.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

func main() {
	log.SetFlags(0)
	log.SetPrefix("release: ")
	version := flag.String("version", "", "`VERSION` of the release, without a leading v")
	out := flag.String("o", "", "new or empty `DIR` for the files")
	flag.Parse()
	if *version == "" || *out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := release(*version, *out); err != nil {
		log.Fatal(err)
	}
}

func release(version, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if list, err := os.ReadDir(out); err != nil {
		return err
	} else if len(list) > 0 {
		return fmt.Errorf("%s is not empty: choose another directory with -o", out)
	}
	work, err := os.MkdirTemp("", "gq-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	shared, err := sharedFiles(work)
	if err != nil {
		return err
	}
	var names []string
	for _, platform := range platforms {
		made, err := releasePlatform(version, platform, work, out, shared)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		names = append(names, made...)
	}
	return writeSums(out, names)
}

// releasePlatform writes the archive and the bill of materials of one platform into out, and
// returns their names.
func releasePlatform(version, platform, work, out string, shared []file) ([]string, error) {
	goos, goarch, _ := strings.Cut(platform, "/")
	binary := filepath.Join(work, goos+"-"+goarch, "gq")
	if goos == "windows" {
		binary += ".exe"
	}
	if err := build(binary, goos, goarch); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("gq-%s-%s-%s", version, goos, goarch)
	files := append([]file{{name: filepath.Base(binary), path: binary, mode: 0o755}}, shared...)
	archive := name + ".tar.gz"
	write := writeTarGz
	if goos == "windows" {
		archive, write = name+".zip", writeZip
	}
	if err := write(filepath.Join(out, archive), name, files); err != nil {
		return nil, err
	}
	sbom := name + ".cdx.json"
	if err := writeSBOM(filepath.Join(out, sbom), binary, version); err != nil {
		return nil, err
	}
	log.Printf("%s, %s", archive, sbom)
	return []string{archive, sbom}, nil
}

// build compiles a static, stripped binary without paths of this machine.
func build(path, goos, goarch string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./cmd/gq")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch, "GOFLAGS=")
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, b)
	}
	return nil
}

// sharedFiles makes the files that every archive holds: documents of the repository, and
// completions and man pages as a binary for this machine prints them.
func sharedFiles(work string) ([]file, error) {
	list := []file{
		{name: "LICENSE", path: filepath.Join(root, "LICENSE"), mode: 0o644},
		{name: "README.md", path: filepath.Join(root, "README.md"), mode: 0o644},
		{name: "CHANGELOG.md", path: filepath.Join(root, "CHANGELOG.md"), mode: 0o644},
	}
	host := filepath.Join(work, "host")
	if err := build(host, runtime.GOOS, runtime.GOARCH); err != nil {
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
		b, err := exec.Command(host, p.args...).Output()
		if err != nil {
			return nil, fmt.Errorf("gq %s: %w", strings.Join(p.args, " "), err)
		}
		path := filepath.Join(work, filepath.Base(p.name))
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return nil, err
		}
		list = append(list, file{name: p.name, path: path, mode: 0o644})
	}
	return list, nil
}

// writeSums writes SHA256SUMS in the form that sha256sum -c reads.
func writeSums(dir string, names []string) error {
	sort.Strings(names)
	var b strings.Builder
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), name)
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(b.String()), 0o644)
}
