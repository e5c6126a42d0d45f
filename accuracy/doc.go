// Package accuracy holds reports of what quantization costs, for each tensor, for each layer as
// executed, and for the model on a text; and gates, which hold a report to limits.
//
// Functions of package gq make the reports: Measure a [Report], Sweep a [SweepReport]. [ReadReport]
// reads a report that gq accuracy --json wrote. [ReadGate] and [ParseGate] read a [Gate], and Check
// compares it with a report:
//
//	r, err := gq.Measure(ctx, dir, "model.gqf", gq.MeasureOptions{})
//	gate, err := accuracy.ReadGate("gate.yaml")
//	result, err := gate.Check(r, nil)
//
// Every figure has the same bits on any CPU and for any number of threads, so an x86 machine and
// the Arm device write the same report.
package accuracy
