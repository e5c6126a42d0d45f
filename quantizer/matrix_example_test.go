package quantizer_test

import (
	"fmt"
	"log"

	"github.com/lowbit-go/gq/quantizer"
)

// A matrix of 8 outputs and 64 inputs gets 4-bit codes in groups of 32, in the layout of KleidiAI's
// qsi4c32p kernels.
func ExampleQuantizeMatrix() {
	const rows, cols = 8, 64
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(i*i%101-50) / 64
	}
	m, err := quantizer.QuantizeMatrix(x, cols, quantizer.Recipe{
		Bits: 4, Group: new(32), Layouts: []quantizer.LayoutRequest{{Family: quantizer.FamilyKleidiAI}},
	})
	if err != nil {
		log.Fatal(err)
	}
	data, err := m.Pack() // kernels.NewLinear(m.Header, data, ...) multiplies with these bytes
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("qsi4c32p:", m.Header.IsQSI4C32P(), "tile", m.Header.Tile, "of", len(data), "bytes")
	fmt.Println("codes", m.Codes[:8], "scale", m.Scales[0])
	y := make([]float32, len(x))
	m.Dequantize(y)
	fmt.Println("weights", x[:4], "became", y[:4])
	fmt.Printf("error %.3f\n", m.Error)
	// Output:
	// qsi4c32p: true tile 8x16x2 of 352 bytes
	// codes [7 7 7 6 5 4 2 0] scale -0.109375
	// weights [-0.78125 -0.765625 -0.71875 -0.640625] became [-0.765625 -0.765625 -0.765625 -0.65625]
	// error 0.057
}
