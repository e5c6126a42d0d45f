package fold

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/workdir"
)

// Names in the tree of a stored checkpoint.
const (
	treeName       = "fold"
	checkpointName = "checkpoint"
	recordName     = "record.json"
)

// Stored returns the folded checkpoint that a working directory stores for a key. If there is none,
// make creates the directory dst with the folded checkpoint, and Stored stores it. key hashes
// everything that the result depends on. found reports whether the checkpoint was stored already.
func Stored(ctx context.Context, work *workdir.Dir, key string, make func(dst string) (*Record, error)) (checkpoint string, r *Record, found bool, err error) {
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
