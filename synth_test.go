package gq_test

import (
	"context"
	"strings"
	"testing"

	"github.com/lowbit-go/gq"
)

// TestSynthOutliersExists demands that a directory that exists is refused before the model writes
// its text.
func TestSynthOutliersExists(t *testing.T) {
	var told listener
	_, err := gq.SynthOutliers(context.Background(), "testdata/books1.3M-bf16", t.TempDir(), gq.OutlierOptions{Progress: &told})
	if err == nil || !strings.Contains(err.Error(), "exists: name a new directory") {
		t.Errorf("%v, want a refusal to replace a directory", err)
	}
	if len(told.stages) > 0 {
		t.Errorf("stages %v began", told.stages)
	}
}
