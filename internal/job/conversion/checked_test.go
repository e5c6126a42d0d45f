package conversion

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// TestCheck has WriteOptions.Check see the complete file before it is at its path, and a check that
// fails leave what was there.
func TestCheck(t *testing.T) {
	testshared.SlowEmulated(t, "files are renamed by the same code natively")
	ck, err := safetensors.Open("../../../testdata/books1.3M-bf16", safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	config, err := assets.ReadConfig(ck)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := quantizing(ck, config, Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "model.gqf")
	if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	var seen []byte
	check := func(refuse error) func(string, *write.Report) error {
		return func(temp string, r *write.Report) error {
			if now, err := os.ReadFile(path); err != nil || string(now) != "old" {
				t.Errorf("the path holds %.10q, %v", now, err)
			}
			f, err := gqf.Open(temp, gqf.Options{})
			if err != nil {
				return err
			}
			defer f.Close()
			if v, err := f.Verify(context.Background(), gqf.VerifyOptions{Deep: true}); err != nil || !v.OK() {
				t.Errorf("the temporary: %v, %v", v, err)
			}
			if r.Quantized != 43 || r.Output != path {
				t.Errorf("report: %+v", r)
			}
			if seen, err = os.ReadFile(temp); err != nil {
				return err
			}
			return refuse
		}
	}
	no := errors.New("no")
	if r, err := plan.WriteWith(context.Background(), path, write.Options{Check: check(no)}); err != no || r != nil {
		t.Errorf("refused: %v, %v", r, err)
	}
	entries, err := os.ReadDir(dir)
	if now, _ := os.ReadFile(path); err != nil || string(now) != "old" || len(entries) != 1 {
		t.Errorf("refused: %d files, %.10q, %v", len(entries), now, err)
	}
	if _, err := plan.WriteWith(context.Background(), path, write.Options{Check: check(nil)}); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, seen) {
		t.Errorf("the file is not the one that was checked: %v", err)
	}
}
