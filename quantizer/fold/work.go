package fold

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// What the tree of a Kept checkpoint holds.
const (
	treeName       = "fold"
	checkpointName = "checkpoint"
	recordName     = "record.json"
)

// Kept gives the folded checkpoint that a working directory holds for a key, or has make fold one into the directory that
// it is called with, which it has to make, and keeps the checkpoint. key is a hash of all that the result depends on. found
// reports whether the checkpoint was there.
func Kept(ctx context.Context, work *workdir.Dir, key string, make func(dst string) (*Record, error)) (checkpoint string, r *Record, found bool, err error) {
	tree, found, err := work.Tree(ctx, treeName, key, func(dir string) error {
		r, err := make(filepath.Join(dir, checkpointName))
		if err != nil {
			return err
		}
		raw, err := json.Marshal(r)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, recordName), raw, 0o666)
	})
	if err != nil {
		return "", nil, false, err
	}
	raw, err := files.Read(filepath.Join(tree, recordName), files.MaxFold)
	if err != nil {
		return "", nil, false, err
	}
	if r, err = ParseRecord(raw); err != nil {
		return "", nil, false, err
	}
	return filepath.Join(tree, checkpointName), r, found, nil
}
