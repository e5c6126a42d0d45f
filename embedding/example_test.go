package embedding_test

import (
	"fmt"

	"github.com/lowbit-go/gq/embedding"
	"github.com/lowbit-go/gq/packing"
)

func Example() {
	h := packing.Header{Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Rows: 2, Cols: 3}.Canonical()
	l, err := packing.NewLowbit(h)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := l.NewPanel()
	p.Rows = 2
	copy(p.Codes, []int8{-8, 0, 7})
	copy(p.Codes[l.PackedCols():], []int8{1, 2, 3})
	p.Scales[0], p.Scales[1] = 0.5, -2
	data := make([]byte, l.PanelBytes())
	l.PackPanel(data, p)

	table, err := embedding.New(h, embedding.Parts{Data: data})
	if err != nil {
		fmt.Println(err)
		return
	}
	rows := make([]float32, 3*table.Cols())
	fmt.Println(embedding.LookupBatch(table, rows, []int32{1, 0, 1}), rows)
	fmt.Println(embedding.LookupBatch(table, rows, []int32{1, 0, 2}))
	// Output:
	// <nil> [-2 -4 -6 -4 0 3.5 -2 -4 -6]
	// id 2 at position 2: the embedding has rows 0 to 1
}
