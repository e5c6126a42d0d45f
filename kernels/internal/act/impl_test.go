package act

import (
	"os"
	"slices"
	"testing"
)

// eachImplementation runs f once per instruction set that this CPU has, the portable code included.
func eachImplementation(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	for _, cpu := range supported() {
		t.Run(cpu, func(t *testing.T) {
			use(t, cpu)
			f(t)
		})
	}
}

func use(tb testing.TB, cpu string) {
	tb.Helper()
	if err := Select(cpu); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := Select(""); err != nil {
			tb.Fatal(err)
		}
	})
}

// TestExpectedCPU fails where a builder that must test an implementation would pass without it: CI sets GQ_EXPECT_CPU
// to the instruction set that the machine is known to have.
func TestExpectedCPU(t *testing.T) {
	want := os.Getenv("GQ_EXPECT_CPU")
	if want == "" {
		t.Skip("GQ_EXPECT_CPU names no instruction set")
	}
	if !slices.Contains(supported(), want) {
		t.Errorf("GQ_EXPECT_CPU is %s, this CPU or build has %v", want, supported())
	}
}

func TestSelect(t *testing.T) {
	defer use(t, "")
	best := Implementation()
	for _, cpu := range cpuNames {
		err := Select(cpu)
		if has := slices.Contains(supported(), cpu); has != (err == nil) {
			t.Errorf("Select(%q) = %v on a CPU with %v", cpu, err, supported())
		}
		want := best
		if cpu == "generic" {
			want = "generic"
		}
		if got := Implementation(); err == nil && got != want {
			t.Errorf("after Select(%q) Implementation() = %q, want %q", cpu, got, want)
		}
	}
	use(t, "generic")
	if Select("avx3") == nil {
		t.Error("an unknown name was taken")
	}
	if Implementation() != "generic" {
		t.Error("a failed Select changed the implementation")
	}
}
