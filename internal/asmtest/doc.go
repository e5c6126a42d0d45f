// Package asmtest holds what the tests of packages with assembly share: Words holds the instructions that arm64 sources
// write as numbers against a disassembler, Generated the amd64 sources against their generator; AtPageEnd is memory that
// shows accesses past its end.
package asmtest
