package conversion

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/part"
	"github.com/lowbit-go/gq/internal/testmodels"
	"github.com/lowbit-go/gq/internal/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// single is the file and the report of a job without parts.
func single(t *testing.T, src string, opts Options) ([]byte, *Report) {
	t.Helper()
	p, err := newPlan(t, src, opts)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.gqf")
	r, err := p.Write(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b, r
}

// makeParts makes parts of the file at path, each with a plan of its own, as workers do.
func makeParts(t *testing.T, src, path string, opts Options, shared bool, of int, indices ...int) (list []*PartReport) {
	t.Helper()
	for _, i := range indices {
		p, err := newPlan(t, src, opts)
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.WritePart(t.Context(), path, PartOptions{Part: Part{i, of}, Shared: shared, Maker: "test"})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// upTo lists 0 to n - 1, backwards, because workers keep no order.
func upTo(n int) (list []int) {
	for i := n - 1; i >= 0; i-- {
		list = append(list, i)
	}
	return list
}

// timeless is a report as JSON without what depends on time and place.
func timeless(t *testing.T, r Report) string {
	t.Helper()
	r.Output, r.Seconds, r.SyncSeconds, r.BytesPerSecond = "", 0, 0, 0
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fp8Checkpoint has a weight of FP8 with block scales.
func fp8Checkpoint(t *testing.T) string {
	t.Helper()
	return writeCheckpoint(t, `{"model_type":"llama","quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}}`,
		testTensor{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.F8E4M3, shape: []int64{256, 256}, value: func(i int) float32 { return float32(i*37%100 + 8) }},
		testTensor{name: "model.layers.0.mlp.up_proj.weight_scale_inv", dtype: packing.F32, shape: []int64{2, 2}, value: func(i int) float32 { return float32(i+1) / 64 }},
		testTensor{name: "model.norm.weight", dtype: packing.BF16, shape: []int64{256}},
	)
}

// TestParts merges parts of many jobs, and compares file and report with one job's.
func TestParts(t *testing.T) {
	mixture := t.TempDir()
	testmodels.Mixture(t).Write(t, mixture)
	layouts, err := quantizer.ParseLayouts("lowbit,codes,kleidiai")
	if err != nil {
		t.Fatal(err)
	}
	torchao, err := quantizer.ParseLayouts("torchao")
	if err != nil {
		t.Fatal(err)
	}
	books := testmodels.Books(t, 2)
	for _, c := range []struct {
		name, src string
		recipe    quantizer.Recipe
	}{
		{"default", books, quantizer.Recipe{}},
		{"layouts", books, quantizer.Recipe{Bits: 4, Layouts: layouts}},
		{"torchao", books, quantizer.Recipe{Bits: 4, Layouts: torchao, ScaleDtype: packing.ScaleF32}},
		{"rules and hashes", books, quantizer.Recipe{Bits: 3, Group: 64, HashFiles: true, Rules: []quantizer.Rule{{Match: "*.q_proj", Bits: 8}, {Match: "*.up_proj", Skip: true}}}},
		{"hqq", books, quantizer.Recipe{Bits: 2, Algorithm: gqf.AlgorithmHQQ, Mapping: gqf.MappingAsymmetric}},
		{"mixture of experts", mixture, quantizer.Recipe{Bits: 5}},
		{"transposed and tied", mixedCheckpoint(t), quantizer.Recipe{Bits: 4}},
		{"fp8", fp8Checkpoint(t), quantizer.Recipe{Bits: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, report := single(t, c.src, Options{Recipe: c.recipe})
			p, err := newPlan(t, c.src, Options{Recipe: c.recipe})
			if err != nil {
				t.Fatal(err)
			}
			counts := []int{1, 3, 8, p.units().n + 3}
			if testing.Short() {
				counts = counts[1:2] // under emulation
			}
			for _, n := range counts {
				for _, shared := range []bool{false, true} {
					if n > 8 && (shared || n > 40) {
						continue
					}
					path := filepath.Join(t.TempDir(), "model.gqf")
					makeParts(t, c.src, path, Options{Recipe: c.recipe}, shared, n, upTo(n)...)
					r, err := MergeParts(t.Context(), path, MergeOptions{})
					if err != nil {
						t.Fatalf("%d parts, shared %v: %v", n, shared, err)
					}
					got, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got, want) {
						t.Errorf("%d parts, shared %v: the file differs from one job's at byte %d of %d", n, shared, firstDifference(got, want), len(want))
					}
					if got, want := timeless(t, *r.Report), timeless(t, *report); got != want {
						t.Errorf("%d parts, shared %v: the report is\n%s\nwant\n%s", n, shared, got, want)
					}
					if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
						t.Errorf("%d parts, shared %v: %d files are left", n, shared, len(left))
					}
				}
			}
		})
	}
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// TestPartAgain: a part that is there is found, and made again only if it is damaged or of another
// plan. Merging names missing, damaged and foreign parts.
func TestPartAgain(t *testing.T) {
	testshared.SlowEmulated(t, "damage is found by the same code natively")
	src := mixedCheckpoint(t)
	opts := Options{Recipe: quantizer.Recipe{Bits: 4, Group: 32}}
	want, _ := single(t, src, opts)
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.gqf")
			merge := func(expect ...string) {
				t.Helper()
				_, err := MergeParts(t.Context(), path, MergeOptions{})
				if err == nil {
					t.Fatal("merged")
				}
				for _, e := range expect {
					if !strings.Contains(err.Error(), e) {
						t.Errorf("error %q, want %q", err, e)
					}
				}
				if _, err := os.Stat(path); err == nil {
					t.Error("there is a file")
				}
			}
			merge("there are no parts of it")
			makeParts(t, src, path, opts, shared, 4, 0, 2)
			merge("missing: 1, 3", "--part 1/4, --part 3/4")
			makeParts(t, src, path, opts, shared, 4, 1, 3)
			for _, r := range makeParts(t, src, path, opts, shared, 4, upTo(4)...) {
				if !r.Found {
					t.Errorf("%s was made again", r.Part)
				}
			}
			p2 := part.Path(path, 2, 4)
			whole, err := os.ReadFile(p2)
			if err != nil {
				t.Fatal(err)
			}
			for name, damage := range map[string]func(b []byte) []byte{
				"truncated": func(b []byte) []byte { return b[:len(b)-1] },
				"emptied":   func(b []byte) []byte { return nil },
				"header":    func(b []byte) []byte { b[20] ^= 1; return b },
				"record":    func(b []byte) []byte { b[len(b)-20] ^= 1; return b },
				"data":      func(b []byte) []byte { b[128] ^= 1; return b },
				"elsewhere": func(b []byte) []byte { c, _ := os.ReadFile(part.Path(path, 1, 4)); return c },
			} {
				if err := os.WriteFile(p2, damage(bytes.Clone(whole)), 0o666); err != nil {
					t.Fatal(err)
				}
				t.Run(name, func(t *testing.T) { merge("--part 2/4", p2) })
				if r := makeParts(t, src, path, opts, shared, 4, 2)[0]; r.Found {
					t.Errorf("%s: the part was not made again", name)
				}
				if b, _ := os.ReadFile(p2); !bytes.Equal(b, whole) {
					t.Errorf("%s: another part was made", name)
				}
			}
			if shared { // damage of the shared file is found too
				f, err := os.OpenFile(part.SharedPath(path), os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteAt([]byte("damaged"), int64(len(want)/2)); err != nil {
					t.Fatal(err)
				}
				f.Close()
				merge("do not have the checksum")
				again := 0
				for _, r := range makeParts(t, src, path, opts, shared, 4, upTo(4)...) {
					if !r.Found {
						again++
					}
				}
				if again != 1 {
					t.Errorf("%d parts were made again", again)
				}
			}
			other := Options{Recipe: quantizer.Recipe{Bits: 4, Group: 64}}
			if shared {
				p, err := newPlan(t, src, other)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.WritePart(t.Context(), path, PartOptions{Part: Part{1, 4}, Shared: true, Maker: "test"}); err == nil || !strings.Contains(err.Error(), "another plan") {
					t.Errorf("a part of another plan in the shared file: %v", err)
				}
			} else {
				makeParts(t, src, path, other, shared, 4, 1)
				merge("has 3 of its 4 parts (0, 2-3); plan", "has 1 of its 4 parts (1). Choose one: for plan",
					" run gq quantize with this job's options and --part 1/4, merge again; for plan",
					" run gq quantize with this job's options and --part 0/4, --part 2/4, --part 3/4, merge again")
				makeParts(t, src, path, opts, shared, 4, 1)
				makeParts(t, src, path, opts, shared, 3, 1)
				merge("has 1 of its 3 parts (1); plan", "has 4 of its 4 parts (0-3). Choose one: for plan",
					" remove "+path+".part-*-of-4, run gq quantize with this job's options and --part 0/3, --part 2/3, merge again; for plan",
					" remove "+path+".part-*-of-3, merge again")
				os.Remove(part.Path(path, 1, 3))
				if err := os.WriteFile(part.Path(path, 0, 2), nil, 0o666); err != nil {
					t.Fatal(err)
				}
				merge("no file "+path+".part-*-of-2 can be read", " remove "+path+".part-*-of-2, merge again")
				os.Remove(part.Path(path, 0, 2))
			}

			// A merge that was ended while it removed parts.
			if _, err := MergeParts(t.Context(), path, MergeOptions{KeepParts: true}); err != nil {
				t.Fatal(err)
			}
			os.Remove(part.Path(path, 3, 4))
			r, err := MergeParts(t.Context(), path, MergeOptions{})
			if err != nil || !r.Merged {
				t.Fatalf("%+v, %v", r, err)
			}
			if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
				t.Errorf("%d files are left", len(left))
			}
			if got, _ := os.ReadFile(path); !bytes.Equal(got, want) {
				t.Error("the file differs from one job's")
			}
			if r, err := MergeParts(t.Context(), path, MergeOptions{}); err != nil || !r.Merged || r.Parts != 0 || r.OutputBytes != int64(len(want)) || r.Recorded.Recipe == nil || r.Recorded.Provenance == nil {
				t.Errorf("a merge that is repeated: %+v, %v", r, err)
			}
			if err := os.Truncate(path, int64(len(want)-1)); err != nil {
				t.Fatal(err)
			}
			if _, err := MergeParts(t.Context(), path, MergeOptions{}); err == nil || !strings.Contains(err.Error(), "no complete .gqf file either") {
				t.Errorf("a truncated file counts as merged: %v", err)
			}
		})
	}
}

