//go:build amd64 && !purego

package tile

import (
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

func TestGenerated(t *testing.T) {
	asmtest.GeneratedBy(t, "tile", []string{"tile.go"}, []string{"avx2_amd64.s", "avx2_amd64.go", "avxvnni_amd64.s", "avxvnni_amd64.go", "avx512_amd64.s", "avx512_amd64.go"})
}
