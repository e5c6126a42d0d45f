// Package provenance has the records of a file's origin: its sources, calibration, tuning and
// folding.
package provenance

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/hubpath"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/remote"
)

// Provenance is the content of a file's gq/provenance.json: its origin. It holds
// no time, path, host or thread count: the same job gives the same bytes.
type Provenance struct {
	Sources []Source `json:"sources"`
	// Repository says where the sources are published, if they are of the Hugging Face Hub: they were
	// named so, or lie in its cache.
	Repository *Repository `json:"repository,omitempty"`
	// Adapters were merged into the checkpoint, in this order.
	Adapters []Adapter `json:"adapters,omitempty"`
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

// Adapter is an adapter of PEFT.
type Adapter struct {
	Name         string  `json:"name"`          // of its directory
	SHA256       string  `json:"sha256"`        // of adapter_model.safetensors
	ConfigSHA256 string  `json:"config_sha256"` // of adapter_config.json
	Scale        float64 `json:"scale"`
}

func (a Adapter) String() string {
	if a.Scale == 1 {
		return a.Name
	}
	return fmt.Sprintf("%s=%v", a.Name, a.Scale)
}

// AdaptersKey is the key of the adapters, as JSON, in the metadata of a merged checkpoint's files.
const AdaptersKey = "gq.lora"

// AdaptersOf lists the adapters that were merged into a checkpoint.
func AdaptersOf(ck *safetensors.Checkpoint) (list []Adapter) {
	for _, f := range ck.Files() {
		if json.Unmarshal([]byte(f.Metadata[AdaptersKey]), &list) == nil {
			return list
		}
	}
	return nil
}

// Repository is a commit of a repository.
type Repository struct {
	Name   string `json:"name"`   // "hf://org/model"
	Commit string `json:"commit"` // 40 hexadecimal digits
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
	// Difference is the largest difference between logits of the checkpoint and of the folded one, as
	// a part of the largest logit, on so many tokens; Source says where these came from.
	Difference float64 `json:"logits_difference"`
	Tokens     int     `json:"tokens"`
	Source     string  `json:"source"`
	// Rerouted counts sequences that are left out of that, as a router chose another of two experts
	// that are nearly equal.
	Rerouted int `json:"rerouted,omitempty"`
}

// Calibration records the algorithm that chose the codes, and its data.
type Calibration struct {
	Algorithm string `json:"algorithm"`
	// Parameters of the algorithm.
	Parameters map[string]any `json:"parameters,omitempty"`
	// Source is "self" for text that the model wrote, else the kind of the file: "text", "tokens" or
	// "imatrix".
	Source string `json:"source"`
	// SHA256 is the hash of the file, or of the token ids as little-endian int32 if the model wrote
	// the text.
	SHA256    string  `json:"source_sha256"`
	Tokens    int     `json:"tokens"`
	Sequences int     `json:"sequences"`
	Seed      *uint64 `json:"seed,omitempty"`
	// Written counts the tokens that the model wrote after the tokens of a file.
	Written int `json:"written,omitempty"`
	// Fallbacks counts the matrices that calibration did not reach, or did not improve.
	Fallbacks int `json:"fallbacks,omitempty"`
	// SequencesSHA256 is text.Text.Hash of the sequences that gptq or gptq-ft read.
	SequencesSHA256 string `json:"sequences_sha256,omitempty"`
	// Version is the version of gptq or gptq-ft. It changes whenever the codes change.
	Version int `json:"version,omitempty"`
}

// Tuning records how a file's numbers were tuned, and with which data.
type Tuning struct {
	// Mode is the kind of tuning, as the recipe names it.
	Mode string `json:"mode"`
	// Parameters of the optimizer.
	Parameters map[string]any `json:"parameters,omitempty"`
	// Source, SHA256, Tokens, Sequences and Seed describe the text as in Calibration. HeldOut of the
	// tokens were held out to choose the step.
	Source    string  `json:"source"`
	SHA256    string  `json:"source_sha256"`
	Tokens    int     `json:"tokens"`
	Sequences int     `json:"sequences"`
	HeldOut   int     `json:"held_out_tokens"`
	Seed      *uint64 `json:"seed,omitempty"`
	// Steps were trained; Step is the step whose numbers the file has.
	Steps int `json:"steps"`
	Step  int `json:"step"`
	// Vectors is the number of norms whose gains differ from the checkpoint's.
	Vectors int `json:"norms,omitempty"`
}

// Source is one file of the checkpoint. The checksums of its tensors stand in
// the file's directory.
type Source struct {
	Name         string `json:"name"`
	Size         int64  `json:"size"`
	HeaderSHA256 string `json:"header_sha256"`    // of a .gguf file: of all bytes before the data
	SHA256       string `json:"sha256,omitempty"` // of the whole file, with Recipe.HashFiles
	// Unverified: the file came from a store that states no hash to compare it with.
	Unverified bool `json:"unverified,omitempty"`

	Path string `json:"-"` // of the file on this machine
}

// SourceSums are checksums of the source's tensors by name, as the provenance of a .gguf file or a
// checkpoint has them: 8 hexadecimal digits. A .gqf file stores them with its names.
type SourceSums map[string]string

func (s SourceSums) Set(name string, crc uint32) { s[name] = fmt.Sprintf("%08x", crc) }

// AddTo adds the checksums to a provenance, and the record of a fold if there is one. The length of
// the provenance does not depend on the checksums.
func (s SourceSums) AddTo(provenance, fold []byte) ([]byte, error) {
	end := bytes.LastIndexByte(provenance, '}')
	if end < 0 || len(s) == 0 {
		return provenance, nil
	}
	list, err := json.Marshal(s)
	if err == nil && fold != nil {
		var record []byte
		record, err = json.Marshal(json.RawMessage(fold))
		list = slices.Concat(list, []byte(",\n  \"fold_record\": "), record)
	}
	return slices.Concat(bytes.TrimRight(provenance[:end], " \n"), []byte(",\n  \"tensors\": "), list, []byte("\n}")), err
}

// Of returns a function that finds the checksum of a tensor, by its name in the language model; 0
// if there is none.
func (s SourceSums) Of() func(name string) uint32 {
	_, long := arch.Names(func(name string) bool { return s[name] != "" })
	return func(name string) uint32 {
		crc, _ := strconv.ParseUint(cmp.Or(s[name], s[long(name)]), 16, 32)
		return uint32(crc)
	}
}

// Names of gq's own records: keys of the metadata of a .gguf file, and files of a checkpoint.
// In a .gqf file, assets have the same content.
const (
	GGUFRecipe     = "gq.recipe"
	GGUFProvenance = "gq.provenance"
	RecipeFile     = "gq-recipe.json" // --recipe reads it
	ProvenanceFile = "gq-provenance.json"
)

// RepositoryOf is the repository whose files the sources are; nil if that is not known.
func RepositoryOf(sources []Source) *Repository {
	if len(sources) == 0 {
		return nil
	}
	repo, commit, ok := hubpath.Of(sources[0].Path)
	if !ok {
		return nil
	}
	return &Repository{"hf://" + repo, commit}
}

// NewSource returns the record of a file at path, with the SHA-256 of its header.
func NewSource(path string, size int64, header string) Source {
	return Source{Name: filepath.Base(path), Size: size, HeaderSHA256: header, Unverified: remote.Unverified(path), Path: path}
}

// SourceFiles are the files of a checkpoint.
func SourceFiles(ck *safetensors.Checkpoint) (list []Source) {
	for _, f := range ck.Files() {
		s := NewSource(filepath.Join(ck.Dir(), f.Name), f.Size, hex.EncodeToString(f.HeaderSHA256[:]))
		s.Unverified = s.Unverified || f.Unverified
		list = append(list, s)
	}
	return list
}

// HashFiles returns the SHA-256 of the files with the numbers index, index + of, and so on, in
// parallel; "" for the other files.
func HashFiles(ctx context.Context, list []Source, threads, index, of int) ([]string, error) {
	hashes := make([]string, len(list))
	return hashes, cpu.Parallel(ctx, cpu.Threads(threads), len(list), func() func(i int) error {
		return func(i int) (err error) {
			if i%of == index {
				hashes[i], err = hashFile(ctx, list[i].Path)
			}
			return err
		}
	})
}

// HashStart returns the SHA-256 of the first n bytes of a file.
func HashStart(path string, n int64) (string, error) {
	f, _, err := files.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyN(h, f, n); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
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

// Parse reads the content of a file's gq/provenance.json.
func Parse(b []byte) (*Provenance, error) {
	var p Provenance
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("the record of the file's origin: %w", err)
	}
	return &p, nil
}

// EditHashes puts the hashes of source files into a provenance in place. nil: it removes them.
func EditHashes(b []byte, hashes map[uint32][32]byte) error {
	var p Provenance
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	for i := range p.Sources {
		s := &p.Sources[i]
		if s.SHA256 == "" {
			continue
		}
		h, ok := hashes[uint32(i)]
		if hashes != nil && !ok {
			return fmt.Errorf("no part has the hash of %s", s.Name)
		}
		s.SHA256 = hex.EncodeToString(h[:])
	}
	edited, err := json.MarshalIndent(p, "", "  ")
	if err == nil && len(edited) != len(b) {
		err = fmt.Errorf("the provenance would have %d bytes, not %d", len(edited), len(b))
	}
	copy(b, edited)
	return err
}
