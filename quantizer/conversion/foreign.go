package conversion

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
)

// Foreign is an open model of another program: a GGUF file, or a checkpoint whose weights are
// quantized. NewImport takes its codes over.
type Foreign struct {
	path string

	// Of a GGUF file.
	gguf  *gguf.File
	stats []fs.FileInfo // of the file, or of its shards

	// Of a checkpoint.
	ck        *safetensors.Checkpoint
	quantized *hfquant.Quantized
}

// OpenGGUF opens a GGUF file, or the shards of one.
func OpenGGUF(path string) (*Foreign, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	foreign := &Foreign{path: path, gguf: f}
	for _, p := range f.Paths() {
		st, err := os.Stat(p)
		if err != nil {
			f.Close()
			return nil, err
		}
		foreign.stats = append(foreign.stats, st)
	}
	return foreign, nil
}

// OpenQuantized opens a checkpoint whose weights another library quantized. It returns nil if no weight
// is quantized, and if path is no checkpoint that can be read: its reader reports the error.
func OpenQuantized(path string) (*Foreign, error) {
	ck, err := safetensors.Open(path, safetensors.Options{})
	if err != nil {
		return nil, nil
	}
	config, err := ReadConfig(ck)
	if err != nil {
		ck.Close()
		return nil, err
	}
	f := &Foreign{path: path, ck: ck}
	f.quantized, err = hfquant.Find(ck, config)
	if f.quantized == nil {
		ck.Close()
		return nil, err
	}
	return f, nil
}

// IsQuantized reports whether another library quantized weights of a checkpoint.
func IsQuantized(ck *safetensors.Checkpoint) (bool, error) {
	config, err := ReadConfig(ck)
	if err != nil {
		return false, err
	}
	q, err := hfquant.Find(ck, config)
	return q != nil, err
}

// Close closes the files. A second call does nothing.
func (f *Foreign) Close() error {
	if f.gguf != nil {
		return f.gguf.Close()
	}
	return f.ck.Close()
}

// IsGGUF reports whether the model is a GGUF file.
func (f *Foreign) IsGGUF() bool { return f.gguf != nil }

// Noun is the kind of the model in messages: "the .gguf file".
func (f *Foreign) Noun() string {
	if f.IsGGUF() {
		return "the .gguf file"
	}
	return "the quantized checkpoint"
}

// Paths are the paths of the files with weights.
func (f *Foreign) Paths() (list []string) {
	if f.IsGGUF() {
		return f.gguf.Paths()
	}
	for _, file := range f.ck.Files() {
		list = append(list, filepath.Join(f.ck.Dir(), file.Name))
	}
	return list
}

// Bytes is the size of these files.
func (f *Foreign) Bytes() (n int64) {
	if f.IsGGUF() {
		return f.gguf.Size()
	}
	for _, file := range f.ck.Files() {
		n += file.Size
	}
	return n
}

// Quantized describes the quantized tensors, if there are any: "tensors: 42 of Q4_0, 1 of Q8_0".
func (f *Foreign) Quantized() string {
	if !f.IsGGUF() {
		return inspectQuantized(f.ck, f.quantized).String()
	}
	count := map[string]int{}
	for _, t := range f.gguf.Tensors {
		if t.Type.BlockWeights() > 1 {
			count[t.Type.String()]++
		}
	}
	if len(count) == 0 {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d of %s", count[name], name))
	}
	return "tensors: " + strings.Join(parts, ", ")
}

// Sources are the files, as the provenance of a .gqf file names them.
func (f *Foreign) Sources() (list []Source, err error) {
	if !f.IsGGUF() {
		return sourceFiles(f.ck), nil
	}
	for i, path := range f.gguf.Paths() {
		start := f.stats[i].Size()
		for _, t := range f.gguf.Tensors {
			if t.Shard == i {
				start = min(start, t.Offset)
			}
		}
		sum, err := hashStart(path, start)
		if err != nil {
			return nil, err
		}
		list = append(list, Source{Name: filepath.Base(path), Size: f.stats[i].Size(), HeaderSHA256: sum, path: path})
	}
	return list, nil
}

// hashStart returns the SHA-256 of the first n bytes of a file.
func hashStart(path string, n int64) (string, error) {
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

// quantizedBy says who quantized a checkpoint; nil for a GGUF file.
func (f *Foreign) quantizedBy() *QuantizedBy {
	if f.IsGGUF() {
		return nil
	}
	return quantizedBy(f.quantized)
}

// tuning is the account of tuning that gq left in a file that it wrote; nil without. The gains of
// its norms differ from the checkpoint's.
func (f *Foreign) tuning() *Tuning {
	var raw []byte
	if f.IsGGUF() {
		text, _ := f.gguf.Text(ggufProvenanceKey)
		raw = []byte(text)
	} else {
		// Without the file, there is no account.
		raw, _ = files.Read(filepath.Join(f.ck.Dir(), provenanceFile), files.MaxModelFile)
	}
	var p struct {
		Tuning *Tuning `json:"tuning"`
	}
	if json.Unmarshal(raw, &p) != nil { // of another program
		return nil
	}
	return p.Tuning
}

// unchanged fails if a file was changed after it was opened. No checksum would find the change: neither
// format has any.
func (f *Foreign) unchanged() error {
	if !f.IsGGUF() {
		return f.ck.Unchanged()
	}
	for i, path := range f.gguf.Paths() {
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		if was := f.stats[i]; st.Size() != was.Size() || !st.ModTime().Equal(was.ModTime()) || !os.SameFile(st, was) {
			return fmt.Errorf("%s was changed while it was read: run the job again", path)
		}
	}
	return nil
}
