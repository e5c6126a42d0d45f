package conversion

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/divide"
	"github.com/lowbit-go/gq/internal/job/part"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// single is the file and the report of a job without parts.
func single(t *testing.T, src string, opts Options) ([]byte, *write.Report) {
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
func makeParts(t *testing.T, src, path string, opts Options, store divide.PartStore, of int, indices ...int) (list []*divide.PartReport) {
	t.Helper()
	for _, i := range indices {
		p, err := newPlan(t, src, opts)
		if err != nil {
			t.Fatal(err)
		}
		r, err := divide.WritePart(t.Context(), p, path, divide.PartOptions{Part: write.Part{Index: i, Of: of}, Store: store, Maker: "test"})
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
func timeless(t *testing.T, r write.Report) string {
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
	testshared.SlowEmulated(t, "parts are joined by the same code natively")
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
	for i, c := range []struct {
		name, src string
		recipe    quantizer.Recipe
	}{
		{"default", books, quantizer.Recipe{}},
		{"layouts", books, quantizer.Recipe{Bits: 4, Layouts: layouts}},
		{"torchao", books, quantizer.Recipe{Bits: 4, Layouts: torchao, ScaleDtype: packing.ScaleF32}},
		{"rules and hashes", books, quantizer.Recipe{Bits: 3, Group: new(64), HashFiles: true, Rules: []quantizer.Rule{{Match: "*.q_proj", Bits: 8}, {Match: "*.up_proj", Skip: true}}}},
		{"fractional zero points", books, quantizer.Recipe{Bits: 2, Mapping: gqf.MappingAsymmetric}},
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
			// All jobs in 3 parts; they take turns with the other numbers.
			counts := []int{3, []int{1, 8, p.Units().N + 3}[i%3]}
			if testing.Short() {
				counts = counts[:1] // under emulation
			}
			for j, n := range counts {
				for k, store := range []*memoryStore{nil, newMemoryStore()} {
					if j > 0 && k != i/3%2 || n > 40 {
						continue
					}
					path := filepath.Join(t.TempDir(), "model.gqf")
					got, merged, left := mergedParts(t, c.src, path, Options{Recipe: c.recipe}, store, n)
					if !bytes.Equal(got, want) {
						t.Errorf("%d parts, objects %v: the file differs from one job's at byte %d of %d", n, store != nil, firstDifference(got, want), len(want))
					}
					if got, want := timeless(t, *merged.Report), timeless(t, *report); got != want {
						t.Errorf("%d parts, objects %v: the report is\n%s\nwant\n%s", n, store != nil, got, want)
					}
					if left != 1 {
						t.Errorf("%d parts, objects %v: %d files are left", n, store != nil, left)
					}
				}
			}
		})
	}
}

// mergedParts makes n parts and merges them. It returns the file, the report, and the number of
// files that are left.
func mergedParts(t *testing.T, src, path string, opts Options, store *memoryStore, n int) ([]byte, *divide.MergeReport, int) {
	t.Helper()
	var o divide.MergeOptions
	if store != nil {
		o.Store = store
	}
	makeParts(t, src, path, opts, o.Store, n, upTo(n)...)
	r, err := divide.MergeParts(t.Context(), path, o)
	if err != nil {
		t.Fatalf("%d parts, objects %v: %v", n, store != nil, err)
	}
	if store != nil {
		return store.files[path], r, len(store.files)
	}
	left, _ := os.ReadDir(filepath.Dir(path))
	return mustRead(t, path), r, len(left)
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
	opts := Options{Recipe: quantizer.Recipe{Bits: 4, Group: new(32)}}
	want, _ := single(t, src, opts)
	path := filepath.Join(t.TempDir(), "model.gqf")
	merge := func(expect ...string) {
		t.Helper()
		_, err := divide.MergeParts(t.Context(), path, divide.MergeOptions{})
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
	makeParts(t, src, path, opts, nil, 4, 0, 2)
	merge("missing: 1, 3", "--part 1/4, --part 3/4")
	makeParts(t, src, path, opts, nil, 4, 1, 3)
	for _, r := range makeParts(t, src, path, opts, nil, 4, upTo(4)...) {
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
		if r := makeParts(t, src, path, opts, nil, 4, 2)[0]; r.Found {
			t.Errorf("%s: the part was not made again", name)
		}
		if b, _ := os.ReadFile(p2); !bytes.Equal(b, whole) {
			t.Errorf("%s: another part was made", name)
		}
	}
	other := Options{Recipe: quantizer.Recipe{Bits: 4, Group: new(64)}}
	makeParts(t, src, path, other, nil, 4, 1)
	name, another := planName(t, src, opts, 4), planName(t, src, other, 4)
	merge(part.Path(path, 1, 4)+" is of plan "+another+" of gq test, expected plan "+name, "gq quantize again with --part 1/4, then merge")
	// Parts of jobs with other numbers of parts are ignored.
	makeParts(t, src, path, opts, nil, 4, 1)
	makeParts(t, src, path, opts, nil, 3, 1)
	if err := os.WriteFile(part.Path(path, 0, 2), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := divide.MergeParts(t.Context(), path, divide.MergeOptions{Plan: name, KeepParts: true}); err != nil {
		t.Fatal(err)
	}
	os.Remove(part.Path(path, 1, 3))
	os.Remove(part.Path(path, 0, 2))

	// A merge that was ended while it removed parts.
	os.Remove(part.Path(path, 3, 4))
	r, err := divide.MergeParts(t.Context(), path, divide.MergeOptions{})
	if err != nil || !r.Merged {
		t.Fatalf("%+v, %v", r, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("%d files are left", len(left))
	}
	if got, _ := os.ReadFile(path); !bytes.Equal(got, want) {
		t.Error("the file differs from one job's")
	}
	if r, err := divide.MergeParts(t.Context(), path, divide.MergeOptions{Plan: name, Maker: "test"}); err != nil || !r.Merged || r.Parts != 0 || r.OutputBytes != int64(len(want)) {
		t.Errorf("a merge that is repeated: %+v, %v", r, err)
	}
	for _, o := range []divide.MergeOptions{{Maker: "test"}, {Plan: another, Maker: "test"}, {Plan: name, Maker: "another"}} {
		if _, err := divide.MergeParts(t.Context(), path, o); err == nil || !strings.Contains(err.Error(), "The .gqf file that is there is of another job") {
			t.Errorf("without parts, %+v: %v", o, err)
		}
	}
	makeParts(t, src, path, other, nil, 4, upTo(4)...)
	if _, err := divide.MergeParts(t.Context(), path, divide.MergeOptions{Plan: name, Maker: "test"}); err == nil || !strings.Contains(err.Error(), "its parts are of plan "+another+", expected plan "+name) {
		t.Errorf("parts of another job: %v", err)
	}
	for i := range 4 {
		os.Remove(part.Path(path, i, 4))
	}
	if err := os.Truncate(path, int64(len(want)-1)); err != nil {
		t.Fatal(err)
	}
	if _, err := divide.MergeParts(t.Context(), path, divide.MergeOptions{}); err == nil || !strings.Contains(err.Error(), "no complete .gqf file either") {
		t.Errorf("a truncated file counts as merged: %v", err)
	}
}

// planName is the name of the plan of a job in so many parts.
func planName(t *testing.T, src string, opts Options, of int) string {
	t.Helper()
	p, err := newPlan(t, src, opts)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r, err := divide.WritePart(t.Context(), p, filepath.Join(dir, "model.gqf"), divide.PartOptions{Part: write.Part{Index: 0, Of: of}, Maker: "test", Dry: true})
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("a dry part has left %v", left)
	}
	return r.Plan
}

// TestPartCancelled: a cancelled worker leaves no part, and a cancelled merge leaves all parts.
func TestPartCancelled(t *testing.T) {
	src := mixedCheckpoint(t)
	path := filepath.Join(t.TempDir(), "model.gqf")
	ctx, cancel := context.WithCancel(t.Context())
	opts := Options{Recipe: quantizer.Recipe{Bits: 4}, Threads: 1}
	p, err := newPlan(t, src, opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := divide.WritePart(ctx, p, path, divide.PartOptions{Part: write.Part{Index: 0, Of: 1}, Maker: "test", Progress: func(int64) { cancel() }}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
		t.Errorf("%d files are left", len(left))
	}
	makeParts(t, src, path, opts, nil, 2, 0, 1)
	if _, err := divide.MergeParts(ctx, path, divide.MergeOptions{}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 2 {
		t.Errorf("%d files are left", len(left))
	}
}

// TestPartsOfOtherWeights: parts of two sources with equal headers do not make a file, and the file
// of the first source is not the merge of the second's parts.
func TestPartsOfOtherWeights(t *testing.T) {
	source := func(change int) string {
		return writeCheckpoint(t, "", testTensor{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.F32, shape: []int64{256, 256},
			value: func(i int) float32 { return float32(i*change%101) - 50 }})
	}
	first, second := source(37), source(41)
	opts := Options{Recipe: quantizer.Recipe{Bits: 4}}
	path := filepath.Join(t.TempDir(), "model.gqf")
	makeParts(t, first, path, opts, nil, 2, 0, 1)
	if _, err := divide.MergeParts(t.Context(), path, divide.MergeOptions{KeepParts: true}); err != nil {
		t.Fatal(err)
	}
	if r := makeParts(t, second, path, opts, nil, 2, 0)[0]; r.Found {
		t.Error("the part of other weights is found")
	}
	if _, err := divide.MergeParts(t.Context(), path, divide.MergeOptions{}); err == nil || !strings.Contains(err.Error(), part.Path(path, 1, 2)+" is of plan ") {
		t.Errorf("parts of two sources: %v", err)
	}
	os.Remove(part.Path(path, 1, 2))
	var missing *divide.PartsError
	if r, err := divide.MergeParts(t.Context(), path, divide.MergeOptions{}); !errors.As(err, &missing) {
		t.Errorf("the older file counts as merged: %+v, %v", r, err)
	}
	if _, err := os.Stat(part.Path(path, 0, 2)); err != nil {
		t.Error(err)
	}
}

// TestPartDamagedAlone: a part with damaged data does not make the next one damaged, which goes on
// within the same tensor.
func TestPartDamagedAlone(t *testing.T) {
	src := writeCheckpoint(t, "", testTensor{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.F32, shape: []int64{4096, 512},
		value: func(i int) float32 { return float32(i*37%101) - 50 }})
	path := filepath.Join(t.TempDir(), "model.gqf")
	makeParts(t, src, path, Options{Recipe: quantizer.Recipe{Bits: 4}}, nil, 4, upTo(4)...)
	name := part.Path(path, 1, 4)
	b := mustRead(t, name)
	b[128] ^= 1
	if err := os.WriteFile(name, b, 0o666); err != nil {
		t.Fatal(err)
	}
	var bad *divide.PartsError
	if _, err := divide.MergeParts(t.Context(), path, divide.MergeOptions{}); !errors.As(err, &bad) || len(bad.Again) != 1 || bad.Again[0] != 1 {
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
