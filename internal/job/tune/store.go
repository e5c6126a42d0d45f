package tune

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
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
	Cuts     int     `json:"cuts"`  // how often the rates were divided
	Since    int     `json:"since"` // the step of the last division
	From     float64 `json:"from"`  // the divergence there, of the best step
}

// keyVersion changes whenever the results change.
const keyVersion = 5

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
		if j.layers.found && j.Resumed != nil {
			j.Resumed(j.layers.steps, j.layers.steps+j.Steps)
		}
		return nil
	}
	defer e.Close()
	if err := j.load(e); err != nil { // although the entry is of this job and whole
		return fmt.Errorf("%s: %s: %w", j.Work.Path(), stateName, err)
	}
	if j.Resumed != nil {
		j.Resumed(j.layers.steps+j.state.Step, j.layers.steps+j.Steps)
	}
	j.progress(j.state.Step)
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

// blockPrefix begins entries of trained layers: the codes of each matrix.
const blockPrefix = "tuned-layer-"

// nextKey makes the key of the next layer's entry. The key depends on the codes of this layer and
// of all earlier layers before training.
func (b *blocks) nextKey() (err error) {
	h := sha256.New()
	for _, m := range b.list {
		m.hash(h)
	}
	b.key, err = workdir.Key(b.key, h.Sum(nil))
	return err
}

func (t *matrix) lists() [][]float32 {
	if t.mins == nil {
		return [][]float32{t.scales.base}
	}
	return [][]float32{t.scales.base, t.mins.base}
}

func entryName(layer int) string { return fmt.Sprint(blockPrefix, layer) }

// saveLayer moves the codes of a trained layer to the working directory.
func (b *blocks) saveLayer(layer int) error {
	if b.Work == nil {
		for _, m := range b.list {
			codes, err := rounding.LoadCodes(m.shape, m.ReadRow)
			if err != nil {
				return err
			}
			b.layers.rows[m.Name()] = codes
		}
		return nil
	}
	size := int64(0)
	for _, m := range b.list {
		size += m.shape.Bytes()
	}
	err := b.Work.Put(entryName(layer), b.key, size, func(w io.Writer) error {
		buffered := bufio.NewWriter(w) // which keeps the first error for Flush
		for _, m := range b.list {
			codes, err := rounding.LoadCodes(m.shape, m.ReadRow)
			if err != nil {
				return err
			}
			codes.Write(buffered)
		}
		return buffered.Flush()
	})
	if err != nil {
		return err
	}
	found, err := b.openLayer(layer)
	if err == nil && !found {
		err = fmt.Errorf("%s: layer %d was written and cannot be read: is the disk damaged, or does another program write there?", b.Work.Path(), layer)
	}
	return err
}

// openLayer finds the codes of a trained layer in the working directory.
func (b *blocks) openLayer(layer int) (bool, error) {
	e := b.Work.Get(entryName(layer), b.key)
	if e == nil {
		return false, nil
	}
	b.layers.entries = append(b.layers.entries, e)
	at := int64(0)
	for _, m := range b.list {
		b.layers.rows[m.Name()] = &rounding.StoredCodes{Shape: m.shape, At: at, File: e}
		at += m.shape.Bytes()
	}
	if at != e.Size() {
		return false, fmt.Errorf("%s: %s: %d bytes, want %d: remove the file", b.Work.Path(), entryName(layer), e.Size(), at)
	}
	return true, nil
}

// resumeLayer takes the codes of a layer that an interrupted job has trained.
func (b *blocks) resumeLayer(layer int) (found bool, err error) {
	if found, err = b.openLayer(layer); !found || err != nil {
		return found, err
	}
	for _, m := range b.list {
		codes, err := rounding.LoadCodes(m.shape, b.layers.rows[m.Name()].ReadRow)
		if err != nil {
			return false, err
		}
		if err := m.take(codes); err != nil {
			return false, err
		}
	}
	return true, nil
}

// take gives a matrix the codes, scales and minima of c.
func (t *matrix) take(c *rounding.Codes) error {
	n, err := newMatrix(t.Matrix, c)
	if err != nil {
		return err
	}
	t.codes, t.scales, t.mins = n.codes, n.scales, n.mins
	return nil
}
