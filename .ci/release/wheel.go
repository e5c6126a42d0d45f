package main

import (
	"bytes"
	"crypto/sha256"
	"debug/macho"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// python is the reader package that every wheel holds beside the binary, with the metadata of its
// pyproject.toml.
type python struct {
	files   []file
	license file

	Project struct {
		RequiresPython string              `toml:"requires-python"`
		Dependencies   []string            `toml:"dependencies"`
		Extras         map[string][]string `toml:"optional-dependencies"`
	} `toml:"project"`
}

func readPython() (p python, err error) {
	dir := filepath.Join(root, "python")
	if _, err := toml.DecodeFile(filepath.Join(dir, "pyproject.toml"), &p); err != nil {
		return p, err
	}
	paths, err := filepath.Glob(filepath.Join(dir, "gqf", "*.py"))
	if err != nil {
		return p, err
	}
	for _, path := range append(paths, filepath.Join(dir, "gqf", "py.typed")) {
		data, err := os.ReadFile(path)
		if err != nil {
			return p, err
		}
		p.files = append(p.files, file{name: "gqf/" + filepath.Base(path), data: data, mode: 0o644})
	}
	p.license = file{name: "licenses/LICENSE", mode: 0o644}
	p.license.data, err = os.ReadFile(filepath.Join(root, "LICENSE"))
	return p, err
}

// addWheel adds a wheel: pip puts the binary into the directory of scripts, and the reader package
// into site-packages. The format is at packaging.python.org, "Binary distribution format".
func (r *release) addWheel(p program, reader python) error {
	version, err := pythonVersion(r.version)
	if err != nil {
		return err
	}
	tags, err := platformTags(p)
	if err != nil {
		return err
	}
	name := "gq-" + version
	files := append(slices.Clone(reader.files), below(name+".data/scripts", []file{p.file})...)
	files = append(files, below(name+".dist-info", []file{
		reader.license,
		{name: "METADATA", data: reader.metadata(version, r.home), mode: 0o644},
		{name: "WHEEL", data: wheelFile(tags), mode: 0o644},
	})...)
	record := name + ".dist-info/RECORD"
	files = append(files, file{name: record, data: recordOf(files, record), mode: 0o644})
	data, err := zipOf(files)
	if err != nil {
		return err
	}
	return r.add(name+"-py3-none-"+strings.Join(tags, ".")+".whl", data)
}

var semantic = regexp.MustCompile(`^(\d+\.\d+\.\d+)(?:-(alpha|beta|rc)\.(\d+))?$`)

// pythonVersion returns a semantic version in the form that Python's packages have: 0.1.0-rc.1 is
// 0.1.0rc1.
func pythonVersion(version string) (string, error) {
	m := semantic.FindStringSubmatch(version)
	if m == nil {
		return "", fmt.Errorf("version %q: expected a form that wheels have too, 1.2.3 or 1.2.3-rc.4, with alpha, beta or rc", version)
	}
	return m[1] + map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[m[2]] + m[3], nil
}

// platformTags lists the platforms that pip takes the wheel for. A static binary needs neither
// glibc nor musl, so the tags name old versions of both.
func platformTags(p program) ([]string, error) {
	switch p.goos {
	case "linux":
		arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[p.goarch]
		return []string{"manylinux2014_" + arch, "manylinux_2_17_" + arch, "musllinux_1_1_" + arch}, nil
	case "darwin":
		arch := map[string]string{"amd64": "x86_64", "arm64": "arm64"}[p.goarch]
		version, err := macOS(p.file.data)
		return []string{fmt.Sprintf("macosx_%d_0_%s", version, arch)}, err
	case "windows":
		return []string{"win_" + p.goarch}, nil
	}
	return nil, fmt.Errorf("wheels have no tag for %s", p.goos)
}

// macOS returns the major version of macOS that a binary needs, as Go's linker recorded it.
func macOS(binary []byte) (uint32, error) {
	f, err := macho.NewFile(bytes.NewReader(binary))
	if err != nil {
		return 0, err
	}
	// LC_BUILD_VERSION of <mach-o/loader.h>: command, size, platform, and the version as
	// xxxx.yy.zz.
	const buildVersion = 0x32
	for _, l := range f.Loads {
		if raw := l.Raw(); len(raw) >= 16 && f.ByteOrder.Uint32(raw) == buildVersion {
			return f.ByteOrder.Uint32(raw[12:]) >> 16, nil
		}
	}
	return 0, fmt.Errorf("the binary does not record a version of macOS (LC_BUILD_VERSION)")
}

func (p python) metadata(version, home string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Metadata-Version: 2.4\nName: gq\nVersion: %s\nSummary: %s\n", version, summary)
	fmt.Fprintf(&b, "Project-URL: Source, %s\nLicense-Expression: %s\nLicense-File: LICENSE\n", home, licence)
	fmt.Fprintf(&b, "Requires-Python: %s\n", p.Project.RequiresPython)
	for _, dependency := range p.Project.Dependencies {
		fmt.Fprintf(&b, "Requires-Dist: %s\n", dependency)
	}
	for _, extra := range slices.Sorted(maps.Keys(p.Project.Extras)) {
		fmt.Fprintf(&b, "Provides-Extra: %s\n", extra)
		for _, dependency := range p.Project.Extras[extra] {
			name, marker, conditional := strings.Cut(dependency, ";")
			if conditional {
				marker = fmt.Sprintf("(%s) and ", strings.TrimSpace(marker))
			}
			fmt.Fprintf(&b, "Requires-Dist: %s; %sextra == '%s'\n", name, marker, extra)
		}
	}
	return b.Bytes()
}

func wheelFile(tags []string) []byte {
	var b bytes.Buffer
	b.WriteString("Wheel-Version: 1.0\nGenerator: gq-release\nRoot-Is-Purelib: false\n")
	for _, tag := range tags {
		fmt.Fprintf(&b, "Tag: py3-none-%s\n", tag)
	}
	return b.Bytes()
}

// recordOf lists the files of a wheel with their hashes and sizes, and itself without.
func recordOf(files []file, itself string) []byte {
	var b bytes.Buffer
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&b, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
	}
	fmt.Fprintf(&b, "%s,,\n", itself)
	return b.Bytes()
}
