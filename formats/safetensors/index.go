package safetensors

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/jsonscan"
	"github.com/lowbit-go/gq/internal/mmap"
)

const (
	fileSuffix  = ".safetensors"
	indexSuffix = ".safetensors.index.json"
)

const (
	// IndexName is the name of the file that says in which files the tensors of a checkpoint lie.
	IndexName = "model.safetensors.index.json"
	// SingleName is the name of the only file of a checkpoint.
	SingleName = "model.safetensors"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// find resolves Open's path to a file or an index. remote files count as the directory's.
func find(path string, remote []RemoteFile) (file, index string, err error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && slices.ContainsFunc(remote, func(f RemoteFile) bool { return f.Name == filepath.Base(path) }) {
		return path, "", nil
	}
	if err != nil {
		return "", "", err
	}
	if !st.IsDir() {
		if strings.HasSuffix(path, indexSuffix) {
			return "", path, nil
		}
		return path, "", nil
	}
	names, err := fileNames(path)
	if err != nil {
		return "", "", err
	}
	for _, f := range remote {
		if !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	// If both exist, openShards decides: the index may list the single file.
	if slices.Contains(names, IndexName) {
		return "", filepath.Join(path, IndexName), nil
	}
	others := slices.Clone(names)
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, fileSuffix) })
	switch {
	case slices.Contains(names, SingleName):
		return filepath.Join(path, SingleName), "", nil
	case slices.Contains(others, "adapter_config.json") || len(names) == 1 && names[0] == "adapter_model.safetensors":
		return "", "", &fs.PathError{Op: "open", Path: path, Err: errors.New("this is a LoRA adapter without its model: name " + baseModel(path) + ", and the adapter with --lora " + path)}
	case len(names) == 1:
		return filepath.Join(path, names[0]), "", nil
	case len(names) == 0:
		return "", "", &fs.PathError{Op: "open", Path: path, Err: errors.New("the directory has no .safetensors file" + instead(path, others))}
	default:
		return "", "", &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf(
			"the directory has %d .safetensors files (%s, %s, ...) but neither %s nor %s; name the file to read", len(names), names[0], names[1], IndexName, SingleName)}
	}
}

// baseModel names the model that the adapter in dir was trained on.
func baseModel(dir string) string {
	var c struct {
		Name string `json:"base_model_name_or_path"`
	}
	raw, err := files.Read(filepath.Join(dir, "adapter_config.json"), files.MaxModelFile)
	if err != nil || json.Unmarshal(raw, &c) != nil || c.Name == "" {
		return "the checkpoint that it belongs to"
	}
	return "its model, " + quote(c.Name)
}

// Files returns the paths of the files that Open(path) reads: the index, if any, and the files with
// weights. Files reads no headers.
func Files(path string) ([]string, error) {
	file, indexFile, err := find(path, nil)
	if err != nil {
		return nil, err
	}
	if indexFile == "" {
		return []string{file}, nil
	}
	raw, err := files.Read(indexFile, Options{}.withDefaults().MaxHeaderBytes)
	if err != nil {
		return nil, err
	}
	names, err := (&index{path: indexFile, b: raw}).files()
	if err != nil {
		return nil, err
	}
	paths := []string{indexFile}
	for _, name := range names {
		paths = append(paths, filepath.Join(filepath.Dir(indexFile), name))
	}
	return paths, nil
}

// Shards returns the sorted names of the files that the index at path lists, existing or not.
func Shards(path string) ([]string, error) {
	raw, err := files.Read(path, Options{}.withDefaults().MaxHeaderBytes)
	if err != nil {
		return nil, err
	}
	return (&index{path: path, b: raw, elsewhere: true}).files()
}

// instead describes the content of a directory without .safetensors files: the first file with
// weights, by its name and first bytes.
func instead(dir string, names []string) string {
	for _, name := range names {
		if !slices.Contains([]string{".bin", ".pt", ".pth", ".ckpt", ".gguf", ".gqf"}, strings.ToLower(filepath.Ext(name))) {
			continue
		}
		k, err := files.KindOf(filepath.Join(dir, name))
		if err != nil || k == files.Unknown {
			continue
		}
		advice := k.Advice(name)
		if (k == files.GGUF || k == files.GQF) && k.Rename(name) == "" {
			advice = "name the file itself, or name the safetensors checkpoint that it was made of"
		}
		return fmt.Sprintf("; %s is %v: %s", name, k, advice)
	}
	return ""
}

