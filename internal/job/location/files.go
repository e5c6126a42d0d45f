package location

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/transfer"
)

// stageDownload is the stage in which files are copied into a cache.
const stageDownload = "downloading"

// resolve fetches the files of the source: all of them if whole is true, else those that a job does
// not stream. The caller releases the source.
func (p *place) resolve(ctx context.Context, whole bool) (src *Source, err error) {
	unlock, err := p.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unlock()
			src = nil
		}
	}()
	m, err := p.model(ctx)
	if err != nil {
		return nil, err
	}
	missing := slices.DeleteFunc(slices.Clone(m.weights), p.Cached)
	src = &Source{Name: p.name, Path: m.path, unlock: unlock}
	if whole || !m.checkpoint || len(missing) == 0 {
		return src, p.download(ctx, m.weights)
	}
	cached := slices.DeleteFunc(slices.Clone(m.weights), func(o remote.Object) bool { return !p.Cached(o) })
	src.Store, src.Weights = p, missing
	if len(cached) == 0 {
		return src, nil
	}
	return src, p.Fetch(ctx, cached, transfer.Options{}) // links them
}

// A placeModel is the model of a place. Its small files are in the local directory.
type placeModel struct {
	path       string // of the file or directory on this machine
	checkpoint bool   // not a file that is a model of its own, or no model
	small      []remote.Object
	weights    []remote.Object
}

// model finds the files of the model and fetches the small files.
func (p *place) model(ctx context.Context) (*placeModel, error) {
	list, err := p.List(ctx)
	if err != nil {
		return nil, err
	}
	m := &placeModel{path: filepath.Join(p.Dir(), filepath.FromSlash(p.file)), checkpoint: p.isCheckpoint()}
	if !m.checkpoint {
		m.weights, err = p.find(ctx, "", p.modelFiles())
		return m, err
	}
	dir := p.file
	if hasObject(list, p.file) {
		dir = path.Dir(p.file)
	}
	if dir == "." {
		dir = ""
	}
	for _, o := range list {
		if base, ok := inDir(dir, o.Name); ok && isSmallFile(base, o.Size) {
			m.small = append(m.small, o)
		}
	}
	if p.forget != nil { // files in the cache that the place no longer has
		err := p.forget(ctx, func(name string) bool { return (p.ask == nil || p.asked[name]) && !hasObject(list, name) })
		if err != nil {
			return nil, err
		}
	}
	if err := p.download(ctx, m.small); err != nil {
		return nil, err
	}
	names, err := p.weightFiles(list, dir)
	if err != nil {
		return nil, err
	}
	m.weights, err = p.find(ctx, dir, names)
	return m, err
}

func hasObject(list []remote.Object, name string) bool {
	return slices.ContainsFunc(list, func(o remote.Object) bool { return o.Name == name })
}

// inDir returns the name of a file in the directory. ok is false for files elsewhere.
func inDir(dir, name string) (base string, ok bool) {
	if dir != "" {
		if name, ok = strings.CutPrefix(name, dir+"/"); !ok {
			return "", false
		}
	}
	return name, !strings.Contains(name, "/")
}

// isCheckpoint reports whether the place's file or directory is a checkpoint or a part of one.
func (p *place) isCheckpoint() bool { return isCheckpointFile(p.file) }

// isCheckpointFile reports whether a file, or directory, is a checkpoint or a part of one: not a
// model in one file.
func isCheckpointFile(file string) bool {
	ext := strings.ToLower(path.Ext(file))
	return ext != ".gguf" && ext != ".gqf"
}

// modelFiles lists the files of a model that is no checkpoint: the shards of a .gguf file, or the
// file itself.
func (p *place) modelFiles() []string {
	dir, base := path.Split(p.file)
	names := gguf.Shards(base)
	for i := range names {
		names[i] = dir + names[i]
	}
	return names
}

// smallEndings are the ends of names of configurations, tokenizers, chat templates and texts.
var smallEndings = []string{".json", ".jinja", ".txt", ".model", ".tiktoken", ".md"}

// isSmallFile reports whether a file that is no weight file is copied into the cache.
func isSmallFile(base string, size int64) bool {
	ext := strings.ToLower(path.Ext(base))
	switch {
	case strings.HasPrefix(base, "."), size > files.MaxModelFile && !strings.HasSuffix(base, ".safetensors.index.json"), size > maxIndex:
		return false
	case strings.HasSuffix(base, ".index.json"): // not the indices of .bin and .h5 files
		return strings.HasSuffix(base, ".safetensors.index.json")
	}
	return slices.Contains(smallEndings, ext) || strings.HasPrefix(base, "LICENSE") || strings.HasPrefix(base, "NOTICE")
}

