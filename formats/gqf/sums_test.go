package gqf

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// blocksFile has a payload in the first block, one in all three blocks, and one in the last.
func blocksFile(t *testing.T) []byte {
	b := NewBuilder()
	for i, rows := range []int64{1000, 2_500_000, 333} {
		name := string(rune('a' + i))
		ti := b.AddTensor(TensorSpec{Name: name, Shape: []int64{rows}, Dtype: packing.U8})
		b.AddName(NameSpec{Name: name, Tensor: ti, SourceFile: -1})
		b.AddPayload(PayloadSpec{Tensor: ti, Header: packing.PlainHeader(packing.U8, 1, uint64(rows))})
	}
	return build(t, b)
}

// TestCheckSums flips a bit in each block: Data fails for exactly the payloads that have bytes
// there.
func TestCheckSums(t *testing.T) {
	good := blocksFile(t)
	f := open(t, good)
	tests := []struct {
		block int
		fails string // payloads
	}{{-1, ""}, {0, "ab"}, {1, "b"}, {2, "bc"}}
	for _, test := range tests {
		file := append([]byte(nil), good...)
		start := int(f.h.dataOff) + test.block<<blockLog2
		if test.block >= 0 {
			file[start+len("packed header of the first payload, and more than 64 bytes behind")*2] ^= 4
		}
		trusting, checking := open(t, file), open(t, file)
		checking.CheckSums()
		checking.CheckSums()
		for range 2 { // the error is the same the second time
			for i := range f.NumPayloads() {
				p := f.Payload(i)
				name := f.tensorName(p.Tensor)
				if _, err := trusting.Data(p); err != nil {
					t.Errorf("block %d damaged, payload %s, not checked: %v", test.block, name, err)
				}
				_, err := checking.Data(p)
				if !strings.Contains(test.fails, name) {
					if err != nil {
						t.Errorf("block %d damaged, payload %s: %v", test.block, name, err)
					}
					continue
				}
				want := fmt.Sprintf("block %d is ", test.block)
				if fe, ok := errors.AsType[*FormatError](err); !ok || fe.Offset != int64(start) || fe.Section != "data" ||
					!strings.Contains(fe.Msg, want) || !strings.Contains(fe.Msg, `tensor "`+name+`"`) {
					t.Errorf("block %d damaged, payload %s: %v", test.block, name, err)
				}
			}
		}
	}
}

// TestCheckSumsOnce changes a block after its check: it is not read again.
func TestCheckSumsOnce(t *testing.T) {
	file := blocksFile(t)
	f := open(t, file)
	f.CheckSums()
	p := f.Payload(0)
	data, err := f.Data(p)
	if err != nil {
		t.Fatal(err)
	}
	data[0] ^= 1
	if _, err := f.Data(p); err != nil {
		t.Error(err)
	}
}

// TestCheckSumsTogether asks for one payload from many goroutines.
func TestCheckSumsTogether(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		file := blocksFile(t)
		if damaged {
			file[len(file)-1<<20] ^= 1
		}
		f := open(t, file)
		f.CheckSums()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, err := f.Data(f.Payload(1)); (err != nil) != damaged {
					t.Errorf("damaged %v: %v", damaged, err)
				}
			})
		}
		wg.Wait()
	}
}
