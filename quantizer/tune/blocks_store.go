package tune

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/lowbit-go/gq/quantizer/workdir"
)

// blockPrefix is the prefix of the entries of trained layers: codes, scales and minima of each
// matrix.
const blockPrefix = "tuned-layer-"

// openStore makes the key of the entries and removes the entries of other jobs.
func (b *blocks) openStore() (err error) {
	if err := b.setKey(); err != nil { // of the codes before training
		return err
	}
	if b.stored, err = workdir.Key("tuned layers", b.key, BlockSteps, blockPasses); err != nil || b.Work == nil {
		return err
	}
	return b.Work.Prune(blockPrefix, b.stored)
}

// lists are the stored numbers of a matrix that are not codes.
func (t *matrix) lists() [][]float32 {
	if t.mins == nil {
		return [][]float32{t.scales.base}
	}
	return [][]float32{t.scales.base, t.mins.base}
}

func entryName(layer int) string { return fmt.Sprint(blockPrefix, layer) }

// saveLayer stores a finished layer.
func (b *blocks) saveLayer(layer int) error {
	if b.Work == nil {
		return nil
	}
	size := int64(0)
	for _, m := range b.list {
		size += int64(len(m.codes))
		for _, l := range m.lists() {
			size += 4 * int64(len(l))
		}
	}
	return b.Work.Put(entryName(layer), b.stored, size, func(w io.Writer) error {
		to := bufio.NewWriter(w)
		for _, m := range b.list {
			if err := binary.Write(to, binary.LittleEndian, m.codes); err != nil {
				return err
			}
			for _, l := range m.lists() {
				if err := binary.Write(to, binary.LittleEndian, l); err != nil {
					return err
				}
			}
		}
		return to.Flush()
	})
}

// resumeLayer takes the numbers of a finished layer from the working directory. It reports whether
// there are any.
func (b *blocks) resumeLayer(layer int) (bool, error) {
	if b.Work == nil {
		return false, nil
	}
	e := b.Work.Get(entryName(layer), b.stored)
	if e == nil {
		return false, nil
	}
	defer e.Close()
	from := bufio.NewReader(e)
	for _, m := range b.list {
		if err := binary.Read(from, binary.LittleEndian, m.codes); err != nil {
			return false, b.damaged(layer, err)
		}
		for _, l := range m.lists() {
			if err := binary.Read(from, binary.LittleEndian, l); err != nil {
				return false, b.damaged(layer, err)
			}
		}
		m.scales.reset(m.scales.base)
		if m.mins != nil {
			m.mins.reset(m.mins.base)
		}
	}
	return true, nil
}

func (b *blocks) damaged(layer int, err error) error {
	return fmt.Errorf("%s: %s: %w", b.Work.Path(), entryName(layer), err)
}
