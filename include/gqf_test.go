//go:build unix

// Package include_test compares gqf.h, the loader in C, with package formats/gqf on the same files.
//
// The header is compiled as C11 and as C++11, with warnings as errors: for this machine with the
// address and undefined-behaviour sanitizers, and for arm64, which runs under qemu. The sanitized
// C11 has the CPU's CRC32C instructions, the sanitized C++11 the portable loop.
// testdata/driver.c prints everything that the header returns for a file, and its verdicts on
// damaged files. The output of docs/examples/gqf-list.c is compared with gqf.Inspect. A missing
// compiler skips tests, or fails them if CI is set.
package include_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// A toolchain compiles C and runs the result.
type toolchain struct {
	name     string
	compiler string
	flags    []string
	run      string // emulator, or empty
}

var (
	warnings  = []string{"-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wcast-qual", "-Werror", "-pedantic"}
	sanitizer = []string{"-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"}
	sanitized = toolchain{"C11, sanitized", "gcc", append([]string{"-std=c11", "-march=native"}, sanitizer...), ""}
	cxx       = toolchain{"C++11, sanitized", "g++", append([]string{"-x", "c++", "-std=c++11"}, sanitizer...), ""}
	optimized = toolchain{"C11, optimized", "gcc", []string{"-std=c11", "-O2", "-march=native"}, ""}
	arm64     = toolchain{"arm64", "aarch64-linux-gnu-gcc", []string{"-std=c11", "-O1", "-static"}, "qemu-aarch64"}
	arm64CRC  = toolchain{"arm64 with CRC32 instructions", "aarch64-linux-gnu-gcc", []string{"-std=c11", "-O1", "-static", "-march=armv8-a+crc"}, "qemu-aarch64"}
)

var toolchains = []toolchain{sanitized, cxx, optimized, arm64, arm64CRC}

// binaries keeps the programs that compile has made. TestMain removes them.
var (
	binaries sync.Map // of toolchain's name and source: func() (string, error)
	binDir   string
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "gqf-h")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// compile makes a program of a C file, once, and returns a function that runs it.
func (tc toolchain) compile(t testing.TB, source string) func(stdin []byte, args ...string) (string, error) {
	t.Helper()
	for _, tool := range []string{tc.compiler, tc.run} {
		if tool == "" {
			continue
		}
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%v, and CI is set: this test must not be skipped", err)
			}
			t.Skipf("needs %s (Debian: apt-get install gcc g++ gcc-aarch64-linux-gnu qemu-user)", tool)
		}
	}
	// go test caches results by the files that the test itself reads.
	for _, file := range []string{"gqf.h", source} {
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	once, _ := binaries.LoadOrStore(tc.name+source, sync.OnceValues(func() (string, error) {
		bin := filepath.Join(binDir, strings.NewReplacer(" ", "_", ",", "", "+", "p", "/", "_", ".", "_").Replace(tc.name+"_"+source))
		args := append(append(append([]string{}, tc.flags...), warnings...), "-I", ".", "-o", bin, source)
		if out, err := exec.Command(tc.compiler, args...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s %s: %v\n%s", tc.compiler, strings.Join(args, " "), err, out)
		}
		return bin, nil
	}))
	bin, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return func(stdin []byte, args ...string) (string, error) {
		argv := append([]string{bin}, args...)
		if tc.run != "" {
			argv = append([]string{tc.run}, argv...)
		}
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin = bytes.NewReader(stdin)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil || stderr.Len() > 0 {
			return stdout.String(), fmt.Errorf("%s: %v: %s", tc.name, err, stderr.String())
		}
		return stdout.String(), nil
	}
}

const (
	driver  = "testdata/driver.c"
	example = "../docs/examples/gqf-list.c"
)

// A sample is a file for the C side to read.
type sample struct {
	name, path string
}

