// Package bench measures operators on this machine: how fast kernels read packed weights out of
// memory and how many multiply-accumulates they do. It compares them with the rate of only reading
// memory and with floating-point operators.
//
//	report, err := bench.Run(ctx, bench.Options{Headers: headers, Each: func(f *bench.Figure) { ... }})
//
// The weights of a model of some size are in no cache when their turn comes. The benchmark
// reproduces this: it holds several copies of a matrix, together more than 16 times as large as the
// last-level cache, and every call takes the next copy. After each call as many goroutines only
// read another copy, half of the memory away. The share is the ratio of the two rates within a
// round, so other load on the machine slows both.
//
// A figure is a median over rounds. A call is a whole Operator.Forward: its time includes
// quantizing the activations and waking the goroutines.
package bench
