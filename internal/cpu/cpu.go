// Package cpu is the program's one detection of instruction sets and its one selection of code for
// them.
//
// An instruction set has a name, which the environment variable GQ_CPU, flags and options take.
// Code for instruction sets is an implementation of a [Family]: a package makes the family of its
// portable code, and each file with assembly registers what it holds, in an init function, as
// crypto/internal/impl of Go's library does:
//
//	var impl = cpu.NewFamily("vec", false)              // vec.go
//	func init() { impl.Register(cpu.AVX2, true) }       // kernels_amd64.go
//	if impl.Chosen() { ... }                            // the program's choice
//
// All implementations of a family give the same bits. Tests run once for each, see package
// internal/asmtest.
package cpu

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// The instruction sets, from the least to the best of an architecture. An instruction set includes
// those before it.
const (
	Generic = "generic" // portable Go, which every machine runs
	NEON    = "neon"
	DotProd = "dotprod"
	I8MM    = "i8mm"
	AVX2    = "avx2"       // with FMA and F16C
	AVX512  = "avx512vnni" // with F, BW, DQ, VL and VNNI
)

// Names are the instruction sets that code is written for, on any machine.
var Names = []string{Generic, NEON, DotProd, I8MM, AVX2, AVX512}

// Supported lists the instruction sets that this CPU and this build have, from the least to the
// best. With the build tag purego there is Generic alone. The slice is the caller's.
func Supported() []string { return slices.Clone(supported) }

// supported is worked out once: a CPU does not change.
var supported = append([]string{Generic}, features()...)

// Check reports a name that is none, or an instruction set that this CPU or this build lacks.
func Check(name string) error {
	switch {
	case !slices.Contains(Names, name):
		return fmt.Errorf("unknown instruction set %q: this CPU has %s", name, strings.Join(supported, ", "))
	case !slices.Contains(supported, name):
		return fmt.Errorf("this CPU or build has no %s: it has %s", name, strings.Join(supported, ", "))
	}
	return nil
}

// UpTo lists what code restricted to name may use: the supported instruction sets up to name, from
// the least to the best. An empty name stands for the program's restriction, which the environment
// variable GQ_CPU names when the program starts; without it there is none. It fails as Check does;
// an error of GQ_CPU says so.
func UpTo(name string) ([]string, error) {
	from := ""
	if name == "" {
		name, from = restriction, "GQ_CPU: "
	}
	if name == "" {
		return Supported(), nil
	}
	if err := Check(name); err != nil {
		return nil, fmt.Errorf("%s%w", from, err)
	}
	return slices.Clone(supported[:slices.Index(supported, name)+1]), nil
}

// restriction is the best instruction set that the program may use; "": the best there is. Only
// Restrict writes it.
var restriction string

func init() { Restrict(os.Getenv("GQ_CPU")) }

// allowed lists what the program may use: portable code alone if GQ_CPU is wrong, which is for
// UpTo("") to report.
func allowed() []string {
	list, err := UpTo("")
	if err != nil {
		return []string{Generic}
	}
	return list
}

// Restrict replaces the program's restriction and chooses in every family again. After the
// program's start it is for tests alone, while nothing else runs; see asmtest.Restrict.
func Restrict(name string) (was string) {
	was, restriction = restriction, name
	list := allowed()
	for _, f := range families {
		f.choose(list)
	}
	return was
}
