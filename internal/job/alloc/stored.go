package alloc

import (
	"crypto/sha256"
	"fmt"

	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/workdir"
)

// stored holds the errors of all decisions and the results of probes for a working directory.
type stored struct {
	Errors []*tensorErrors    // in order of decisions; nil: not yet found
	KL     map[string]float64 // by probeName

	work *workdir.Dir // nil: nothing is stored
	key  string
}

const storedName = "probes"

func probeName(group, bits int) string { return fmt.Sprintf("%d %d", group, bits) }

// openStored reads the results of an earlier job with the same probes.
func (j *Job) openStored(list []*Decision, probes int) (*stored, error) {
	key, err := j.key(list)
	if err != nil {
		return nil, err
	}
	k := &stored{}
	if j.Work.GetJSON(storedName, key, k) && j.Resumed != nil {
		j.Resumed(len(k.KL), probes)
	}
	k.work, k.key = j.Work, key
	if k.KL == nil {
		k.KL = map[string]float64{}
	}
	return k, nil
}

func (k *stored) put() error { return k.work.PutJSON(storedName, k.key, k) }

// key hashes everything that errors and probes depend on.
func (j *Job) key(list []*Decision) (string, error) {
	type probe struct {
		Name    string
		Tensors []string
		Heads   []string
		Schemes []rounding.Scheme
		Options []rounding.Scheme
	}
	var probes []probe
	for _, d := range list {
		p := probe{Name: d.Name, Tensors: d.Tensors, Heads: d.heads}
		for _, bits := range j.Widths {
			p.Schemes = append(p.Schemes, d.probeScheme(bits))
		}
		for _, o := range d.Options {
			p.Options = append(p.Options, o.scheme)
		}
		probes = append(probes, p)
	}
	return workdir.Key("probes", 4, j.Checkpoint.Stamps(), sha256.Sum256(j.Config), j.Reference.Sequences(), probes)
}
