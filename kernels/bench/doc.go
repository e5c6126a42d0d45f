// Package bench measures operators on this machine: how fast kernels read packed weights out of memory and how many
// multiply-accumulates they do, beside the rate at which the memory can be read at all and beside float operators.
//
//	report, err := bench.Run(ctx, bench.Options{Headers: headers, Each: func(f *bench.Figure) { ... }})
//
// The weights of a model of some size are in no cache when their turn comes. So that they are not here either, a matrix
// lies in memory as several copies, together more than 16 times as large as the last-level cache, and every call takes
// the next one. After each call another copy, half of the memory away, is but read, by as many goroutines: the share of
// that rate is taken in each round, so that a neighbour on the machine slows both.
//
// A figure is a median over rounds. Calls are whole ones, of Operator.Forward: quantizing the activations, waking the
// goroutines and all else is in the time.
package bench
