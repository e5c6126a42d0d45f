// Package gq turns floating-point language-model checkpoints into low-bit weights that CPU runtimes use as they are, and
// measures what that cost.
//
// Each function is a job, the one that the command of its name does: options in, report out. The options' zero value is
// good unless the type says otherwise, reports have JSON tags, and a [Progress] is told how far a job has come.
package gq
