// Package cpu detects the CPU's instruction sets and selects code for them, for the whole program.
//
// The environment variable GQ_CPU, flags and options name instruction sets. Code for an instruction
// set is an implementation of a [Family]: a package makes the family of its portable code, and each
// file with assembly registers its implementation in an init function, like crypto/internal/impl of
// Go's library:
//
//	var impl = cpu.NewFamily("vec", false)              // vec.go
//	func init() { impl.Register(cpu.AVX2, true) }       // kernels_amd64.go
//	if impl.Chosen() { ... }                            // the program's choice
//
// All implementations of a family give the same bits. Tests run once for each, see package
// internal/test/asmtest.
package cpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// The instruction sets, from the least to the best of an architecture. An instruction set includes
// the sets before, except that a CPU may have AVX512 without AVXVNNI.
const (
	Generic = "generic" // portable Go, for every machine
	NEON    = "neon"
	DotProd = "dotprod"
	I8MM    = "i8mm"
	AVX2    = "avx2"       // with FMA and F16C
	AVXVNNI = "avxvnni"    // with AVX2: VPDPBUSD of 256 bits, encoded with VEX
	AVX512  = "avx512vnni" // with F, BW, DQ, VL and VNNI
)

// Names are all instruction sets, on any machine.
var Names = []string{Generic, NEON, DotProd, I8MM, AVX2, AVXVNNI, AVX512}

// Supported lists the instruction sets that this CPU and this build support, from the least to the
// best; only Generic with the build tag purego. The caller owns the slice.
func Supported() []string { return slices.Clone(supported) }

// supported is computed once: a CPU does not change.
var supported = append([]string{Generic}, features()...)

// Check reports an unknown name, or an instruction set that this CPU or this build lacks.
func Check(name string) error {
	switch {
	case !slices.Contains(Names, name):
		return fmt.Errorf("unknown instruction set %q: this CPU has %s", name, strings.Join(supported, ", "))
	case !slices.Contains(supported, name):
		return fmt.Errorf("this CPU or build lacks %s: it has %s", name, strings.Join(supported, ", "))
	}
	return nil
}

// UpTo lists the instruction sets that code restricted to name may use: the supported sets up to
// name, from the least to the best. An empty name means the program's restriction: the environment
// variable GQ_CPU at the program's start, or none. UpTo fails as Check does; an error of GQ_CPU
// mentions the variable.
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

// restriction is the best instruction set that the program may use; "" means the best of the CPU.
// Only Restrict changes the variable.
var restriction string

func init() { Restrict(os.Getenv("GQ_CPU")) }

// allowed lists the instruction sets that the program may use: only Generic if GQ_CPU is wrong.
func allowed() []string {
	list, err := UpTo("")
	if err != nil {
		return []string{Generic}
	}
	return list
}

// Restrict replaces the program's restriction and chooses again in every family. After the
// program's start only tests call Restrict, while nothing else runs; see asmtest.Restrict.
func Restrict(name string) (was string) {
	was, restriction = restriction, name
	list := allowed()
	for _, f := range families {
		f.choose(list)
	}
	return was
}

type Implementation[T any] struct {
	Feature string // the instruction set
	Code    T
}

// A Family holds the implementations of a function or set of functions. Init functions register
// implementations; afterwards only tests change a Family.
type Family[T any] struct {
	name   string
	list   []Implementation[T] // portable code, then in the order of Names
	chosen Implementation[T]
}

var families []interface{ choose(features []string) }

func NewFamily[T any](name string, portable T) *Family[T] {
	generic := Implementation[T]{Generic, portable}
	f := &Family[T]{name: name, list: []Implementation[T]{generic}, chosen: generic}
	families = append(families, f)
	return f
}

// Register adds the code for an instruction set, whether or not this CPU supports the set. An
// instruction set without code of its own uses the code of the best set below.
func (f *Family[T]) Register(feature string, code T) {
	at := slices.Index(Names, feature)
	if at < 0 || slices.ContainsFunc(f.list, func(i Implementation[T]) bool { return i.Feature == feature }) {
		panic(fmt.Sprintf("cpu: %s: an unknown instruction set, or a second implementation for it: %q", f.name, feature))
	}
	f.list = append(f.list, Implementation[T]{feature, code})
	slices.SortFunc(f.list, func(a, b Implementation[T]) int {
		return slices.Index(Names, a.Feature) - slices.Index(Names, b.Feature)
	})
	f.choose(allowed())
}

// Chosen is the code that the program uses: for the best instruction set that the program may use.
func (f *Family[T]) Chosen() T { return f.chosen.Code }

func (f *Family[T]) Name() string { return f.name }

func (f *Family[T]) For(features []string) Implementation[T] {
	best := f.list[0]
	for _, i := range f.list {
		if slices.Contains(features, i.Feature) {
			best = i
		}
	}
	return best
}

// All lists the registered code, the portable code first, including code that this CPU cannot run.
func (f *Family[T]) All() []Implementation[T] { return slices.Clone(f.list) }

func (f *Family[T]) choose(features []string) { f.chosen = f.For(features) }

// Parallel calls the function that newWorker returns for each i in 0 to n-1, in order, from up to
// threads goroutines. Each goroutine has a function of its own. An error ends the work. Of several
// errors Parallel returns the error of the least i, but no error that the end of the work caused.
func Parallel(ctx context.Context, threads, n int, newWorker func() func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	failed := n
	for range max(1, min(threads, n)) {
		wg.Go(func() {
			work := newWorker()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := work(i); err != nil {
					mu.Lock()
					if i < failed && (ctx.Err() == nil || !errors.Is(err, context.Canceled)) {
						failed, first = i, err
					}
					mu.Unlock()
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return cmp.Or(first, context.Cause(ctx))
}

// Threads is the meaning of an option "threads": n, or GOMAXPROCS if n is below 1.
func Threads(n int) int {
	if n < 1 {
		return runtime.GOMAXPROCS(0)
	}
	return n
}
