package cpu

import (
	"os"
	"slices"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, name := range Names {
		if err := Check(name); (err == nil) != slices.Contains(Supported(), name) {
			t.Errorf("Check(%q) = %v on a CPU with %v", name, err, Supported())
		}
	}
	if err := Check("avx3"); err == nil {
		t.Error("an unknown name was taken")
	}
	if err := Check(""); err == nil {
		t.Error("an empty name was taken")
	}
}

func TestUpTo(t *testing.T) {
	all := Supported()
	if got := UpTo(""); !slices.Equal(got, all) {
		t.Errorf("UpTo(\"\") = %v, want %v", got, all)
	}
	for i, name := range all {
		if got := UpTo(name); !slices.Equal(got, all[:i+1]) {
			t.Errorf("UpTo(%q) = %v, want %v", name, got, all[:i+1])
		}
	}
	if got := UpTo("none"); !slices.Equal(got, []string{Generic}) {
		t.Errorf("UpTo of an unknown name = %v", got)
	}
	if Best() != all[len(all)-1] {
		t.Errorf("Best() = %q of %v", Best(), all)
	}
}

// TestExpectedCPU fails where a builder that must test an implementation would pass without it: CI sets GQ_EXPECT_CPU
// to the instruction set that the machine is known to have.
func TestExpectedCPU(t *testing.T) {
	want := os.Getenv("GQ_EXPECT_CPU")
	if want == "" {
		t.Skip("GQ_EXPECT_CPU names no instruction set")
	}
	if !slices.Contains(Supported(), want) {
		t.Errorf("GQ_EXPECT_CPU is %s, this CPU or build has %v", want, Supported())
	}
}
