package provenance

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/hubpath"
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

// SourceFiles are the files of a checkpoint.
func SourceFiles(ck *safetensors.Checkpoint) (list []Source) {
	for _, f := range ck.Files() {
		list = append(list, Source{Name: f.Name, Size: f.Size, HeaderSHA256: hex.EncodeToString(f.HeaderSHA256[:]), Unverified: f.Unverified, Path: filepath.Join(ck.Dir(), f.Name)})
	}
	return list
}

// HashFiles returns the SHA-256 of the files with the numbers index, index + of, and so on, in
// parallel; "" for the other files.
func HashFiles(ctx context.Context, list []Source, threads, index, of int) ([]string, error) {
	hashes, errs := make([]string, len(list)), make([]error, len(list))
	_ = cpu.Parallel(ctx, cpu.Threads(threads), len(list), func() func(i int) error {
		return func(i int) error {
			if i%of == index {
				hashes[i], errs[i] = hashFile(ctx, list[i].Path)
			}
			return nil
		}
	})
	return hashes, cmp.Or(append(errs, ctx.Err())...)
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
