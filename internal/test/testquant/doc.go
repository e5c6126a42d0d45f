// Package testquant writes checkpoints with random codes in other libraries' formats, and returns
// their weights. Only tests import testquant.
package testquant
