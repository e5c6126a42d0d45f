package asmtest

import (
	"os"
	"testing"

	"github.com/lowbit-go/gq/internal/cpu"
)

// Each runs a test once for each implementation of the family that this CPU supports; the program
// uses that implementation meanwhile. Each fails if the builder should support more, see Expect.
func Each[T any](t *testing.T, f *cpu.Family[T], run func(t *testing.T, code T)) {
	t.Helper()
	Expect(t, f)
	for _, i := range Implementations(f) {
		t.Run(i.Feature, func(t *testing.T) {
			Restrict(t, i.Feature)
			run(t, i.Code)
		})
	}
}

// Expect fails on a builder that must test assembly but has only portable code: CI sets
// GQ_EXPECT_CPU to the best instruction set of the machine.
func Expect[T any](t *testing.T, f *cpu.Family[T]) {
	t.Helper()
	want := os.Getenv("GQ_EXPECT_CPU")
	if want == "" {
		return
	}
	features, err := cpu.UpTo(want)
	if err != nil {
		t.Errorf("GQ_EXPECT_CPU: %v", err)
	} else if want != cpu.Generic && f.For(features).Feature == cpu.Generic {
		t.Errorf("GQ_EXPECT_CPU is %s, but %s has only portable code in this build", want, f.Name())
	}
}

// Implementations lists the implementations of the family that this CPU supports, the portable
// implementation first.
func Implementations[T any](f *cpu.Family[T]) (list []cpu.Implementation[T]) {
	for _, i := range f.All() {
		if cpu.Check(i.Feature) == nil {
			list = append(list, i)
		}
	}
	return list
}

// Restrict makes the program use an instruction set and its predecessors until the test ends, like
// the environment variable GQ_CPU; "" means all instruction sets of this CPU.
func Restrict(tb testing.TB, name string) {
	was := cpu.Restrict(name)
	tb.Cleanup(func() { cpu.Restrict(was) })
}
