package testmodels

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// Books makes a checkpoint of the bundled model's embedding and first layers, as FirstLayers does.
func Books(t testing.TB, layers int) string {
	t.Helper()
	return FirstLayers(t, filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16"), layers)
}

var numLayers = regexp.MustCompile(`"num_hidden_layers": *\d+`)

// FirstLayers makes a checkpoint of a model's embedding and first layers, for jobs that take time
// in proportion to the layers, and returns its directory. Its text is worse than the whole model's.
func FirstLayers(t testing.TB, from string, layers int) string {
	t.Helper()
	dir := t.TempDir()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		switch e.Name() {
		case "model.safetensors":
			continue
		case "config.json":
			if !numLayers.Match(b) {
				t.Fatalf("config.json of %s states no num_hidden_layers", from)
			}
			b = numLayers.ReplaceAll(b, fmt.Appendf(nil, `"num_hidden_layers": %d`, layers))
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	ck, err := safetensors.Open(from, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	var tensors []safetensors.Tensor
	var specs []safetensors.TensorSpec
	for _, s := range ck.Tensors() {
		if i, ok := layerOf(s.Name); ok && i >= layers {
			continue
		}
		tensors = append(tensors, s)
		specs = append(specs, safetensors.TensorSpec{Name: s.Name, Dtype: s.Dtype, Shape: s.Shape})
	}
	w, err := safetensors.Create(dir, specs, safetensors.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i, s := range tensors {
		b, err := ck.Bytes(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WriteAt(i, b, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// layerOf returns the number of the layer that a tensor belongs to.
func layerOf(name string) (i int, ok bool) {
	rest, ok := strings.CutPrefix(name, "model.layers.")
	if !ok {
		return 0, false
	}
	number, _, _ := strings.Cut(rest, ".")
	i, err := strconv.Atoi(number)
	return i, err == nil
}
