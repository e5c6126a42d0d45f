package fold

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lowbit-go/gq/internal/job/workdir"
)

// TestParseRecordErrors parses invalid records.
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

// TestKept checks that the same key gives the stored record and checkpoint, unless a byte of them
// has changed.
func TestKept(t *testing.T) {
	work, err := workdir.Open(filepath.Join(t.TempDir(), "out.gqf.fold"))
	if err != nil {
		t.Fatal(err)
	}
	defer work.Close()
	made := 0
	get := func(key string, fail error) (checkpoint string, r *Record, err error) {
		before := made
		checkpoint, r, found, err := Stored(t.Context(), work, key, func(dst string) (*Record, error) {
			made++
			if fail != nil {
				if e := os.MkdirAll(dst+".part0", 0o777); e != nil {
					t.Fatal(e)
				}
				return nil, fail
			}
			return Make(t.Context(), tiny("llama3"), dst, Job{Rotate: true, Seed: uint64(len(key))})
		})
		if err == nil && found != (made == before) {
			t.Errorf("found %v, made %d times", found, made-before)
		}
		return checkpoint, r, err
	}
	fail := errors.New("ended")
	if _, _, err := get("a", fail); err != fail {
		t.Fatal(err)
	}
	_, first, err := get("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, again, err := get("a", nil)
	if diff := cmp.Diff(first, again); err != nil || made != 2 || diff != "" {
		t.Fatalf("made %d times, %v, records differ: %s", made, err, diff)
	}
	dir, r, err := get("bb", nil)
	if err != nil || made != 3 || *r.Steps[0].Seed != 2 {
		t.Fatalf("made %d times, %v", made, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for i, file := range append(files, filepath.Join(filepath.Dir(dir), recordName)) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 4
		if err := os.WriteFile(file, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, _, err := get("bb", nil); err != nil || made != 4+i {
			t.Fatalf("%s was damaged: made %d times, %v", file, made, err)
		}
	}
}

// FuzzRecord parses records and applies the valid ones to a checkpoint: errors are allowed, panics
// are not.
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
