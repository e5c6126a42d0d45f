package tocheckpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/quantizer"
)

// CheckDir refuses a directory that is not empty. It reads each of the files that are to lie in it,
// so that a damaged source fails before any work.
func CheckDir(dir string, beside []write.SideFile) error {
	if err := atomicfile.CheckDir(dir); err != nil {
		return quantizer.Requestf("%w", err)
	}
	for _, f := range beside {
		if err := f.Write(io.Discard); err != nil {
			return err
		}
	}
	return nil
}

// Home returns dir, or the nearest directory above it that exists.
func Home(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// files lists the directory's other files, and returns metadata for the files with weights.
func (o *Output) files() (metadata map[string]string, err error) {
	files, err := o.from.Assets()
	if err != nil {
		return nil, err
	}
	config := o.Config
	if o.opts.Format != "" {
		config, metadata, err = o.quantizedConfig()
	} else if config != nil && o.from.Absorbed() {
		config, err = hfquant.WithoutQuantization(config)
	}
	if err != nil {
		return nil, err
	}
	if config != nil {
		o.beside = append(o.beside, write.FileOf(assets.ConfigName, config))
	}
	for _, a := range files {
		if OwnName(a.Name) {
			return nil, fmt.Errorf("asset %q has the name of a file that gq writes itself: this file was not made by gq", a.Name)
		}
		if a.Name != assets.ConfigName && a.Name != llamacpp.CardFile {
			o.beside = append(o.beside, a)
		}
	}
	card, err := o.from.Asset(llamacpp.CardFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if o.opts.Format == "" {
		if card != nil {
			o.beside = append(o.beside, write.FileOf(llamacpp.CardFile, unquantizedCard(card)))
		}
		return metadata, nil
	}
	recipe, origin, err := o.from.Provenance(&plan.Codes{}, nil, nil)
	if err != nil {
		return nil, err
	}
	if recipe != nil {
		o.beside = append(o.beside, write.FileOf(provenance.RecipeFile, recipe))
	}
	o.beside = append(o.beside, write.FileOf(llamacpp.CardFile, o.card(card, recipe != nil, origin != nil)))
	return metadata, nil
}

// OwnName reports whether gq itself writes a file of this name, so that no file of the model may
// have it. Some file systems do not distinguish upper and lower case.
func OwnName(name string) bool {
	lower := strings.ToLower(name)
	return lower == provenance.RecipeFile || lower == provenance.ProvenanceFile || strings.HasSuffix(lower, ".safetensors") || strings.HasSuffix(lower, ".safetensors.index.json")
}

// Paths refuses a directory that holds a checkpoint, or another model's files.
func (o *Output) Paths(dir string) ([]string, error) {
	t, err := o.Target(&plan.Codes{}, nil, nil)
	if err != nil {
		return nil, err
	}
	return write.Paths(t.Files(dir)), CheckDir(dir, o.beside)
}

// Home is the directory that holds the new directory, or a directory above it.
func (o *Output) Home(dir string) string { return Home(dir) }
