package conversion

import (
	"sync"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
)

// AssetCache keeps the packed files beside a checkpoint, so that only the first plan of a job reads
// and compresses them. It belongs to one job: it does not notice later changes of these files. The
// zero value is empty. Plans may use it concurrently.
type AssetCache struct {
	mu     sync.Mutex // held while files are packed, so that concurrent plans do not pack them twice
	packed map[assetKey][]gqf.PackedAsset
}

// assetKey is everything that decides the bytes of shared assets. It holds the open checkpoint, not
// its directory, which may be made anew for another fold.
type assetKey struct {
	ck     *safetensors.Checkpoint
	origin *Origin
	config string
}

// sharedAssets are the assets that do not depend on recipe and rules: config.json, the files of
// AssetFiles and the record of a fold. The caller must not change the list.
func (p checkpointInput) sharedAssets() ([]gqf.PackedAsset, error) {
	c := p.opts.Assets
	if c == nil {
		return p.packShared()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := assetKey{p.ck, p.opts.Origin, string(p.config)}
	if list, ok := c.packed[key]; ok {
		return list, nil
	}
	list, err := p.packShared()
	if err != nil {
		return nil, err
	}
	if c.packed == nil {
		c.packed = map[assetKey][]gqf.PackedAsset{}
	}
	c.packed[key] = list
	return list, nil
}

// packShared reads and compresses the shared assets.
func (p checkpointInput) packShared() ([]gqf.PackedAsset, error) {
	list, err := p.modelFiles()
	if err != nil {
		return nil, err
	}
	if o := p.opts.Origin; o != nil {
		list = append(list, gqf.AssetSpec{Kind: gqf.AssetFold, Name: gqf.FoldName, Data: o.Record})
	}
	return packAssets(list)
}
