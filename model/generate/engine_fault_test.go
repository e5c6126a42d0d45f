package generate

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// untied makes a checkpoint of the bundled model with an lm_head of its own, whose embedding is at
// the end of the file.
func untied(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(books)); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(books, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	type tensor struct {
		Dtype   string  `json:"dtype"`
		Shape   []int64 `json:"shape"`
		Offsets [2]int  `json:"data_offsets"`
	}
	n := 8 + int(binary.LittleEndian.Uint64(raw))
	var tensors map[string]json.RawMessage
	if err := json.Unmarshal(raw[8:n], &tensors); err != nil {
		t.Fatal(err)
	}
	const embedding = "model.embed_tokens.weight"
	var e tensor
	if err := json.Unmarshal(tensors[embedding], &e); err != nil {
		t.Fatal(err)
	}
	data := append(raw[n:], raw[n+e.Offsets[0]:n+e.Offsets[1]]...)
	tensors["lm_head.weight"] = tensors[embedding]
	e.Offsets = [2]int{len(data) - (e.Offsets[1] - e.Offsets[0]), len(data)}
	if tensors[embedding], err = json.Marshal(e); err != nil {
		t.Fatal(err)
	}
	delete(tensors, "__metadata__")
	header, err := json.Marshal(tensors)
	if err != nil {
		t.Fatal(err)
	}
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	config = []byte(strings.Replace(string(config), `"tie_word_embeddings": true`, `"tie_word_embeddings": false`, 1))
	for name, b := range map[string][]byte{"model.safetensors": append(file, data...), "config.json": config} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestEngineDamaged takes away the end of a mapped file: requests fail whose tokens are there, and
// the others are served.
func TestEngineDamaged(t *testing.T) {
	testshared.SlowEmulated(t, "TestEngineAlone runs there")
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be made shorter")
	}
	dir := untied(t)
	g := open(t, dir, 2)
	want := mustRun(t, g, Options{Prompt: "The old man said", MaxTokens: 40})
	if slices.ContainsFunc(want.IDs, func(id int32) bool { return id >= 992 }) {
		t.Fatal("the text has a token of the part that is taken away")
	}
	e := newEngine(t, g, EngineOptions{Parallel: 3})
	path := filepath.Join(dir, "model.safetensors")
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	// at most 32 of 1024 rows of 256 bytes
	if err := os.Truncate(path, (st.Size()-4096)&^4095); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 9 {
		o := Options{Prompt: "The old man said", MaxTokens: 40}
		if i%3 == 1 {
			o = Options{PromptIDs: []int32{1, int32(1023 - i)}, MaxTokens: 40}
		}
		wg.Go(func() {
			r, err := e.Run(t.Context(), o)
			var gone *safetensors.FormatError
			switch {
			case i%3 == 1:
				if !errors.As(err, &gone) {
					t.Errorf("request %d: error %v, want that of a truncated file", i, err)
				}
			case err != nil || !slices.Equal(r.IDs, want.IDs):
				t.Errorf("request %d: %+v, %v", i, r, err)
			}
		})
	}
	wg.Wait()
	if s := e.Stats(); s.Running != 0 || s.PagesUsed != 0 {
		t.Errorf("%+v", s)
	}
}
