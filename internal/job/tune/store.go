package tune

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"slices"

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
const keyVersion = 3

// stateName is the name of the entry: the state as index, then the values, moments and best values
// of all parameters.
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
	j.key, err = workdir.Key("tuning", keyVersion, j.Kind, j.Steps, j.codesRate, j.softRate, train, held, j.plan.SourceStamps(), plan.Keys(list), h.Sum(nil))
	return err
}

func (t *matrix) hash(h hash.Hash) { // which returns no errors
	for _, list := range [][]int8{t.codes, t.zeros, t.subs} {
		_ = put(h, list)
	}
	_ = put(h, t.leasts)
	for _, list := range t.lists() {
		_ = put(h, list)
	}
}

// piece is the number of values that put and get convert at a time.
const piece = 1 << 14

func put[T any](w io.Writer, list []T) error {
	for part := range slices.Chunk(list, piece) {
		if err := binary.Write(w, binary.LittleEndian, part); err != nil {
			return err
		}
	}
	return nil
}

func get[T any](r io.Reader, list []T) error {
	for part := range slices.Chunk(list, piece) {
		if err := binary.Read(r, binary.LittleEndian, part); err != nil {
			return err
		}
	}
	return nil
}

// savedBytes is the size of a trained number in an entry, see parts.
const savedBytes = 16

// parts are the numbers of a parameter vector that an entry holds.
func (t *trained) parts() [savedBytes / 4][]float32 {
	return [savedBytes / 4][]float32{t.x, t.m, t.v, t.best}
}

func (j *job) save() error {
	size := int64(0)
	for _, t := range j.all {
		size += savedBytes * int64(len(t.x))
	}
	return j.Work.PutIndexed(stateName, j.key, j.state, size, func(w io.Writer) error {
		for _, t := range j.all {
			for _, list := range t.parts() {
				if err := put(w, list); err != nil {
					return err
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
	if err := j.load(e); err != nil { // although the entry is of this job and whole
		return fmt.Errorf("%s: %s: %w", j.Work.Path(), stateName, err)
	}
	if j.Resumed != nil {
		j.Resumed(j.earlier+j.state.Step, j.earlier+j.Steps)
	}
	j.Progress(int64(j.state.Step))
	return j.refresh()
}

func (j *job) load(e *workdir.Entry) error {
	if _, err := e.Index(&j.state); err != nil {
		return err
	}
	for _, t := range j.all {
		for _, list := range t.parts() {
			if err := get(e, list); err != nil {
				return err
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
		for _, m := range b.list {
			if err := put(w, m.codes); err != nil {
				return err
			}
			for _, l := range m.lists() {
				if err := put(w, l); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// resumeLayer takes the numbers of a finished layer from the working directory, if there are any.
func (b *blocks) resumeLayer(layer int) (bool, error) {
	e := b.Work.Get(entryName(layer), b.stored)
	if e == nil {
		return false, nil
	}
	defer e.Close()
	for _, m := range b.list {
		if err := get(e, m.codes); err != nil {
			return false, b.damaged(layer, err)
		}
		for _, l := range m.lists() {
			if err := get(e, l); err != nil {
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
