// Package asmtest holds what the tests of packages with assembly share. Each runs a test once for
// each implementation of a family of package internal/cpu. Place puts operands between pages that
// may not be touched, which shows accesses beside them. Words holds the instructions that arm64
// sources write as numbers against a disassembler, NotFused looks for fused multiply-adds, and
// Generated holds the amd64 sources against their generator.
package asmtest
