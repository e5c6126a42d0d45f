//go:build unix

package include_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
)

// TestStringSizes moves the start of a string of the maximum length one byte down.
func TestStringSizes(t *testing.T) {
	x := newFixture()
	i := x.tensor(gqf.TensorSpec{Name: "ab", Dtype: packing.U8}, gqf.PayloadSpec{Header: packing.PlainHeader(packing.U8, 1, 1)})
	x.name(gqf.NameSpec{Name: strings.Repeat("z", 65535), Tensor: i, SourceFile: -1})
	x.AddAsset(gqf.AssetSpec{Kind: gqf.AssetFile, Name: strings.Repeat("a", 200)})
	good := x.build(t)
	opened, _ := differ(t, sanitized, good, false, 3, func(i int) []byte {
		b := bytes.Clone(good)
		names := section(b, secNames)
		records := [][]byte{names, names[32:], section(b, secAssets)}
		if i < 2 {
			before, behind := records[i], records[i+1]
			le.PutUint32(before[4:], le.Uint32(before[4:])-1)
			le.PutUint32(behind, le.Uint32(behind)-1)
			le.PutUint32(behind[4:], le.Uint32(behind[4:])+1)
		}
		sealAll(b)
		return b
	})
	if opened != 1 {
		t.Errorf("%d opened, want only the one that is unchanged", opened)
	}
}

// edits describes b to driver.c as the changes of base.
func edits(dst, base, b []byte) []byte {
	type run struct{ from, to int }
	var runs []run
	common := min(len(base), len(b))
	for i := 0; i < len(b); i++ {
		if i < common {
			if n := min(4096, common-i); bytes.Equal(base[i:i+n], b[i:i+n]) {
				i += n - 1
				continue
			}
			if base[i] == b[i] {
				continue
			}
		} else if b[i] == 0 {
			continue
		}
		if n := len(runs); n > 0 && i-runs[n-1].to < 16 {
			runs[n-1].to = i + 1
		} else {
			runs = append(runs, run{i, i + 1})
		}
	}
	dst = le.AppendUint32(dst, uint32(len(b)))
	dst = le.AppendUint32(dst, uint32(len(runs)))
	for _, r := range runs {
		dst = le.AppendUint32(dst, uint32(r.from))
		dst = le.AppendUint32(dst, uint32(r.to-r.from))
		dst = append(dst, b[r.from:r.to]...)
	}
	return dst
}

// class is the number that driver.c gives to a kind of error of the Go reader.
func class(t testing.TB, err error) int {
	if err == nil {
		return 0
	}
	if _, ok := errors.AsType[*gqf.FormatError](err); ok {
		return 1
	}
	if _, ok := errors.AsType[*gqf.ForeignError](err); ok {
		return 1
	}
	if _, ok := errors.AsType[*gqf.UnsupportedError](err); !ok {
		t.Fatal(err)
	}
	return 2
}

// A verdict is a reader's result for a file.
type verdict struct {
	open, verify int    // classes; verify is 0 if open is not
	dump         uint32 // CRC32C of the dump
	// A compressed asset is damaged after its frame's header, which gqf.h cannot find.
	zstd    bool
	message string
}

