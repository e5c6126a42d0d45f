// Package asmtest is shared by the tests of packages with assembly. Each runs a test once for each
// implementation of a family of package internal/cpu. Place puts operands between inaccessible
// pages, so that accesses outside fault. Words checks the instructions that arm64 sources write as
// numbers with a disassembler, NotFused looks for fused multiply-adds, and Generated compares the
// amd64 sources with the output of their generator.
package asmtest
