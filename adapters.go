package gq

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/fromquantized"
	"github.com/lowbit-go/gq/internal/job/lora"
	"github.com/lowbit-go/gq/internal/job/provenance"
)

// stageMerge is the name of the stage that stores a merged checkpoint.
const stageMerge = "merging adapters"

const loraSource = "goes with unquantized weights in safetensors, and %s is another source: name the model that the adapter was trained on"

// mergeAdapters returns the source with the recipe's adapters merged: as rows are read, or if whole
// is true in a working directory, for a job that reads the weights more than once.
func (r *run) mergeAdapters(t *task, in *input, whole bool) (*input, error) {
	names := t.o.Recipe.Lora
	if len(names) == 0 {
		return in, nil
	}
	if in.foreign != nil || len(in.files) > 0 {
		return nil, optionf("lora", loraSource, in.Name)
	}
	if err := r.open(in); err != nil {
		return nil, err
	}
	m, err := openAdapters(r.ctx, in.ck, names)
	if err != nil {
		return nil, err
	}
	r.atEnd(func() { m.Close() })
	to := &input{Source: in.Source, files: provenance.SourceFiles(in.ck), merges: true}
	if !whole {
		if to.ck, err = m.Checkpoint(r.ctx); err == nil {
			r.atEnd(func() { to.ck.Close() })
		}
		return to, err
	}
	parts := []any{"lora", 1, m.Records()}
	for _, f := range to.files {
		st, err := os.Stat(f.Path)
		if err != nil {
			return nil, err
		}
		parts = append(parts, f.Name, f.Size, f.HeaderSHA256, st.ModTime().UnixNano())
	}
	to.merges = false
	to.Source, err = r.made(t, in.Name, "merged", parts, func(dir string) error {
		return writeMerged(r.ctx, m, filepath.Join(dir, importedName), t.o.Threads, r.stages)
	})
	return to, err
}

// openAdapters opens adapters for an unquantized checkpoint.
func openAdapters(ctx context.Context, ck *safetensors.Checkpoint, names []string) (*lora.Merged, error) {
	quantized, err := fromquantized.IsQuantized(ck)
	if err == nil && quantized {
		err = optionf("lora", loraSource, ck.Dir())
	}
	if err != nil {
		return nil, err
	}
	return lora.Open(ctx, ck, names)
}

func writeMerged(ctx context.Context, m *lora.Merged, dir string, threads int, s stages) error {
	size, err := m.Size()
	if err != nil {
		return err
	}
	add, end := s.begin(stageMerge, "bytes", size)
	defer end()
	return m.Write(ctx, dir, threads, add)
}

// withAdapters calls use with the path of a temporary checkpoint: src with adapters merged. Without
// adapters use gets src.
func withAdapters(ctx context.Context, src string, names []string, threads int, s stages, use func(src string, merged *provenance.Provenance) error) (err error) {
	if len(names) == 0 {
		return use(src, nil)
	}
	if k, err := files.KindOf(src); err == nil && (k == files.GQF || k == files.GGUF) {
		return optionf("lora", loraSource, src)
	}
	ck, err := safetensors.Open(src, safetensors.Options{Context: ctx})
	if err != nil {
		return err
	}
	defer ck.Close()
	m, err := openAdapters(ctx, ck, names)
	if err != nil {
		return err
	}
	defer m.Close()
	dir, err := os.MkdirTemp("", "gq-lora")
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, os.RemoveAll(dir)) }()
	if err := writeMerged(ctx, m, dir, threads, s); err != nil {
		return err
	}
	return use(dir, &provenance.Provenance{Sources: provenance.SourceFiles(ck), Adapters: m.Records()})
}

// checkAdapters refuses to compare a file with the checkpoint src if their adapters differ. If only
// the file or only the checkpoint has adapters, the sources decide: another program may have merged
// the adapters.
func checkAdapters(name string, file readable, src string, merged *provenance.Provenance) error {
	f, err := file.open()
	if err != nil {
		return err
	}
	defer f.Close()
	if !f.HasAsset(gqf.ProvenanceName) {
		return nil
	}
	raw, err := f.Asset(gqf.ProvenanceName)
	if err != nil {
		return err
	}
	made, err := provenance.Parse(raw)
	if err != nil {
		return err
	}
	if merged == nil {
		merged = &provenance.Provenance{}
		if len(made.Adapters) > 0 {
			ck, err := safetensors.Open(src, safetensors.Options{})
			if err != nil {
				return err
			}
			merged.Sources = provenance.SourceFiles(ck)
			ck.Close()
		}
	}
	same := slices.EqualFunc(made.Sources, merged.Sources, func(a, b provenance.Source) bool { return a.HeaderSHA256 == b.HeaderSHA256 })
	if slices.Equal(made.Adapters, merged.Adapters) || !same && (len(made.Adapters) == 0 || len(merged.Adapters) == 0) {
		return nil
	}
	return optionf("lora", "names %s, and %s was made with %s: name the same adapters in the same order", list(merged.Adapters), name, list(made.Adapters))
}

func list(adapters []provenance.Adapter) string {
	var words []string
	for _, a := range adapters {
		words = append(words, fmt.Sprintf("%s (SHA-256 %.8s...)", a, a.SHA256))
	}
	return cmp.Or(strings.Join(words, ", "), "no adapter")
}
