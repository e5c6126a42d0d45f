//go:build !linux

package mmap

func adviseHugePages([]byte) {}

func release([]byte) {}