// IsCheckpoint reports whether Open would find a checkpoint at path, without reading the files.
func IsCheckpoint(path string) bool {
	_, _, err := find(path, nil)
	return err == nil
}

func fileNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// openShards opens the checkpoint that the index at path describes.
//
// The index is JSON: {"metadata": {...}, "weight_map": {tensor name: file name}}. openShards reads
// the index twice: first to find the files, then, after reading their headers, to check that each
// tensor is in its file. So the names in the index need no memory. A tensor that the index omits,
// but that a file has, belongs to the checkpoint too.
func (c *Checkpoint) openShards(path string, l *loader) error {
	m, err := mmap.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	ix := &index{path: path, b: m.Bytes(), opts: &l.opts}
	if m.Size() > l.opts.MaxHeaderBytes {
		return &FormatError{File: path, Msg: fmt.Sprintf("the index has %d bytes, more than the limit of %d (Options.MaxHeaderBytes)", m.Size(), l.opts.MaxHeaderBytes)}
	}
	var names []string
	err = guard(func() error {
		names, err = ix.files()
		return err
	}, []*mmap.File{m})
	if err != nil {
		return err
	}
	if err := ix.besides(names); err != nil {
		return err
	}
	for _, name := range names {
		if err := c.addFile(filepath.Join(c.dir, name), l); err != nil {
			return err
		}
	}
	if err := c.load(l); err != nil {
		return err
	}
	return guard(func() error { return ix.check(c) }, []*mmap.File{m})
}

// An index is the file that maps each tensor to its shard.
type index struct {
	path string
	b    []byte
	opts *Options // which may name remote files; nil: none
	// elsewhere says that the files are not looked for.
	elsewhere bool
}

// exists reports whether the index's directory, or the list of remote files, has the name.
func (ix *index) exists(name string) error {
	if ix.elsewhere || ix.opts != nil && ix.opts.remoteFile(name) != nil {
		return nil
	}
	_, err := os.Stat(filepath.Join(filepath.Dir(ix.path), name))
	return err
}

// read iterates over the weight_map. entry gets the scanner, the position of the tensor's name, and
// the two strings, valid during the call.
func (ix *index) read(entry func(s *jsonscan.Scanner, at int, tensor, file []byte) error) error {
	s := jsonscan.New(ix.b, func(pos int, msg string) error { return &FormatError{File: ix.path, Offset: int64(pos), Msg: msg} })
	if err := s.CheckUTF8(); err != nil {
		return err
	}
	var tensor []byte
	found := false
	err := s.Object("the index", func(key []byte, at int) error {
		if string(key) != "weight_map" {
			return s.Skip("the index")
		}
		if found {
			return s.Fail(at, "weight_map appears twice")
		}
		found = true
		return s.Object("weight_map", func(key []byte, at int) error {
			tensor = append(tensor[:0], key...)
			file, err := s.String("a file name in weight_map")
			if err != nil {
				return err
			}
			return entry(s, at, tensor, file)
		})
	})
	if err != nil {
		return err
	}
	if err := s.End("the index's object"); err != nil {
		return err
	}
	if !found {
		return s.Fail(0, "the index has no weight_map")
	}
	return nil
}

