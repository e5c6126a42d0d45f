//go:build (amd64 || arm64) && !purego

package gemv

import "github.com/lowbit-go/gq/packing"

var (
	tile4x4x1  = packing.Tile{NR: 4, KR: 4, SR: 1}
	tile4x8x1  = packing.Tile{NR: 4, KR: 8, SR: 1}
	tile4x8x2  = packing.Tile{NR: 4, KR: 8, SR: 2}
	tile4x16x2 = packing.Tile{NR: 4, KR: 16, SR: 2}
	tile8x8x2  = packing.Tile{NR: 8, KR: 8, SR: 2}
	tile8x16x2 = packing.DefaultTile
)
