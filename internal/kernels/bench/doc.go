// Package bench measures operators on this machine: how fast kernels read packed weights out of
// memory and how many multiply-accumulates kernels do, compared with the rate of only reading
// memory and with floating-point operators.
//
//	o := bench.Options{Headers: headers, Each: func(f *bench.Figure) { ... }}
//	report, err := bench.Run(ctx, o)
//
// When a weight's turn comes in a model of some size, no cache holds the weight. The benchmark
// reproduces this: there are several copies of a matrix, together more than 16 times as large as
// the last-level cache, and every call takes the next copy. After each call as many goroutines only
// read another copy, half of the memory away. The share is the ratio of the two rates within a
// round, so other load on the machine slows both.
//
// A figure is a median over rounds. A call is a whole Operator.Forward: its time includes
// quantizing the activations and waking the goroutines.
package bench
