package fold

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/model"
)

// tinyModels are random models of every architecture that package model runs.
func tinyModels(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../model/testdata/torch/*/config.json")
	if err != nil || len(files) < 16 {
		t.Fatalf("%d models, %v", len(files), err)
	}
	var dirs []string
	for _, f := range files {
		dirs = append(dirs, filepath.Dir(f))
	}
	return dirs
}

// TestExact holds what every step makes of every architecture to its logits.
func TestExact(t *testing.T) {
	for _, dir := range tinyModels(t) {
		name := filepath.Base(dir)
		for what, steps := range map[string]func() ([]Step, error){
			"rotate": func() ([]Step, error) { return []Step{Rotate(3)}, nil },
			"equalize": func() ([]Step, error) {
				s, err := Equalize(context.Background(), dir, Options{})
				return []Step{s}, err
			},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				list, err := steps()
				if err != nil {
					t.Fatal(err)
				}
				dst := filepath.Join(t.TempDir(), "folded")
				err = Apply(context.Background(), dir, dst, &Record{Version: recordVersion, Steps: list}, Options{})
				if what == "rotate" && strings.HasPrefix(name, "gemma") {
					var refused *model.UnsupportedError
					if !errors.As(err, &refused) || !strings.Contains(err.Error(), "norms with gains of their own") {
						t.Fatalf("%v, want a refusal that says why", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				c, err := compareLogits(context.Background(), dir, dst, nil, "", Options{})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%.3g", c.Difference)
			})
		}
	}
}
