package conversion

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/quantizer"
)

// assetFile is a file to write beside the weights.
type assetFile struct {
	f    *gqf.File
	name string
	data []byte // of a config that changes; nil: the asset as it is
	size int64
}

// assets lists the files to write beside the weights, and adds up their sizes. It reads and
// checks each of them. A directory that holds weights, or one of the files with another
// content, is refused: what a job that failed before left there is not in the way.
func (d *dequantizer) assets(dir string) (list []assetFile, total int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return nil, 0, err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".safetensors") {
			return nil, 0, inTheWay(dir, e.Name())
		}
	}
	for _, a := range d.f.Assets() {
		if a.Kind != gqf.AssetConfig && a.Kind != gqf.AssetFile {
			continue
		}
		if lower := strings.ToLower(a.Name); strings.HasSuffix(lower, ".safetensors") || strings.HasSuffix(lower, ".safetensors.index.json") {
			return nil, 0, fmt.Errorf("asset %q has a name of weights, which gq dequantize writes itself: this file was not made by gq", a.Name)
		}
		file := assetFile{f: d.f, name: a.Name, size: a.RawBytes}
		if a.Kind == gqf.AssetConfig && d.absorbed {
			if file.data, err = d.config(a); err != nil {
				return nil, 0, err
			}
			file.size = int64(len(file.data))
		}
		if err := file.check(dir); err != nil {
			return nil, 0, err
		}
		list = append(list, file)
		total += file.size
	}
	return list, total, nil
}

func inTheWay(dir, name string) error {
	return quantizer.Requestf("%s holds a checkpoint already (%s): choose an empty directory with -o", dir, name)
}

// config is the config.json of weights into which block scales were multiplied.
func (d *dequantizer) config(a gqf.AssetInfo) ([]byte, error) {
	if a.RawBytes > files.MaxModelFile {
		return nil, fmt.Errorf("asset %q has %d bytes, more than the %d of a config that can be rewritten", a.Name, a.RawBytes, files.MaxModelFile)
	}
	data, err := d.f.Asset(a.Name)
	if err != nil {
		return nil, err
	}
	return withoutQuantization(data)
}

// withoutQuantization removes quantization_config from a config.json.
func withoutQuantization(config []byte) ([]byte, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(config, &m); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	delete(m, "quantization_config")
	return json.MarshalIndent(m, "", "  ")
}

// copy writes the content to w.
func (a *assetFile) copy(w io.Writer) error {
	if a.data != nil {
		_, err := w.Write(a.data)
		return err
	}
	_, err := a.f.CopyAsset(w, a.name)
	return err
}

// check reads the content once. It fails if the content is damaged, or if the file exists
// and has another one.
func (a *assetFile) check(dir string) error {
	old, st, err := files.Open(filepath.Join(dir, a.name))
	if errors.Is(err, fs.ErrNotExist) {
		return a.copy(io.Discard)
	}
	if err != nil {
		return inTheWay(dir, a.name)
	}
	defer old.Close()
	if st.Size() != a.size {
		return inTheWay(dir, a.name)
	}
	if err := a.copy(&comparer{r: old}); errors.Is(err, errDiffers) {
		return inTheWay(dir, a.name)
	} else if err != nil {
		return err
	}
	return nil
}

// write makes the file.
func (a *assetFile) write(dir string) error {
	f, err := atomicfile.Create(filepath.Join(dir, a.name))
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := a.copy(io.NewOffsetWriter(f, 0)); err != nil {
		return err
	}
	return f.Commit()
}

// comparer compares what is written to it with what r has.
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
