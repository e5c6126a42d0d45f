package fromcheckpoint

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/write"
)

// sources are the files that a person named.
func (in *Input) sources() (list []provenance.Source) {
	switch {
	case in.opts.Sources != nil:
		return slices.Clone(in.opts.Sources)
	case in.opts.Origin != nil:
		return provenance.SourceFiles(in.opts.Origin.Checkpoint)
	}
	return provenance.SourceFiles(in.Ck)
}

// provenance has zeros in the place of hashes that are not known yet, so that its length is known.
func (in *Input) provenance(c *plan.Codes, hashes []string) ([]byte, error) {
	prov := provenance.Provenance{Sources: []provenance.Source{}, Calibration: c.Calibration, Adapters: provenance.AdaptersOf(in.Ck)}
	if c.Tuned != nil {
		prov.Tuning = c.Tuned.Tuning
	}
	if o := in.opts.Origin; o != nil {
		prov.Fold, prov.Adapters = &o.Fold, provenance.AdaptersOf(o.Checkpoint)
	}
	sources := in.sources()
	prov.Repository = provenance.RepositoryOf(sources)
	for i, s := range sources {
		switch {
		case hashes != nil:
			s.SHA256 = hashes[i]
		case in.opts.Recipe.HashFiles:
			s.SHA256 = strings.Repeat("0", 2*sha256.Size)
		}
		prov.Sources = append(prov.Sources, s)
	}
	return json.MarshalIndent(prov, "", "  ")
}

// Provenance returns the recipe and the provenance with the checksums of the tensors.
func (in *Input) Provenance(c *plan.Codes, hashes []string, found []write.ItemResult) (recipe, origin []byte, err error) {
	if recipe, err = in.opts.Recipe.JSON(in.opts.Rules); err != nil {
		return nil, nil, err
	}
	if origin, err = in.provenance(c, hashes); err != nil {
		return nil, nil, err
	}
	sums := provenance.SourceSums{}
	write.EachSum(in.plan.Items, found, func(_ int, name string, crc uint32) { sums.Set(name, crc) })
	var fold []byte
	if o := in.opts.Origin; o != nil {
		fold = o.Record
	}
	origin, err = sums.AddTo(origin, fold)
	return recipe, origin, err
}

func (in *Input) AddNames(b *gqf.Builder, c *plan.Codes, hashes []string) error {
	names := 0
	for _, it := range in.plan.Items {
		names += 1 + len(it.Common().Aliases)
	}
	b.Grow(0, 0, names)
	for _, it := range in.plan.Items {
		e := it.Common()
		spec := in.nameSpec(e.Index, *e.Src)
		if name := e.Name(); name != e.Src.Name {
			spec = gqf.NameSpec{Name: name, Tensor: e.Index, SourceFile: -1}
		}
		b.AddName(spec)
		for _, n := range e.Aliases {
			spec := gqf.NameSpec{Name: n.Src.Name, Tensor: e.Index, SourceFile: -1}
			if !n.Absent {
				spec = in.nameSpec(e.Index, n.Src)
				spec.Absorbed = n.Absorbed
			}
			b.AddName(spec)
		}
	}
	js, err := in.provenance(c, hashes)
	if err != nil {
		return err
	}
	b.AddAsset(gqf.AssetSpec{Kind: gqf.AssetProvenance, Name: gqf.ProvenanceName, Data: js})
	return nil
}

// nameSpec is the record of a name that the checkpoint has.
func (in *Input) nameSpec(tensor int, src safetensors.Tensor) gqf.NameSpec {
	file := src.File
	if in.opts.Sources != nil {
		file = -1
	} else if o := in.opts.Origin; o != nil {
		file = -1
		if t, ok := o.Checkpoint.Lookup(src.Name); ok {
			file = t.File
		}
	}
	return gqf.NameSpec{Name: src.Name, Tensor: tensor, InCheckpoint: true, SourceFile: file, SourceBytes: src.Size}
}

// sharedAssets are the assets that do not depend on recipe and rules: config.json, the files of
// AssetFiles and the record of a fold. The caller must not change the list.
func (in *Input) sharedAssets() ([]gqf.PackedAsset, error) {
	c := in.opts.Cache
	if c == nil {
		return in.packShared()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := assetKey{in.Ck, in.opts.Origin, string(in.config)}
	if list, ok := c.packed[key]; ok {
		return list, nil
	}
	list, err := in.packShared()
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
func (in *Input) packShared() ([]gqf.PackedAsset, error) {
	list, err := assets.ReadAll(in.Ck.Dir(), in.config)
	if err != nil {
		return nil, err
	}
	if o := in.opts.Origin; o != nil {
		list = append(list, gqf.AssetSpec{Kind: gqf.AssetFold, Name: gqf.FoldName, Data: o.Record})
	}
	return assets.PackAssets(list)
}

// FileAssets are the assets of a .gqf file that are known when it is planned: shared assets and the
// recipe.
func (in *Input) FileAssets() ([]gqf.PackedAsset, error) {
	shared, err := in.sharedAssets()
	if err != nil {
		return nil, err
	}
	js, err := in.opts.Recipe.JSON(in.opts.Rules)
	if err != nil {
		return nil, err
	}
	recipe, err := gqf.PackAsset(gqf.AssetSpec{Kind: gqf.AssetRecipe, Name: gqf.RecipeName, Data: js})
	return append(slices.Clip(shared), recipe), err
}