func (ix *index) files() ([]string, error) {
	seen := map[string]bool{}
	err := ix.read(func(s *jsonscan.Scanner, at int, tensor, file []byte) error {
		if seen[string(file)] {
			return nil
		}
		name := string(file)
		if !plainName(name) {
			return s.Fail(at, "tensor %s is listed in %s, which is not the name of a file beside the index", quote(tensor), quote(name))
		}
		// Checked at once, so that an index cannot make this list longer than the list of existing files.
		if err := ix.exists(name); err != nil {
			return &FormatError{File: ix.path, Offset: int64(at), Msg: fmt.Sprintf("tensor %s is listed in %s, which cannot be found", quote(tensor), quote(name)), Err: err}
		}
		if seen[name] = true; len(seen) > maxShards {
			return s.Fail(at, "the index lists more than %d files", maxShards)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(seen) == 0 {
		return nil, &FormatError{File: ix.path, Msg: "the weight_map is empty"}
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// maxShards is the greatest number of files of an index. Kimi K2 has 61.
const maxShards = 100_000

// plainName reports whether name is, on every system, a file in the directory of the index: an
// index from a stranger must not make the program read elsewhere.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\:\x00")
}

// besides refuses a directory in which two checkpoints compete for the name "model".
func (ix *index) besides(names []string) error {
	if filepath.Base(ix.path) != IndexName || slices.Contains(names, SingleName) {
		return nil
	}
	if ix.exists(SingleName) != nil {
		return nil
	}
	return &fs.PathError{Op: "open", Path: ix.path, Err: fmt.Errorf(
		"the directory also has %s, which the index does not name; name that file to read it, or remove one of the two", SingleName)}
}

func (ix *index) check(c *Checkpoint) error {
	seen := make([]bool, len(c.tensors))
	return ix.read(func(s *jsonscan.Scanner, at int, tensor, file []byte) error {
		i, ok := c.find(string(tensor))
		switch {
		case !ok:
			return s.Fail(at, "the index names tensor %s, which none of its files has", quote(tensor))
		case seen[i]:
			return s.Fail(at, "the index names tensor %s twice", quote(tensor))
		case c.files[c.tensors[i].File].Name != string(file):
			return s.Fail(at, "the index says that tensor %s is in %s, but it is in %s", quote(tensor), quote(file), c.files[c.tensors[i].File].Name)
		}
		seen[i] = true
		return nil
	})
}

// Stamps identifies the checkpoint without reading all of the data. A file's stamp is its name, its
// size and modification time at opening (of a remote file its version), the hash of its header, and
// the hash of samples of its data. The samples distinguish a fine-tuned model from its base model
// if an archive gave their files the same times.
func (c *Checkpoint) Stamps() []string {
	var list []string
	for i, f := range c.files {
		state := ""
		if r, ok := c.remoteFile(i); ok {
			state = r.Version
		} else {
			state = strconv.FormatInt(c.stats[i].ModTime().UnixNano(), 10)
		}
		list = append(list, fmt.Sprintf("%s %d %s %x %s", f.Name, f.Size, state, f.HeaderSHA256, c.sample(i)))
	}
	return list
}

// SampleDigest is the SHA-256 of samples of the data of all files, the same for copies on different
// machines, local and remote. SampleDigest takes fewer samples of each file than Stamps, because
// each may be a request: 64 divided among the files, and at least 8 of a file.
func (c *Checkpoint) SampleDigest() (digest [sha256.Size]byte, err error) {
	h := sha256.New()
	n := max(8, samples/max(1, len(c.files)))
	for i := range c.files {
		if err := c.hashSamples(h, i, n); err != nil {
			return digest, err
		}
	}
	h.Sum(digest[:0])
	return digest, nil
}

const (
	samples     = 64
	sampleBytes = 1 << 12
)

// sample hashes blocks that are spread evenly over a file.
func (c *Checkpoint) sample(file int) string {
	h := sha256.New()
	if c.hashSamples(h, file, samples) != nil {
		return "unreadable" // Unchanged reports a file that has become shorter
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func (c *Checkpoint) hashSamples(h hash.Hash, file, n int) error {
	data := c.maps[file].Bytes()
	places := sampled(file, int64(len(data)), n)
	release, err := c.fetch(places)
	if err != nil {
		return err
	}
	defer release()
	return c.Guard(func() error {
		for _, r := range places {
			h.Write(data[r.Offset:][:r.Size])
		}
		return nil
	})
}

// sampled are the places of n samples in a file of size bytes: all of a small file.
func sampled(file int, size int64, n int) (list []Range) {
	if size <= samples*sampleBytes {
		return []Range{{File: file, Size: size}}
	}
	for i := range int64(n) {
		list = append(list, Range{File: file, Offset: (size - sampleBytes) * i / int64(n-1), Size: sampleBytes})
	}
	return list
}
