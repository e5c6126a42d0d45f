package conversion

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

// withLicense is a checkpoint with this licence.
func withLicense(t *testing.T, license string) *safetensors.Checkpoint {
	dir := writeCheckpoint(t, llamaConfig, llama()...)
	if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte(license), 0o666); err != nil {
		t.Fatal(err)
	}
	return openCheckpoint(t, dir)
}

func planned(t *testing.T, ck *safetensors.Checkpoint, opts Options) ([]byte, *gqf.File) {
	t.Helper()
	p, err := quantizing(ck, []byte(llamaConfig), opts)
	if err != nil {
		t.Fatal(err)
	}
	_, b, f := fillPlan(t, p)
	return b, f
}

func license(t *testing.T, f *gqf.File) string {
	t.Helper()
	if !f.HasAsset("LICENSE") {
		return ""
	}
	b, err := f.Asset("LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAssetCache removes a file between plans: only plans without the cache, or with another
// checkpoint, read the directory again.
func TestAssetCache(t *testing.T) {
	ck, other := withLicense(t, "license of one"), withLicense(t, "license of the other")
	two, three := Options{Recipe: quantizer.Recipe{Bits: 2}}, Options{Recipe: quantizer.Recipe{Bits: 3}}
	want, _ := planned(t, ck, three)

	cache := new(fromcheckpoint.AssetCache)
	two.Assets = cache
	planned(t, ck, two)
	if err := os.Remove(filepath.Join(ck.Dir(), "LICENSE")); err != nil {
		t.Fatal(err)
	}
	if _, f := planned(t, ck, three); license(t, f) != "" {
		t.Error("a plan without a cache has the removed file")
	}
	three.Assets = cache
	if got, f := planned(t, ck, three); !bytes.Equal(got, want) {
		t.Errorf("a plan with the cache gives another file; its licence is %q", license(t, f))
	}
	if _, f := planned(t, other, three); license(t, f) != "license of the other" {
		t.Errorf("another checkpoint got the licence %q", license(t, f))
	}
}

// TestAssetCacheOrigin: the record of a fold belongs to its plan.
func TestAssetCacheOrigin(t *testing.T) {
	ck, cache := withLicense(t, "license"), new(fromcheckpoint.AssetCache)
	for _, record := range []string{`{"fold":1}`, `{"fold":2}`, ""} {
		opts := Options{Assets: cache}
		if record != "" {
			opts.Origin = &fromcheckpoint.Origin{Checkpoint: ck, Record: []byte(record)}
		}
		_, f := planned(t, ck, opts)
		if f.HasAsset(gqf.FoldName) != (record != "") {
			t.Errorf("record %q: the file has a record: %t", record, record == "")
		}
		if record == "" {
			continue
		}
		if got, err := f.Asset(gqf.FoldName); err != nil || string(got) != record {
			t.Errorf("record %s: the file has %s, %v", record, got, err)
		}
	}
}

// TestAssetCacheConcurrent has plans fill and read one cache at once.
func TestAssetCacheConcurrent(t *testing.T) {
	testshared.SlowEmulated(t, "assets are read by the same code natively")
	checkpoints := []*safetensors.Checkpoint{withLicense(t, "license of one"), withLicense(t, "license of the other")}
	cache := new(fromcheckpoint.AssetCache)
	var plans [8]*write.Job
	var wg sync.WaitGroup
	for i := range plans {
		wg.Go(func() {
			var err error
			opts := Options{Recipe: quantizer.Recipe{Bits: 1 + i}, Assets: cache}
			if plans[i], err = quantizing(checkpoints[i%2], []byte(llamaConfig), opts); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, p := range plans {
		if p == nil {
			continue
		}
		want, _ := planned(t, checkpoints[i%2], Options{Recipe: quantizer.Recipe{Bits: 1 + i}})
		if _, got, _ := fillPlan(t, p); !bytes.Equal(got, want) {
			t.Errorf("%d bits: the cache gives another file", 1+i)
		}
	}
}

// TestAssetCacheErrors: a bad file fails every plan until it is repaired.
func TestAssetCacheErrors(t *testing.T) {
	ck := withLicense(t, "license\x00")
	opts := Options{Assets: new(fromcheckpoint.AssetCache)}
	for range 2 {
		if _, err := quantizing(ck, []byte(llamaConfig), opts); err == nil || !strings.Contains(err.Error(), "is not a licence") {
			t.Errorf("error %v", err)
		}
	}
	if err := os.WriteFile(filepath.Join(ck.Dir(), "LICENSE"), []byte("license"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, f := planned(t, ck, opts); license(t, f) != "license" {
		t.Errorf("the licence is %q", license(t, f))
	}
}
