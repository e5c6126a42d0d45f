package fold

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/files"
)

// Work is a directory that holds a folded checkpoint from the time it is made until the file that is made of it is
// complete. A job that was ended finds there what it made before.
//
// It holds the checkpoint's directory and job.json, which is written when that is complete: it has the record and the hash
// of all that it depends on.
type Work struct{ Dir string }

const (
	jobName        = "job.json"
	checkpointName = "checkpoint"
)

type kept struct {
	Key    string  `json:"key"`
	Record *Record `json:"record"`
}

// Checkpoint is the directory of the folded checkpoint.
func (w Work) Checkpoint() string { return filepath.Join(w.Dir, checkpointName) }

// Get gives the record that is there for a key, or has make fold a checkpoint into the directory that it is called with,
// and keeps it. What another job left is removed.
func (w Work) Get(key string, make func(dst string) (*Record, error)) (*Record, error) {
	path := filepath.Join(w.Dir, jobName)
	raw, err := files.Read(path, files.MaxWork)
	var k kept
	if err == nil && json.Unmarshal(raw, &k) == nil && k.Key == key && k.Record != nil && k.Record.Version == recordVersion {
		if st, err := os.Stat(w.Checkpoint()); err == nil && st.IsDir() {
			return k.Record, nil
		}
	}
	if err := w.clear(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(w.Dir, 0o777); err != nil {
		return nil, err
	}
	r, err := make(w.Checkpoint())
	if err != nil {
		return nil, err
	}
	if raw, err = json.Marshal(kept{key, r}); err != nil {
		return nil, err
	}
	return r, atomicfile.WriteFile(path, raw)
}

// clear removes what is in the directory, job.json first, if all of it is ours.
func (w Work) clear() error {
	entries, err := os.ReadDir(w.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		match := false
		for _, pattern := range []string{jobName, "." + jobName + "*", checkpointName, checkpointName + ".part*"} {
			ok, _ := filepath.Match(pattern, e.Name())
			match = match || ok
		}
		if !match {
			return fmt.Errorf("%s: it is not a work directory of gq: %s is in it; move it away", w.Dir, e.Name())
		}
	}
	if err := os.RemoveAll(filepath.Join(w.Dir, jobName)); err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(w.Dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes the directory.
func (w Work) Remove() error {
	if err := w.clear(); err != nil {
		return err
	}
	if err := os.Remove(w.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