// quantized quantizes the bundled model and a model with experts.
func quantized(t testing.TB) []sample {
	t.Helper()
	dir := t.TempDir()
	f32 := quantizer.Recipe{Bits: 2, Group: new(quantizer.PerChannel), ScaleDtype: packing.ScaleF32, Layouts: []quantizer.LayoutRequest{{Tile: packing.Tile{NR: 4, KR: 8, SR: 2}}}, EmbeddingBits: 5, EmbeddingGroup: new(64)}
	asymmetric := quantizer.Recipe{Bits: 3, Group: new(48), Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF16, Layouts: []quantizer.LayoutRequest{{Tile: packing.Tile{NR: 8, KR: 8, SR: 2}}}}
	positive := quantizer.Recipe{Mapping: gqf.MappingSymmetric, PositiveScales: new(true), Rules: []quantizer.Rule{
		{Match: "model.embed_tokens.weight", Skip: true}, // with it, lm_head is shared and unquantized
		{Match: "re:.*down_proj.*", Bits: 7, Group: new(16)},
	}}
	books := "../testdata/books1.3M-bf16"
	jobs := []struct {
		name, checkpoint string
		recipe           quantizer.Recipe
	}{
		{"default", books, quantizer.Recipe{}},
		{"per-channel", books, f32},
		{"asymmetric", books, asymmetric},
		{"kept", books, positive},
		{"experts", fused(t, "qwen3_5_moe", "model.layers.0.mlp.experts.gate_up_proj", 3, 96, 64), asymmetric},
		{"transposed", fused(t, "llama4_text", "model.layers.0.feed_forward.experts.gate_up_proj", 3, 64, 96), quantizer.Recipe{}},
	}
	var samples []sample
	for _, job := range jobs {
		ck, err := safetensors.Open(job.checkpoint, safetensors.Options{})
		if err != nil {
			t.Fatal(err)
		}
		config, err := assets.ReadConfig(ck)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := conversion.NewPlan(ck, config, conversion.Options{Recipe: job.recipe})
		if err != nil {
			t.Fatalf("%s: %v", job.name, err)
		}
		path := filepath.Join(dir, job.name+".gqf")
		if _, err := plan.Write(t.Context(), path); err != nil {
			t.Fatalf("%s: %v", job.name, err)
		}
		ck.Close()
		samples = append(samples, sample{job.name, path})
	}
	return samples
}

// fused makes a checkpoint with one tensor of fused experts.
func fused(t testing.TB, modelType, name string, shape ...int64) string {
	t.Helper()
	dir := t.TempDir()
	w, err := safetensors.Create(dir, []safetensors.TensorSpec{{Name: name, Dtype: packing.BF16, Shape: shape}}, safetensors.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	data := make([]byte, 2*shape[0]*shape[1]*shape[2])
	for i := range data {
		data[i] = byte(i * 37)
		if i%2 == 1 {
			data[i] = 0x3C | byte(i*i>>4)&0x81 // of a size that weights have
		}
	}
	if err := w.WriteAt(0, data, 0); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`{"model_type": %q, "num_experts": %d}`, modelType, shape[0])
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// allSamples adds to the quantized files a file with every feature of the format, and an empty
// file.
func allSamples(t testing.TB) []sample {
	t.Helper()
	write := func(name string, b []byte) sample {
		path := filepath.Join(t.TempDir(), name+".gqf")
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		return sample{name, path}
	}
	return append(quantized(t), write("everything", everything(t)), write("empty", newFixture().build(t)))
}

// TestDump compares every field of every record, and the CRC32C of payloads and assets, for each
// toolchain.
func TestDump(t *testing.T) {
	samples := allSamples(t)
	for _, tc := range toolchains {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			run := tc.compile(t, driver)
			for _, s := range samples {
				f, err := gqf.Open(s.path, gqf.Options{})
				if err != nil {
					t.Fatal(err)
				}
				got, err := run(nil, "dump", s.path)
				if err != nil {
					t.Errorf("%s: %v", s.name, err)
				}
				if diff := cmp.Diff(strings.Split(dump(f), "\n"), strings.Split(got, "\n")); diff != "" {
					t.Errorf("%s (-Go +C):\n%s", s.name, diff)
				}
				f.Close()
			}
		})
	}
}

// TestExample compares docs/examples/gqf-list.c with gqf.Inspect.
func TestExample(t *testing.T) {
	samples := allSamples(t)
	for _, tc := range []toolchain{sanitized, cxx, optimized, arm64} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			run := tc.compile(t, example)
			for _, s := range samples {
				got, err := run(nil, "--verify", s.path)
				if err != nil {
					t.Errorf("%s: %v", s.name, err)
				}
				if diff := cmp.Diff(listing(t, s.path), collapse(got)); diff != "" {
					t.Errorf("%s (-Go +C):\n%s", s.name, diff)
				}
			}
			empty := filepath.Join(t.TempDir(), "empty file")
			if err := os.WriteFile(empty, nil, 0o666); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{empty, "gqf.h", t.TempDir()} {
				if out, err := run(nil, path); err == nil || out != "" {
					t.Errorf("%s: %v, %q", path, err, out)
				}
			}
		})
	}
}

