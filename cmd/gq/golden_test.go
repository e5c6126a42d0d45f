package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	tensors "github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

var (
	goldenFile   = flag.String("golden", "testdata/golden/small.txt", "the `file` of jobs and hashes that TestGolden checks")
	goldenBinary = flag.String("golden-binary", "gq", "the `command` that TestGolden runs")
)

// TestGolden runs the jobs of a golden file and compares hashes of their outputs with the recorded
// ones:
//
//	go test ./cmd/gq -run Golden                    # testdata/golden/small.txt
//	go test ./cmd/gq -run Golden -update            # records the hashes
//	.ci/golden [-update] [-run 'Golden/rotate']     # testdata/golden/full.txt; jobs with "rotate"
//
// A line is "OUTPUT CONTENT  ARGUMENTS": the hash of the whole output, the hash of the content that
// must not change when only a container changes, and the arguments of gq, run in the module's root.
// A job after "|" reads the output of the job before it, which its argument FILE stands for. The
// hashes depend on the command:
//
//	quantize, repack    the .gqf file; its tensors' names, shapes and payload data
//	export, and quantize --target gguf
//	                    the .gguf file; its tensors' names, shapes, types and data
//	export and quantize with --target of a checkpoint
//	                    all files; the tensors' names, shapes, dtypes and data
//	export and quantize with --target onnx
//	                    all files; the files with weights
//	dequantize          the safetensors file, twice
//	run                 the text, twice
//	accuracy            the report without run and machine; its main figures
//
// A new job is a line that has only the arguments: -update adds the hashes.
func TestGolden(t *testing.T) {
	gq, err := exec.LookPath(*goldenBinary)
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(gq, "--version").Run(); errors.Is(err, syscall.ENOEXEC) {
		t.Skip("the system cannot run this binary by itself (an emulator did); the jobs are run natively")
	}
	recorded, err := os.ReadFile(*goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	g := &golden{gq: gq, root: testshared.Root(t), tmp: t.TempDir(), made: map[string]string{}}
	lines := strings.SplitAfter(string(recorded), "\n")
	for i, line := range lines {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		want, job, ok := strings.Cut(line, "  ")
		if !ok {
			want, job = "", line
		}
		t.Run(strings.ReplaceAll(job, "/", ":"), func(t *testing.T) {
			if strings.Contains(job, "../shared/") {
				testshared.Dir(t)
			}
			output, content, err := g.run(job)
			if err != nil {
				t.Fatal(err)
			}
			got := output + " " + content
			switch {
			case got == want:
			case *update:
				lines[i] = got + "  " + job + "\n"
			default:
				_, wantContent, _ := strings.Cut(want, " ")
				what := "the content changed"
				if content == wantContent {
					what = "the file or report changed around the same content"
				}
				t.Errorf("hashes %s, recorded are %s: %s (-update records anew)", got, want, what)
			}
		})
	}
	if text := strings.Join(lines, ""); *update && text != string(recorded) {
		if err := os.WriteFile(*goldenFile, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// golden runs jobs.
type golden struct {
	gq, root, tmp string
	made          map[string]string // files by job: several jobs read one
}

// run runs a job, and the jobs before it, and returns the hashes of its output.
func (g *golden) run(job string) (output, content string, err error) {
	file, made := "", ""
	for stage := range strings.SplitSeq(job, " | ") {
		made += " | " + stage
		args := strings.Fields(stage)
		if i := slices.Index(args, "FILE"); i >= 0 {
			args[i] = file
		}
		switch args[0] {
		case "quantize", "repack", "export", "dequantize":
			if file = g.made[made]; file == "" {
				if file, err = g.write(args); err != nil {
					return "", "", err
				}
				g.made[made] = file
			}
			output, content, err = fileHashes(file, args[0] != "dequantize")
		case "run":
			var text []byte
			text, err = g.command(append(args, "-q")...)
			output, content = short(text), short(text)
		case "accuracy":
			var report []byte
			if report, err = g.command(append(args, "-q", "--json", "--no-parity")...); err == nil {
				output, content, err = reportHashes(report)
			}
		default:
			err = fmt.Errorf("no golden job: %q", stage)
		}
		if err != nil {
			return "", "", err
		}
	}
	return output, content, nil
}

// write runs a command that writes a file.
func (g *golden) write(args []string) (string, error) {
	dir, err := os.MkdirTemp(g.tmp, "job")
	if err != nil {
		return "", err
	}
	if args[0] == "dequantize" { // it writes a directory
		_, err = g.command(append(args, "-q", "-o", filepath.Join(dir, "model"))...)
		return filepath.Join(dir, "model", "model.safetensors"), err
	}
	file := filepath.Join(dir, "model") // no ending: the target decides the format
	if i := slices.Index(args, "-o"); i >= 0 {
		file = filepath.Join(dir, args[i+1])
		args = slices.Delete(args, i, i+2)
	}
	_, err = g.command(append(args, "-q", "-o", file)...)
	return file, err
}

func (g *golden) command(args ...string) ([]byte, error) {
	cmd := exec.Command(g.gq, args...)
	cmd.Dir = g.root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("gq %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return out, nil
}

func short(b []byte) string { return sum(func(h hash.Hash) { h.Write(b) }) }

// sum is the beginning of a SHA-256, enough to notice a change.
func sum(write func(hash.Hash)) string {
	h := sha256.New()
	write(h)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// directoryHashes are the hash of the names and contents of all files, and of the checkpoint's
// tensors, or of the files with weights for ONNX Runtime.
func directoryHashes(dir string) (output, content string, err error) {
	add := func(h hash.Hash, pattern string) {
		err = errors.Join(err, fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
			if match, _ := path.Match(pattern, path.Base(name)); err != nil || e.IsDir() || !match {
				return err
			}
			b, err := os.ReadFile(filepath.Join(dir, name))
			fmt.Fprintln(h, name, len(b))
			h.Write(b)
			return err
		}))
	}
	output = sum(func(h hash.Hash) { add(h, "*") })
	if _, e := os.Stat(filepath.Join(dir, "onnx")); e == nil {
		return output, sum(func(h hash.Hash) { add(h, "*_data*") }), err
	}
	if err != nil {
		return "", "", err
	}
	ck, err := tensors.Open(dir, tensors.Options{})
	if err != nil {
		return "", "", err
	}
	defer ck.Close()
	content = sum(func(h hash.Hash) {
		for _, t := range ck.Tensors() {
			var data []byte
			if data, err = ck.Bytes(t); err != nil {
				return
			}
			fmt.Fprintln(h, t.Name, t.Shape, t.Dtype)
			h.Write(data)
		}
	})
	return output, content, err
}

func fileHashes(path string, isGQF bool) (output, content string, err error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return directoryHashes(path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	if output = short(b); !isGQF {
		return output, output, nil
	}
	if bytes.HasPrefix(b, []byte(gguf.Magic)) {
		content, err = ggufContent(b)
		return output, content, err
	}
	f, err := gqf.OpenBytes(b, gqf.Options{})
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	content = sum(func(h hash.Hash) {
		for i := range f.Len() {
			t := f.Tensor(i)
			fmt.Fprintln(h, t.Names(), t.Shape)
			for _, p := range t.Payloads() {
				var data []byte
				if data, err = f.Data(p); err != nil {
					return
				}
				fmt.Fprintln(h, p.Variant, p.Slice, p.Kind, len(data))
				h.Write(data)
			}
		}
	})
	return output, content, err
}

func ggufContent(b []byte) (string, error) {
	f, err := gguf.Parse(b)
	if err != nil {
		return "", err
	}
	return sum(func(h hash.Hash) {
		for _, t := range f.Tensors {
			fmt.Fprintln(h, t.Name, t.Dims, t.Type)
			h.Write(f.Data(t))
		}
	}), nil
}

func reportHashes(report []byte) (output, content string, err error) {
	var all map[string]any
	if err := json.Unmarshal(report, &all); err != nil {
		return "", "", err
	}
	for _, key := range []string{"run", "parity", "file", "file_bytes"} {
		delete(all, key)
	}
	rest, err := json.Marshal(all)
	if err != nil {
		return "", "", err
	}
	type model struct {
		Perplexity json.Number `json:"perplexity"`
		Tokens     json.Number `json:"tokens"`
	}
	var figures struct {
		Model struct {
			Float     model `json:"float"`
			Quantized model `json:"quantized"`
			KL        struct {
				Mean json.Number `json:"mean"`
			} `json:"kl"`
			SameTop1 json.Number `json:"same_top1"`
		} `json:"model"`
		Tensors []struct {
			Name string      `json:"name"`
			SQNR json.Number `json:"sqnr_db"`
		} `json:"tensors"`
	}
	if err := json.Unmarshal(report, &figures); err != nil {
		return "", "", err
	}
	if figures.Model.KL.Mean == "" || len(figures.Tensors) == 0 {
		return "", "", fmt.Errorf("the report has no figures: %s", report)
	}
	main, err := json.Marshal(figures)
	return short(rest), short(main), err
}