func goVerdict(t testing.TB, b []byte) verdict {
	f, err := gqf.OpenBytes(b, gqf.Options{})
	if err != nil {
		return verdict{open: class(t, err), message: err.Error()}
	}
	v := verdict{dump: crc([]byte(dump(f)))}
	r, err := f.Verify(context.Background(), gqf.VerifyOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Damage {
		if v.message += d.String() + "; "; strings.Contains(d.Message, "cannot be decompressed") || strings.Contains(d.Message, "has checksum") {
			v.zstd = true
		}
	}
	if !r.OK() {
		v.verify = 1
	}
	return v
}

// differ compares the verdicts of another reader and of Go's on files: file(i) is good after one or
// several changes. It returns how many files were opened, and how many of them verified.
func differ(t *testing.T, other reader, good []byte, several bool, n int, file func(i int) []byte) (opened, verified int) {
	t.Helper()
	run := other.driver(t)
	path := filepath.Join(t.TempDir(), "good.gqf")
	if err := os.WriteFile(path, good, 0o666); err != nil {
		t.Fatal(err)
	}
	want := make([]verdict, n)
	var input []byte
	for i := range n {
		b := file(i)
		want[i] = goVerdict(t, b)
		input = edits(input, good, b)
	}
	out, err := run(input, "mutants", path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) != n {
		t.Fatalf("%d verdicts for %d files: %s", len(lines), n, lines[len(lines)-1])
	}
	wrong := 0
	for i, line := range lines {
		var got verdict
		if _, err := fmt.Sscanf(line, "%d %d %x", &got.open, &got.verify, &got.dump); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		w := want[i]
		if w.open == 0 {
			opened++
			if w.verify == 0 {
				verified++
			}
		}
		// gqf.h cannot find damage in a compressed asset.
		if w.zstd {
			got.verify, got.dump = w.verify, w.dump
		}
		// If several rules are broken, readers may report different ones.
		if several && got.open > 0 && w.open > 0 {
			got.open = w.open
		}
		if got.open != w.open || got.verify != w.verify || got.dump != w.dump {
			if wrong++; wrong < 10 {
				t.Errorf("file %d: the other reader says %s; Go says %d %d %08x %s", i, line, w.open, w.verify, w.dump, w.message)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d verdicts differ", wrong, n)
	}
	return opened, verified
}

// TestMutations compares both readers on thousands of damaged files. The sanitized program reads
// most of them; the others hold the compilers' code to the verdicts on other files.
func TestMutations(t *testing.T) {
	good := everything(t)
	changes := structural(good)
	for first, test := range []struct {
		toolchain
		random int // changes
		share  int // one in this many structural changes is tested
	}{{sanitized, 1500, 7}, {optimized, 500, 23}, {arm64, 150, 97}, {arm64CRC, 100, 197}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			opened, verified := differ(t, test.toolchain, good, true, test.random, func(i int) []byte { return mutate(good, uint64(4*i+first)) })
			t.Logf("%d of %d random changes could be opened, %d verified", opened, test.random, verified)
			if opened < test.random/20 || verified < test.random/100 {
				t.Error("too few to test what comes behind opening")
			}
			few := consistent(good)
			for i := first; i < len(changes); i += test.share {
				few = append(few, changes[i])
			}
			n := len(few)
			opened, verified = differ(t, test.toolchain, good, false, n, func(i int) []byte {
				b := bytes.Clone(good)
				few[i](b)
				sealAll(b)
				return b
			})
			t.Logf("%d of %d structural changes could be opened, %d verified", opened, n, verified)
		})
	}
}

// TestQuantizedMutations does the same with quantized models, which are larger.
func TestQuantizedMutations(t *testing.T) {
	for _, s := range quantized(t) {
		good, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		opened, _ := differ(t, sanitized, good, true, 100, func(i int) []byte { return mutate(good, uint64(i)) })
		t.Logf("%s: %d of 100 could be opened", s.name, opened)
	}
}

// TestNameCounts has more tensors with several names than gqf.h counts at once.
func TestNameCounts(t *testing.T) {
	const tensors = 5000
	x := newFixture()
	for i := range tensors {
		name := fmt.Sprintf("%05d", i*7919%100003) // names and tensors have different orders
		x.tensor(gqf.TensorSpec{Name: name, Shape: []int64{1}, Dtype: packing.U8}, gqf.PayloadSpec{Header: packing.PlainHeader(packing.U8, 1, 1)})
		for k := range []int{0, 1, 0, 3}[i%4] {
			x.name(gqf.NameSpec{Name: fmt.Sprintf("%d %05d", k, i*104729%99991), Tensor: i, SourceFile: -1})
		}
	}
	good := x.build(t)
	r := rand.New(rand.NewPCG(1, 2))
	opened, _ := differ(t, optimized, good, false, 50, func(i int) []byte {
		b := bytes.Clone(good)
		records := section(b, secTensors)
		tensor := func() []byte { return records[r.IntN(tensors)*48:] }
		switch i % 5 {
		case 0: // nothing
		case 1: // one too many
			tensor()[4]++
		case 2: // the total is right
			tensor()[4]++
			if a := tensor(); a[4] > 0 {
				a[4]--
			}
		case 3: // names go to other tensors
			names := section(b, secNames)
			a, c := names[r.IntN(len(names)/32)*32:], names[r.IntN(len(names)/32)*32:]
			a[8], a[9], c[8], c[9] = c[8], c[9], a[8], a[9]
		case 4: // an absorbed name does not count
			names := section(b, secNames)
			names[r.IntN(len(names)/32)*32+20] = 3
		}
		sealAll(b)
		return b
	})
	if opened < 10 {
		t.Errorf("%d opened", opened)
	}
}
