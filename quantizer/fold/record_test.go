package fold

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestParseRecordErrors reads records that are not right.
func TestParseRecordErrors(t *testing.T) {
	for in, want := range map[string]string{
		`{`:                        "unexpected end",
		`{"version":2,"steps":[]}`: "version 2",
		`{"version":1,"steps":[]}`: "0 steps",
		`{"version":1,"steps":[{"kind":"shuffle"}]}`:                                                    `"shuffle" is no kind`,
		`{"version":1,"steps":[{"kind":"rotate"}]}`:                                                     "without a seed",
		`{"version":1,"steps":[{"kind":"scale","scalings":[{"t":"AACAPw=="}]}]}`:                        "a norm or rows",
		`{"version":1,"steps":[{"kind":"scale","scalings":[{"norm":"n","t":"AAAAAA=="}]}]}`:             "0 is not one",
		`{"version":1,"steps":[{"kind":"scale","scalings":[{"norm":"n","t":"AADAfw=="}]}]}`:             "NaN is not one",
		`{"version":1,"steps":[{"kind":"scale","scalings":[{"norm":"n","t":"AAA="}]}]}`:                 "no float32",
		`{"version":1,"steps":[{"kind":"scale","scalings":[{"rows":{"rows":2},"t":"AACAPw=="}]}]}`:      "1 of them for 2 rows",
		`{"version":1,"steps":[{"kind":"scale","scalings":[{"norm":"n","repeat":2,"t":"AACAPw=="}]}]}`:  "heads of 0",
		`{"version":1,"steps":[{"kind":"scale","scalings":[{"norm":"n","repeat":-1,"t":"AACAPw=="}]}]}`: "repeated -1 times",
	} {
		if _, err := ParseRecord([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

// TestWork looks at what stays in a work directory, and what is found there again.
func TestWork(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out.gqf.fold")
	w := Work{dir}
	made := 0
	fail := errors.New("ended")
	get := func(key string, err error) (*Record, error) {
		return w.Get(key, func(dst string) (*Record, error) {
			made++
			if err != nil {
				if e := os.MkdirAll(dst+".part0", 0o777); e != nil {
					t.Fatal(e)
				}
				return nil, err
			}
			return Make(context.Background(), tiny("llama3"), dst, Job{Rotate: true, Seed: uint64(len(key))})
		})
	}
	if _, err := get("a", fail); err != fail {
		t.Fatal(err)
	}
	first, err := get("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := get("a", nil)
	if err != nil || made != 2 || *again.Steps[0].Seed != *first.Steps[0].Seed {
		t.Fatalf("made %d times, %v", made, err)
	}
	if r, err := get("bb", nil); err != nil || made != 3 || *r.Steps[0].Seed != 2 {
		t.Fatalf("made %d times, %v", made, err)
	}
	// Killed before job.json: what is there does not count.
	if err := os.Remove(filepath.Join(dir, jobName)); err != nil {
		t.Fatal(err)
	}
	if _, err := get("bb", nil); err != nil || made != 4 {
		t.Fatalf("made %d times, %v", made, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := w.Remove(); err == nil || !strings.Contains(err.Error(), "notes.txt") {
		t.Fatalf("%v: a person's file was in the way", err)
	}
	if err := os.Remove(filepath.Join(dir, "notes.txt")); err != nil {
		t.Fatal(err)
	}
	if err := w.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory is still there")
	}
}

// FuzzRecord parses records, and applies those that can be read to a checkpoint: errors, but no panics.
func FuzzRecord(f *testing.F) {
	s := Rotate(1)
	r := Record{Version: recordVersion, Steps: []Step{s}}
	raw, err := json.Marshal(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"version":1,"steps":[{"kind":"scale","by":"awq","scalings":[{"norm":"model.layers.0.input_layernorm.weight","consumers":[{"tensor":"model.layers.0.self_attn.q_proj.weight","from":0,"rows":32}],"t":"AACAPw=="}]}]}`))
	f.Add([]byte(`{"version":1,"steps":[{"kind":"scale","scalings":[{"rows":{"tensor":"model.layers.0.mlp.up_proj.weight","from":-1,"rows":1},"consumers":[{"tensor":"model.layers.0.mlp.down_proj.weight","from":9,"rows":1152921504606846976}],"head_dim":1,"repeat":1048576,"t":"AACAPw=="}]}]}`))
	ck, err := openSource(tiny("llama3"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { ck.Close() })
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := ParseRecord(raw)
		if err != nil {
			return
		}
		for i := range r.Steps {
			if r.Steps[i].Kind == KindRotate {
				continue
			}
			e, err := scaleEdits(ck, r.Steps[i].Scalings)
			if err != nil || e.check(ck.Checkpoint) != nil {
				continue
			}
			w := &rewriter{edits: e, ck: ck}
			if _, err := w.plan(); err != nil {
				continue
			}
			for name, list := range e.vectors {
				tensor, _ := ck.Lookup(name)
				for _, v := range list {
					v.f(make([]float64, tensor.Numel()))
				}
			}
			for name, ed := range e.matrices {
				tensor, _ := ck.Lookup(name)
				rows, cols := tensor.Matrix()
				for n := range int(rows) {
					ed.row(make([]float64, cols), n, nil)
				}
			}
		}
	})
}