// TestLimits checks that limits apply that a program defines before it includes the header.
func TestLimits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "everything.gqf")
	if err := os.WriteFile(path, everything(t), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []string{"TENSORS=2u", "PAYLOADS=2u", "DIRECTORY=1000u"} {
		tc := optimized
		tc.name, tc.flags = limit, []string{"-std=c11", "-DGQF_MAX_" + limit}
		if _, err := tc.compile(t, driver)(nil, "dump", path); err == nil || !strings.Contains(err.Error(), "beyond the limits") {
			t.Errorf("%s: %v", limit, err)
		}
	}
}

// dump is the output that driver.c must print for the file.
func dump(f *gqf.File) string {
	var b strings.Builder
	flag := func(x bool) int {
		if x {
			return 1
		}
		return 0
	}
	next := 0
	for i := range f.Len() {
		t := f.Tensor(i)
		var payloads []gqf.Payload // including the payloads of variants that are skipped
		for ; next < f.NumPayloads() && f.Payload(next).Tensor == i; next++ {
			payloads = append(payloads, f.Payload(next))
		}
		fmt.Fprintf(&b, "tensor %d %s %s %s %s transposed %d slices %d names %d payloads %d bias %d shape", t.Index, t.Dtype, t.Role, t.Mapping,
			t.Algorithm, flag(t.Transposed), t.Experts, len(t.Names()), len(payloads), t.Bias)
		for _, d := range t.Shape {
			fmt.Fprintf(&b, " %d", d)
		}
		fmt.Fprintf(&b, " %s\n", t.Name)
		for _, p := range payloads {
			fmt.Fprintf(&b, "payload %d tensor %d slice %d kind %d variant %d cpu %d at %d size %d", p.Index, p.Tensor, p.Slice, uint8(p.Kind), p.Stored,
				p.CPU, p.Offset, p.Length)
			if p.Variant < 0 {
				fmt.Fprintf(&b, " skipped layout %d data %d\n", uint8(p.Header.Layout), p.Length-packing.HeaderSize)
				continue
			}
			b.WriteString(dumpHeader(p.Header))
			if data, err := f.Data(p); err == nil {
				fmt.Fprintf(&b, " crc %08x\n", crc(data))
			} else {
				b.WriteString(" damaged\n")
			}
		}
		for _, cpu := range []gqf.CPUFeatures{0, gqf.CPUDotProd, gqf.CPUDotProd | gqf.CPUI8MM, gqf.NewCPUFeatures([]string{"avx2"})} {
			stored := -1
			if list := t.VariantsFor(cpu); len(list) > 0 {
				p, _ := t.Payload(list[0], 0, gqf.KindWeights)
				stored = p.Stored
			}
			fmt.Fprintf(&b, "cpu %d: %d\n", cpu, stored)
		}
	}
	for _, n := range f.Names() {
		found := -1
		if t, ok := f.Lookup(n.Name); ok {
			found = t.Index
		}
		fmt.Fprintf(&b, "name tensor %d file %d crc %08x size %d in checkpoint %d absorbed %d found %d %s\n", n.Tensor, n.SourceFile, n.SourceCRC,
			n.SourceBytes, flag(n.InCheckpoint), flag(n.Absorbed), found, n.Name)
	}
	for _, a := range f.Assets() {
		sum := "damaged"
		if raw, err := f.Asset(a.Name); err == nil {
			sum = fmt.Sprintf("crc %08x", crc(raw))
		}
		fmt.Fprintf(&b, "asset %d %d stored %d raw %d found 1 %s %s\n", uint8(a.Kind), map[string]int{"stored": 0, "zstd": 1}[a.Codec], a.StoredBytes, a.RawBytes, sum, a.Name)
	}
	return b.String()
}

func dumpHeader(h packing.Header) string {
	dtype, size := "?", uint64(0)
	if h.Dtype != packing.DtypeNone {
		dtype = h.Dtype.String()
	}
	if n, err := h.DataSize(); err == nil {
		size = uint64(n)
	}
	scale := "none"
	if h.ScaleDtype != packing.ScaleNone {
		scale = h.ScaleDtype.String()
	}
	return fmt.Sprintf(" %s flags %d bits %d grid %d scale %s zero %d tile %d %d %d dtype %s %d x %d group %d data %d groups %d",
		h.Layout, uint8(h.Flags), h.Bits, uint8(h.Grid), scale, uint8(h.ZeroKind), h.Tile.NR, h.Tile.KR, h.Tile.SR,
		dtype, h.Rows, h.Cols, h.Group, size, h.Groups())
}

