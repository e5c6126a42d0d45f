package conversion

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/hubpath"
)

// Provenance is the content of a file's gq/provenance.json: its origin. It holds
// no time, path, host or thread count: the same job gives the same bytes.
type Provenance struct {
	Sources []Source `json:"sources"`
	// Repository says where the sources are published, if they are of the Hugging Face Hub: they were
	// named so, or lie in its cache.
	Repository *Repository `json:"repository,omitempty"`
	// Calibration says how codes were chosen with calibration data, if they were.
	Calibration *Calibration `json:"calibration,omitempty"`
	// Tuning says how scales, gains of norms and codes were tuned afterwards, if they were.
	Tuning *Tuning `json:"tuning,omitempty"`
	// Fold says how the checkpoint was folded before, if it was.
	Fold *Fold `json:"fold,omitempty"`
	// Quantized says which library quantized the checkpoint that the codes were taken from, if they
	// were.
	Quantized *QuantizedBy `json:"quantized,omitempty"`
}

// Repository is a commit of a repository.
type Repository struct {
	Name   string `json:"name"`   // "hf://org/model"
	Commit string `json:"commit"` // 40 hexadecimal digits
}

// repositoryOfFiles is the repository whose files the sources are; nil if that is not known.
func repositoryOfFiles(sources []Source) *Repository {
	if len(sources) == 0 {
		return nil
	}
	repo, commit, ok := hubpath.Of(sources[0].path)
	if !ok {
		return nil
	}
	return &Repository{"hf://" + repo, commit}
}

// QuantizedBy names the library and the format of a quantized checkpoint.
type QuantizedBy struct {
	Library string `json:"library"` // "compressed-tensors"
	Format  string `json:"format"`  // "pack-quantized"
}

// Fold is a summary of the asset gq/fold.json.
type Fold struct {
	// Steps in a few words: "rotated (seed 1)".
	Steps []string `json:"steps"`
	// Difference is the largest difference between logits of the checkpoint and of the folded one, as a part of the largest
	// logit, on so many tokens; Source says where these came from.
	Difference float64 `json:"logits_difference"`
	Tokens     int     `json:"tokens"`
	Source     string  `json:"source"`
	// Rerouted counts sequences that are left out of that, as a router chose another of two experts that are nearly equal.
	Rerouted int `json:"rerouted,omitempty"`
}

// Origin is the checkpoint that a plan's was folded from.
type Origin struct {
	Checkpoint *safetensors.Checkpoint
	// Record is the asset gq/fold.json, Fold its summary in the provenance.
	Record []byte
	Fold   Fold
	// Untied tells that the head was the table in it, and is not any more: the head then gets the table's scheme, unless a
	// rule has one for it.
	Untied bool
}

// original is the checkpoint that a person named.
func (p *Plan) original() *safetensors.Checkpoint {
	if o := p.opts.Origin; o != nil {
		return o.Checkpoint
	}
	return p.ck
}

// Source is one file of the checkpoint. The checksums of its tensors stand in
// the file's directory.
type Source struct {
	Name         string `json:"name"`
	Size         int64  `json:"size"`
	HeaderSHA256 string `json:"header_sha256"`    // of a .gguf file: of all bytes before the data
	SHA256       string `json:"sha256,omitempty"` // of the whole file, with Recipe.HashFiles

	path string
}

// sources are the files that a person named.
func (p *Plan) sources() (list []Source) {
	if p.opts.Sources != nil {
		return slices.Clone(p.opts.Sources)
	}
	return sourceFiles(p.original())
}

// sourceFiles are the files of a checkpoint.
func sourceFiles(ck *safetensors.Checkpoint) (list []Source) {
	for _, f := range ck.Files() {
		list = append(list, Source{Name: f.Name, Size: f.Size, HeaderSHA256: hex.EncodeToString(f.HeaderSHA256[:]), path: filepath.Join(ck.Dir(), f.Name)})
	}
	return list
}

// provenanceJSON has zeros in the place of hashes that are not known yet, so that its length is.
func (p *Plan) provenanceJSON(c *CalibratedCodes, hashes []string) ([]byte, error) {
	prov := Provenance{Sources: []Source{}, Calibration: c.Calibration, Tuning: c.tuning()}
	if o := p.opts.Origin; o != nil {
		prov.Fold = &o.Fold
	}
	sources := p.sources()
	prov.Repository = repositoryOfFiles(sources)
	for i, s := range sources {
		switch {
		case hashes != nil:
			s.SHA256 = hashes[i]
		case p.opts.Recipe.HashFiles:
			s.SHA256 = strings.Repeat("0", 2*sha256.Size)
		}
		prov.Sources = append(prov.Sources, s)
	}
	return json.MarshalIndent(prov, "", "  ")
}

// hashFiles gives the SHA-256 of every source file, as hex, files in parallel.
func (p *Plan) hashFiles(ctx context.Context) ([]string, error) {
	return p.hashShare(ctx, Part{0, 1})
}

// hashShare is hashFiles for one of t.Of files; the others have the hash "".
func (p *Plan) hashShare(ctx context.Context, t Part) ([]string, error) {
	files := p.sources()
	hashes, errs := make([]string, len(files)), make([]error, len(files))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(cpu.Threads(p.opts.Threads), len(files)) {
		wg.Go(func() {
			for i := range next {
				hashes[i], errs[i] = hashFile(ctx, files[i].path)
			}
		})
	}
	for i := t.Index; i < len(files); i += t.Of {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return hashes, nil
}

func hashFile(ctx context.Context, path string) (string, error) {
	f, _, err := files.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		_, err := io.CopyN(h, f, 8<<20)
		if err == io.EOF {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}