// maxIndex is the greatest size of an index that is read.
const maxIndex = 100_000_000

// weightFiles lists the names of the files with weights in a directory of the place, or of the
// named file. It follows the rules of safetensors.Open for directories.
func (p *place) weightFiles(list []remote.Object, dir string) ([]string, error) {
	var weights, others []string
	index := ""
	if strings.HasSuffix(p.file, ".safetensors.index.json") {
		index = path.Base(p.file)
	} else if p.file != "" && p.file != dir {
		return []string{path.Base(p.file)}, nil
	}
	for _, o := range list {
		base, ok := inDir(dir, o.Name)
		switch {
		case !ok:
		case base == safetensors.IndexName && index == "":
			index = base
		case strings.HasSuffix(base, ".safetensors"):
			weights = append(weights, base)
		case slices.Contains([]string{".gguf", ".gqf", ".bin", ".pth"}, path.Ext(base)):
			others = append(others, base)
		}
	}
	switch {
	case index != "":
		return safetensors.Shards(filepath.Join(p.Dir(), filepath.FromSlash(dir), index))
	case slices.Contains(weights, safetensors.SingleName):
		return []string{safetensors.SingleName}, nil
	case len(weights) == 1:
		return weights, nil
	}
	here := strings.TrimSuffix(p.name, "/")
	switch {
	case len(weights) > 1:
		return nil, fmt.Errorf("%s: there are %d .safetensors files (%s, %s, ...) but neither %s nor %s; name the file to read: %s/%s",
			p.name, len(weights), weights[0], weights[1], safetensors.IndexName, safetensors.SingleName, here, weights[0])
	case len(others) > 0 && !isCheckpointFile(others[0]):
		return nil, fmt.Errorf("%s: there is no .safetensors file; name a file: %s/%s", p.name, here, others[0])
	case len(others) > 0:
		return nil, fmt.Errorf("%s: there is no .safetensors file, but %s: convert it to safetensors: load it in Python, write it with safetensors.torch.save_file", p.name, others[0])
	}
	return nil, fmt.Errorf("%s: there is no .safetensors file", p.name)
}

// find returns the objects of files of a directory. A place that has no list is asked for them.
func (p *place) find(ctx context.Context, dir string, names []string) (objects []remote.Object, err error) {
	var refused *remote.Refusal
	if p.ask != nil {
		if refused, err = p.ask(ctx, names...); err != nil {
			return nil, err
		}
	}
	list, err := p.List(ctx)
	if err != nil {
		return nil, err
	}
	byName := map[string]remote.Object{}
	for _, o := range list {
		byName[o.Name] = o
	}
	for _, name := range names {
		o, ok := byName[path.Join(dir, name)]
		switch {
		case !ok && refused != nil:
			return nil, refused
		case !ok:
			return nil, fmt.Errorf("%s: the file %s is missing", p.name, path.Join(dir, name))
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// hold keeps files of the place in the cache until unlock is called.
func (p *place) hold(ctx context.Context) (unlock func(), err error) {
	return p.Hold(ctx, func() { p.told.Log("%s: another process removes it from the cache: waiting for it", p.name) })
}

// download copies objects that the cache does not have into it, and shows the progress.
func (p *place) download(ctx context.Context, objects []remote.Object) error {
	total, count := int64(0), 0
	for _, o := range objects {
		if p.Cached(o) {
			continue
		}
		if p.fetched == nil {
			p.fetched = map[string]bool{}
		}
		p.fetched[o.Name] = true
		total += p.Missing(o)
		count++
	}
	opts := transfer.Options{Waiting: func(file string) { p.told.Log("%s: another process downloads %s: waiting for it", p.name, file) }}
	if total < logDownload {
		return p.Fetch(ctx, objects, opts)
	}
	p.told.Log("%s: %d files with %.1f MB are downloaded into %s", p.name, count, float64(total)/1e6, p.Dir())
	var end func()
	opts.Progress, end = p.told.Begin(stageDownload, "bytes", total)
	defer end()
	return p.Fetch(ctx, objects, opts)
}

// logDownload is the size in bytes from which a download is a stage of its own.
const logDownload = 32 << 20
