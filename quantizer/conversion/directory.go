package conversion

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/model/llamacpp"
	"github.com/lowbit-go/gq/quantizer"
)

const configName = "config.json"

// sideFile is a file of a directory beside the weights.
type sideFile struct {
	name string
	size int64
	// write writes the content.
	write func(w io.Writer) error
}

// fileOf returns a file with the content data.
func fileOf(name string, data []byte) sideFile {
	return sideFile{name: name, size: int64(len(data)), write: func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}}
}

// content returns the bytes that write would write.
func (f *sideFile) content() ([]byte, error) {
	var b bytes.Buffer
	err := f.write(&b)
	return b.Bytes(), err
}

// checkDir refuses a directory that holds weights, or one of the files with another content. A file
// with the same content is accepted: a failed job may have left it. checkDir reads each file of the
// source once, so that a damaged source fails before any work.
func (o *checkpointOutput) checkDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".safetensors.index.json") {
			return inTheWay(dir, name)
		}
	}
	for _, f := range o.beside {
		if err := f.check(dir); err != nil {
			return err
		}
	}
	return nil
}

func inTheWay(dir, name string) error {
	return quantizer.Requestf("%s holds a checkpoint already (%s): choose an empty directory with -o", dir, name)
}

// check reads the content once. It fails if the content is damaged, or if the directory has a file of
// this name with another content.
func (f *sideFile) check(dir string) error {
	old, st, err := files.Open(filepath.Join(dir, f.name))
	if errors.Is(err, fs.ErrNotExist) {
		return f.write(io.Discard)
	}
	if err != nil {
		return inTheWay(dir, f.name)
	}
	defer old.Close()
	if st.Size() != f.size {
		return inTheWay(dir, f.name)
	}
	if err := f.write(&comparer{r: old}); errors.Is(err, errDiffers) {
		return inTheWay(dir, f.name)
	} else if err != nil {
		return err
	}
	return nil
}

// comparer is a writer that fails with errDiffers if the bytes differ from those that r reads.
type comparer struct {
	r   io.Reader
	buf []byte
}

var errDiffers = errors.New("differs")

func (c *comparer) Write(p []byte) (int, error) {
	if _, err := io.ReadFull(c.r, buffer.Grow(&c.buf, len(p))); err == io.EOF || err == io.ErrUnexpectedEOF {
		return 0, errDiffers
	} else if err != nil {
		return 0, err
	}
	if !bytes.Equal(c.buf, p) {
		return 0, errDiffers
	}
	return len(p), nil
}

// existing returns dir, or the nearest directory above it that exists.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// makeDir makes a directory, and returns the uppermost one that was missing; "" if there was none.
func makeDir(dir string) (made string, err error) {
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || d == filepath.Dir(d) {
			break
		}
		made = d
	}
	return made, os.MkdirAll(dir, 0o777)
}

// removeMade removes the empty directories from dir up to made.
func removeMade(dir, made string) {
	if made == "" {
		return
	}
	for d := dir; os.Remove(d) == nil && d != made; d = filepath.Dir(d) {
	}
}

// files lists the files beside the weights, and returns metadata for the files with weights.
func (o *checkpointOutput) files() (metadata map[string]string, err error) {
	assets, err := o.from.files()
	if err != nil {
		return nil, err
	}
	config := o.config
	if o.opts.Format != "" {
		config, metadata, err = o.quantizedConfig()
	} else if config != nil && o.from.absorbed() {
		config, err = hfquant.WithoutQuantization(config)
	}
	if err != nil {
		return nil, err
	}
	if config != nil {
		o.beside = append(o.beside, fileOf(configName, config))
	}
	for _, a := range assets {
		if ownName(a.name) {
			return nil, fmt.Errorf("asset %q has the name of a file that gq writes itself: this file was not made by gq", a.name)
		}
		if a.name != configName && a.name != llamacpp.CardFile {
			o.beside = append(o.beside, a)
		}
	}
	card, err := o.from.asset(llamacpp.CardFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if o.opts.Format == "" {
		if card != nil {
			o.beside = append(o.beside, fileOf(llamacpp.CardFile, unquantizedCard(card)))
		}
		return metadata, nil
	}
	recipe, origin, err := o.from.provenance(&CalibratedCodes{}, nil)
	if err != nil {
		return nil, err
	}
	if recipe != nil {
		o.beside = append(o.beside, fileOf(recipeFile, recipe))
	}
	o.beside = append(o.beside, fileOf(llamacpp.CardFile, o.card(card, recipe != nil, origin != nil)))
	return metadata, nil
}

// ownName reports whether gq itself writes a file of this name, so that no file of the model may have
// it. Some file systems do not distinguish upper and lower case.
func ownName(name string) bool {
	lower := strings.ToLower(name)
	return lower == recipeFile || lower == provenanceFile || strings.HasSuffix(lower, ".safetensors") || strings.HasSuffix(lower, ".safetensors.index.json")
}

// Names of gq's own files in a checkpoint. In a .gqf file, assets have the same content.
const (
	recipeFile     = "gq-recipe.json"     // --recipe reads it
	provenanceFile = "gq-provenance.json" // sources, calibration, folding
)
