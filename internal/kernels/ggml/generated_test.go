//go:build amd64 && !purego

package ggml

import (
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

func TestGenerated(t *testing.T) {
	asmtest.GeneratedBy(t, "ggml", []string{"row.go", "unpack.go"}, []string{"avx2_amd64.s", "avx2_amd64.go", "avxvnni_amd64.s", "avxvnni_amd64.go", "avx512_amd64.s", "avx512_amd64.go"})
}
