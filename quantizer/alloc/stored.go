package alloc

import (
	"crypto/sha256"
	"fmt"

	"github.com/lowbit-go/gq/quantizer/rounding"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// stored holds the results of probes, which a working directory stores.
type stored struct {
	work *workdir.Dir // nil: nothing is stored
	key  string
	kl   map[string]float64 // by probeName
}

// storedName is the name of the entry.
const storedName = "probes"

// probeName names a probe within a job.
func probeName(d *Decision, bits int) string { return fmt.Sprintf("%s %d", d.Name, bits) }

// openStored reads the results of an earlier job with the same probes.
func (j *Job) openStored(list []*Decision) (*stored, error) {
	k := &stored{work: j.Work}
	var err error
	if k.key, err = j.key(list); err != nil {
		return nil, err
	}
	if k.work != nil && k.work.GetJSON(storedName, k.key, &k.kl) && len(k.kl) > 0 && j.Resumed != nil {
		j.Resumed(len(k.kl), len(list)*len(j.Widths))
	}
	if k.kl == nil {
		k.kl = map[string]float64{}
	}
	return k, nil
}

// put stores a result.
func (k *stored) put(name string, kl float64) error {
	if k.work == nil {
		return nil
	}
	k.kl[name] = kl
	return k.work.PutJSON(storedName, k.key, k.kl)
}

// key hashes everything that probes depend on.
func (j *Job) key(list []*Decision) (string, error) {
	type probe struct {
		Name    string
		Tensors []string
		Heads   []string
		Schemes []rounding.Scheme
	}
	var probes []probe
	for _, d := range list {
		p := probe{Name: d.Name, Tensors: d.Tensors, Heads: d.heads}
		for _, bits := range j.Widths {
			p.Schemes = append(p.Schemes, d.probeScheme(bits))
		}
		probes = append(probes, p)
	}
	return workdir.Key("probes", 2, j.Checkpoint.Stamps(), sha256.Sum256(j.Config), j.Reference.Sequences(), probes)
}
