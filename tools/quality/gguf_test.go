package main

import "testing"

// TestWindows reads llama-perplexity's lines of means of all windows so far.
func TestWindows(t *testing.T) {
	const out = `
chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              Δp RMS            Same top p
   1      27.6211 ±    5.0211      -0.02128 ±    0.01527       0.02000 ±    0.00270     4.012 ±  0.447 %    92.913 ±  2.286 %
   2      30.1127 ±    4.1012       0.00316 ±    0.01102       0.03000 ±    0.00210     3.902 ±  0.310 %    91.732 ±  1.731 %
   3      29.0001 ±    3.2012       0.00016 ±    0.00902       0.02500 ±    0.00150     3.702 ±  0.210 %    91.902 ±  1.401 %

Mean    KLD:   0.025000 ±   0.000934
`
	if got := windowsOf(out); got != "0.02000 0.04000 0.01500" {
		t.Errorf("windows %q", got)
	}
	f, of := figure{KL: .025, Windows: "0.02000 0.04000 0.01500"}, figure{KL: .05, Windows: "0.04000 0.08000 0.03000"}
	if got := paired(f, of); got != "0.50 ± 0.00" {
		t.Errorf("in proportion: %s", got)
	}
	of.Windows = "0.05000 0.06000 0.04000" // differences -.005, .01 and -.005, sum of squares .00015
	if got := paired(f, of); got != "0.50 ± 0.10" {
		t.Errorf("%s", got)
	}
	of.Windows = ""
	if got := paired(f, of); got != "0.50" {
		t.Errorf("without windows: %s", got)
	}
}