func crc(b []byte) uint32 { return crc32c.Checksum(b) }

// listing is the output of the example, without the columns' alignment.
func listing(t testing.TB, path string) []string {
	f, err := gqf.Open(path, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if r, err := f.Verify(context.Background(), gqf.VerifyOptions{}); err != nil || !r.OK() {
		t.Fatalf("%s: %v %v", path, r, err)
	}
	r, err := gqf.Inspect(f)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: gqf %s, %d bytes\n", path, r.Version, r.FileBytes)
	fmt.Fprintf(&b, "data: %d bytes at %d, a checksum for every %d\n", r.DataBytes, r.DataOffset, r.BlockBytes)
	fmt.Fprintln(&b, "SECTION OFFSET BYTES RECORDS")
	for _, s := range r.Sections {
		fmt.Fprintln(&b, s.Name, s.Offset, s.Bytes, s.Count)
	}
	if len(r.Assets) > 0 {
		fmt.Fprintln(&b, "ASSET KIND BYTES STORED CODEC")
	}
	for _, a := range r.Assets {
		fmt.Fprintln(&b, shown(a.Name), a.Kind, a.RawBytes, a.StoredBytes, a.Codec)
	}
	if len(r.Tensors) > 0 {
		heads := "TENSOR ROLE SHAPE DTYPE BITS GROUP MAPPING SCALES LAYOUT TILE FLAGS BYTES BPW SHARED WITH"
		flags, shared := false, false
		for _, row := range r.Tensors {
			flags = flags || row.Flags != ""
			for _, v := range row.Variants {
				flags = flags || v.Flags != ""
			}
			shared = shared || len(row.SharedWith) > 0
		}
		if !flags {
			heads = strings.Replace(heads, " FLAGS", "", 1)
		}
		if !shared {
			heads = strings.Replace(heads, " SHARED WITH", "", 1)
		}
		fmt.Fprintln(&b, heads)
	}
	for _, row := range r.Tensors {
		shape := "scalar"
		if len(row.Shape) > 0 {
			shape = strings.Trim(strings.ReplaceAll(fmt.Sprint(row.Shape), " ", "x"), "[]")
		}
		if row.Transposed {
			shape += " (in x out)"
		}
		cells := []string{shown(row.Name), row.Role.String(), shape, row.Dtype}
		if row.Quantized {
			group := "channel"
			if row.Group != 0 {
				group = fmt.Sprint(row.Group)
			}
			cells = append(cells, fmt.Sprint(row.Bits), group, row.Mapping.String(), row.ScaleDtype)
		}
		variants := row.Variants
		if variants == nil {
			variants = []gqf.VariantRow{{Layout: row.Layout, Tile: row.Tile, Flags: row.Flags, Bytes: row.Bytes, BitsPerWeight: row.BitsPerWeight}}
		}
		for _, v := range variants {
			cells = append(cells, v.Layout, v.Tile, v.Flags, fmt.Sprint(v.Bytes), fmt.Sprintf("%.3f", v.BitsPerWeight))
			if v.Variant == 0 {
				cells = append(cells, shown(strings.Join(row.SharedWith, ", ")))
			}
			fmt.Fprintln(&b, strings.Join(cells, " "))
			cells = nil
		}
	}
	s := &r.Totals
	fmt.Fprintf(&b, "%d tensors under %d names: %d quantized, %d kept, %d shared\n", s.Tensors, s.Names, s.Quantized, s.Unquantized, s.Shared)
	fmt.Fprintf(&b, "%d weights, %d bytes of %d in the checkpoint; %.3f bits per quantized weight, %.3f over all\n",
		s.Elements, s.PayloadBytes, s.SourceBytes, s.QuantBitsWeight, s.BitsPerWeight)
	fmt.Fprintln(&b, "all checksums are right")
	return collapse(b.String())
}

// shown is a string of the file as the example prints it, safe for a terminal.
func shown(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < 0x20 || 0x7F <= r && r < 0xA0 || r == '\\' {
			fmt.Fprintf(&b, `\x%02x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// collapse cuts text into lines, drops empty lines and turns every run of blanks into one blank.
func collapse(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
