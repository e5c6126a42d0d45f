package tune

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"math"

	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/text"
)

// state is the progress of an unfinished job. Its entry also holds the parameters.
type state struct {
	Step     int     `json:"step"`     // steps done
	Measured bool    `json:"measured"` // on held-out text, after these steps
	Before   float64 `json:"before"`
	After    float64 `json:"after"`
	BestStep int     `json:"best_step"`
}

// keyVersion changes whenever the results change.
const keyVersion = 2

// stateName is the name of the entry: the length of the state as JSON, the state, then the values,
// moments and best values of all parameters.
const stateName = "tuning"

// setKey hashes everything that the result depends on, the codes before training included.
func (j *job) setKey() (err error) {
	var list []plan.Matrix
	h := sha256.New()
	for _, m := range j.matrices {
		list = append(list, m.Matrix)
		m.hash(h)
	}
	train, held := text.HashIDs(j.text.train), text.HashIDs(j.text.Sequences)
	j.key, err = workdir.Key("tuning", keyVersion, j.Kind, j.Steps, j.codesRate, train, held, j.plan.SourceStamps(), plan.Keys(list), h.Sum(nil))
	return err
}

func (t *matrix) hash(h hash.Hash) {
	b := make([]byte, 0, 1<<12)
	add := func(more ...byte) {
		if b = append(b, more...); len(b) >= 1<<12-8 {
			_, _ = h.Write(b)
			b = b[:0]
		}
	}
	for _, list := range [][]int8{t.codes, t.zeros, t.subs} {
		for _, q := range list {
			add(byte(q))
		}
	}
	for _, q := range t.leasts {
		add(q)
	}
	for _, f := range []*factors{t.scales, t.mins} {
		if f == nil {
			continue
		}
		for _, v := range f.base {
			add(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))...)
		}
	}
	_, _ = h.Write(b)
}

// savedBytes is the size of a trained number in an entry, see parts.
const savedBytes = 16

// parts are the numbers of a parameter vector that an entry holds.
func (t *trained) parts() [savedBytes / 4][]float32 {
	return [savedBytes / 4][]float32{t.x, t.m, t.v, t.best}
}

func (j *job) save() error {
	head, err := json.Marshal(j.state)
	if err != nil {
		return err
	}
	size := int64(8 + len(head))
	for _, t := range j.all {
		size += savedBytes * int64(len(t.x))
	}
	return j.Work.Put(stateName, j.key, size, func(w io.Writer) error {
		if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)); err != nil {
			return err
		}
		b := make([]byte, 0, 1<<16)
		for _, t := range j.all {
			for _, list := range t.parts() {
				for len(list) > 0 {
					n := min(len(list), 1<<14)
					b = b[:0]
					for _, v := range list[:n] {
						b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
					}
					if _, err := w.Write(b); err != nil {
						return err
					}
					list = list[n:]
				}
			}
		}
		return nil
	})
}

func (j *job) resume() error {
	e := j.Work.Get(stateName, j.key)
	if e == nil {
		if j.found && j.Resumed != nil {
			j.Resumed(j.earlier, j.earlier+j.Steps)
		}
		return nil
	}
	defer e.Close()
	if err := j.load(e, e.Size()); err != nil { // although the entry is of this job and whole
		return fmt.Errorf("%s: %s: %w", j.Work.Path(), stateName, err)
	}
	if j.Resumed != nil {
		j.Resumed(j.earlier+j.state.Step, j.earlier+j.Steps)
	}
	j.Progress(int64(j.state.Step))
	return j.refresh()
}

func (j *job) load(r io.Reader, size int64) error {
	b := make([]byte, 1<<16)
	if _, err := io.ReadFull(r, b[:8]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(min(size, int64(len(b)))) {
		return fmt.Errorf("a state of %d bytes", n)
	}
	if _, err := io.ReadFull(r, b[:n]); err != nil {
		return err
	}
	if err := json.Unmarshal(b[:n], &j.state); err != nil {
		return err
	}
	for _, t := range j.all {
		for _, list := range t.parts() {
			for len(list) > 0 {
				n := min(len(list), len(b)/4)
				if _, err := io.ReadFull(r, b[:4*n]); err != nil {
					return err
				}
				for i := range n {
					list[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
				}
				list = list[n:]
			}
		}
	}
	return nil
}

// blockPrefix begins entries of trained layers: codes, scales and minima of each matrix.
const blockPrefix = "tuned-layer-"

// openStore makes the key of the entries and removes the entries of other jobs.
func (b *blocks) openStore() (err error) {
	if err := b.setKey(); err != nil { // of the codes before training
		return err
	}
	if b.stored, err = workdir.Key("tuned layers", b.key, BlockSteps, blockPasses); err != nil {
		return err
	}
	return b.Work.Prune(blockPrefix, b.stored)
}

func (t *matrix) lists() [][]float32 {
	if t.mins == nil {
		return [][]float32{t.scales.base}
	}
	return [][]float32{t.scales.base, t.mins.base}
}

func entryName(layer int) string { return fmt.Sprint(blockPrefix, layer) }

func (b *blocks) saveLayer(layer int) error {
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

// resumeLayer takes the numbers of a finished layer from the working directory, if there are any.
func (b *blocks) resumeLayer(layer int) (bool, error) {
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