// TestSharedMergeEnded: workers that are started again after a merge was ended at some point find their
// parts, and change nothing that is complete.
func TestSharedMergeEnded(t *testing.T) {
	src := mixedCheckpoint(t)
	opts := Options{Recipe: quantizer.Recipe{Bits: 4, Group: 32}}
	want, _ := single(t, src, opts)
	path := filepath.Join(t.TempDir(), "model.gqf")
	shared := part.SharedPath(path)
	workers := func(made int) {
		t.Helper()
		for _, r := range makeParts(t, src, path, opts, true, 4, upTo(4)...) {
			if !r.Found {
				made--
			}
		}
		if made != 0 {
			t.Errorf("%d parts were made again beyond the expected ones", -made)
		}
	}
	merge := func(merged bool) {
		t.Helper()
		r, err := MergeParts(t.Context(), path, MergeOptions{KeepParts: true})
		if err != nil || r.Merged != merged {
			t.Fatalf("%+v, %v", r, err)
		}
		if got, _ := os.ReadFile(path); !bytes.Equal(got, want) {
			t.Error("the file differs from one job's")
		}
	}
	workers(4)
	merge(false)
	workers(0) // after the file has appeared
	if _, err := os.Stat(shared); err == nil {
		t.Error("a worker has made the shared file again")
	}
	merge(true)

	// Before the file appears: the shared file is complete.
	if err := os.Rename(path, shared); err != nil {
		t.Fatal(err)
	}
	workers(0)
	f, err := os.OpenFile(shared, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damaged"), int64(len(want)/2)); err != nil {
		t.Fatal(err)
	}
	f.Close()
	workers(1)
	merge(false)

	// While the parts are removed: a worker whose part is gone makes it and the shared file anew, and the next
	// merge removes both.
	os.Remove(part.Path(path, 3, 4))
	makeParts(t, src, path, opts, true, 4, 3)
	os.Remove(part.Path(path, 2, 4))
	if r, err := MergeParts(t.Context(), path, MergeOptions{}); err != nil || !r.Merged {
		t.Fatalf("%+v, %v", r, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("%d files are left", len(left))
	}

	// A new job has begun: the file is not its merge.
	if err := os.WriteFile(shared, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := MergeParts(t.Context(), path, MergeOptions{}); err == nil || !strings.Contains(err.Error(), "A worker has begun") {
		t.Error(err)
	}
}

// TestPartCancelled: a cancelled worker leaves no part, and a cancelled merge leaves all parts.
func TestPartCancelled(t *testing.T) {
	src := mixedCheckpoint(t)
	path := filepath.Join(t.TempDir(), "model.gqf")
	ctx, cancel := context.WithCancel(t.Context())
	opts := Options{Recipe: quantizer.Recipe{Bits: 4}, Threads: 1, Progress: func(int64) { cancel() }}
	p, err := newPlan(t, src, opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.WritePart(ctx, path, PartOptions{Part: Part{0, 1}, Maker: "test"}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
		t.Errorf("%d files are left", len(left))
	}
	opts.Progress = nil
	makeParts(t, src, path, opts, false, 2, 0, 1)
	if _, err := MergeParts(ctx, path, MergeOptions{}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 2 {
		t.Errorf("%d files are left", len(left))
	}
}

// TestPartsOfOtherWeights: parts of two sources with equal headers do not make a file, and the file of the
// first source is not the merge of the second's parts.
func TestPartsOfOtherWeights(t *testing.T) {
	source := func(change int) string {
		return writeCheckpoint(t, "", testTensor{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.F32, shape: []int64{256, 256},
			value: func(i int) float32 { return float32(i*change%101) - 50 }})
	}
	first, second := source(37), source(41)
	opts := Options{Recipe: quantizer.Recipe{Bits: 4}}
	for _, shared := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "model.gqf")
		makeParts(t, first, path, opts, shared, 2, 0, 1)
		if _, err := MergeParts(t.Context(), path, MergeOptions{KeepParts: true}); err != nil {
			t.Fatal(err)
		}
		if r := makeParts(t, second, path, opts, shared, 2, 0)[0]; r.Found {
			t.Errorf("shared %v: the part of other weights is found", shared)
		}
		if _, err := MergeParts(t.Context(), path, MergeOptions{}); err == nil || !strings.Contains(err.Error(), "parts are of several jobs") {
			t.Errorf("shared %v: parts of two sources: %v", shared, err)
		}
		os.Remove(part.Path(path, 1, 2))
		var missing *PartsError
		if r, err := MergeParts(t.Context(), path, MergeOptions{}); !errors.As(err, &missing) {
			t.Errorf("shared %v: the older file counts as merged: %+v, %v", shared, r, err)
		}
		if _, err := os.Stat(part.Path(path, 0, 2)); err != nil {
			t.Error(err)
		}
	}
}

// TestPartDamagedAlone: a part with damaged data does not make the next one damaged, which goes on within
// the same tensor.
func TestPartDamagedAlone(t *testing.T) {
	src := writeCheckpoint(t, "", testTensor{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.F32, shape: []int64{4096, 512},
		value: func(i int) float32 { return float32(i*37%101) - 50 }})
	path := filepath.Join(t.TempDir(), "model.gqf")
	makeParts(t, src, path, Options{Recipe: quantizer.Recipe{Bits: 4}}, false, 4, upTo(4)...)
	name := part.Path(path, 1, 4)
	b := mustRead(t, name)
	b[128] ^= 1
	if err := os.WriteFile(name, b, 0o666); err != nil {
		t.Fatal(err)
	}
	var bad *PartsError
	if _, err := MergeParts(t.Context(), path, MergeOptions{}); !errors.As(err, &bad) || len(bad.Again) != 1 || bad.Again[0] != 1 {
		t.Errorf("%v, want part 1 alone", err)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
