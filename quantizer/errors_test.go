package quantizer

import (
	"errors"
	"math"
	"testing"

	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
)

func TestTensorError(t *testing.T) {
	tests := []struct {
		err  TensorError
		want string
	}{
		{
			TensorError{"a.safetensors", "lm_head.weight", -1, 12, &rounding.NonFiniteError{Column: 7, Value: float32(math.Inf(-1))}},
			`a.safetensors: tensor "lm_head.weight", row 12: the weight in column 7 is -Inf: only finite weights can be quantized`,
		},
		{
			TensorError{"a.safetensors", "experts", 3, 0, &rounding.ScaleError{Group: 1, Scale: 1e-5, Dtype: packing.ScaleF16}},
			`a.safetensors: tensor "experts", expert 3, row 0: group 1 needs the scale 1e-05, outside the range of f16 scales here (5.9604645e-08 to 65504): leave the tensor unquantized with a rule NAME=skip`,
		},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
		if !errors.Is(&tt.err, tt.err.Err) {
			t.Error("the cause is not wrapped")
		}
	}
}
