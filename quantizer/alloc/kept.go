package alloc

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/quantizer"
)

// kept are the results of probes that a file keeps, for the job of a key.
type kept struct {
	path string
	Key  string             `json:"key"`
	KL   map[string]float64 `json:"kl"` // by probeName
}

// probeName names a probe within a job.
func probeName(d *Decision, bits int) string { return fmt.Sprintf("%s %d", d.Name, bits) }

// openKept reads the file of a job's probes. What another job left in it is not used. Without a path nothing is kept.
func (j *Job) openKept(list []*Decision) (*kept, error) {
	k := &kept{path: j.WorkFile}
	key, err := j.key(list)
	if err != nil || k.path == "" {
		return k, err
	}
	raw, err := files.Read(k.path, files.MaxWork)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil || json.Unmarshal(raw, k) != nil || k.Key != key || k.KL == nil {
		k.Key, k.KL = key, map[string]float64{}
	}
	return k, nil
}

// put keeps a result.
func (k *kept) put(name string, kl float64) error {
	if k.path == "" {
		return nil
	}
	k.KL[name] = kl
	raw, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(k.path), 0o777); err != nil {
		return err
	}
	return atomicfile.WriteFile(k.path, raw)
}

// key is the hash of all that probes depend on. The checkpoint's files are known by size and time: their contents are not
// read for it.
func (j *Job) key(list []*Decision) (string, error) {
	type probe struct {
		Name    string
		Tensors []string
		Heads   []string
		Schemes []quantizer.Scheme
	}
	key := struct {
		Version int
		Files   []string
		Windows [][]int32
		Probes  []probe
	}{Version: 1, Files: j.Checkpoint.Stamps(), Windows: j.Reference.Sequences()}
	for _, d := range list {
		p := probe{Name: d.Name, Tensors: d.Tensors, Heads: d.heads}
		for _, bits := range j.Widths {
			p.Schemes = append(p.Schemes, d.probeScheme(bits))
		}
		key.Probes = append(key.Probes, p)
	}
	raw, err := json.Marshal(key)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}
