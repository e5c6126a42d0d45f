package location

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/hub"
	"github.com/lowbit-go/gq/internal/remote/mirror"
	"github.com/lowbit-go/gq/internal/remote/s3"
	"github.com/lowbit-go/gq/internal/remote/transfer"
	"github.com/lowbit-go/gq/internal/remote/web"
)

// A Destination is where the output of a job goes: a path, or an object of a store.
type Destination struct {
	// Name is the output as the caller names it: a path, or a remote name without credentials.
	Name string
	// Path is the path; for an object a path on this machine, for what must be read before it is
	// uploaded and for working directories. It does not change from one run of a job to the next.
	Path string

	bucket *s3.Bucket // nil: a path
}

// NewDestination returns the destination of an output. several says that the output is more than
// one file. A name that cannot be used is a *OptionError.
func NewDestination(name string, several bool) (*Destination, error) {
	if !remote.IsRemote(name) {
		return &Destination{Name: name, Path: name}, nil
	}
	if scheme, _, _ := strings.Cut(name, "://"); !strings.EqualFold(scheme, "s3") && !strings.EqualFold(scheme, "gs") {
		return nil, optionf("output", "%s:// is not supported for outputs: outputs go to paths, s3:// and gs://", scheme)
	}
	l, err := remote.Parse(name)
	if err != nil {
		return nil, &OptionError{"output", err}
	}
	d := &Destination{Name: l.String()}
	base := path.Base(l.Path)
	switch {
	case l.Path == "" || l.Path[len(l.Path)-1] == '/':
		return nil, optionf("output", "%s: name the object, not the prefix that it is to have: %s/model.gqf", d.Name, strings.TrimRight(d.Name, "/"))
	case several:
		return nil, optionf("output", "%s: a store takes one file, and the job writes several: write them to a directory, and copy that", d.Name)
	case !filepath.IsLocal(base):
		return nil, optionf("output", "%s: %q cannot be the name of a file", d.Name, base)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("%s: there is no directory for gq's cache: set XDG_CACHE_HOME (%w)", d.Name, err)
	}
	sum := sha256.Sum256([]byte(d.Name))
	d.Path = filepath.Join(cache, "gq", "outputs", hex.EncodeToString(sum[:8]), base)
	d.bucket, err = s3.Open(l, remote.NewClient())
	return d, err
}

// Open checks that the store lets the output be written, before any work. dry: the job writes
// nothing.
func (d *Destination) Open(ctx context.Context, dry bool) error {
	if d.bucket == nil {
		return nil
	}
	if !dry {
		if err := d.bucket.Check(ctx); err != nil {
			return err
		}
	}
	return os.MkdirAll(filepath.Dir(d.Path), 0o700)
}

// Close removes the directory of Path, unless it holds work that the next run goes on from.
func (d *Destination) Close() {
	if d.bucket != nil {
		_ = os.Remove(filepath.Dir(d.Path))
	}
}

// streams reports whether the output goes to its store while it is made. check: it is read before
// it appears.
func (d *Destination) streams(p *write.Job, check bool) bool {
	return d.bucket != nil && !check && p.CanStream()
}

// CheckOutput is Job.CheckOutput.
func (d *Destination) CheckOutput(p *write.Job, check bool) error {
	if d.streams(p, check) {
		return nil
	}
	return p.CheckOutput(d.Path)
}

// Write runs the plan and puts its output at the destination. end ends the stage of writing.
func (d *Destination) Write(ctx context.Context, p *write.Job, o write.Options, t Told, end func()) (*write.Report, error) {
	switch {
	case d.bucket == nil:
		return p.WriteWith(ctx, d.Path, o)
	case d.streams(p, o.Check != nil):
		return p.WriteTo(ctx, d.Name, o, func(size int64, gaps iter.Seq2[int64, int64]) (write.Sink, error) {
			if err := d.bucket.AbortUnfinished(ctx); err != nil {
				return nil, err
			}
			return d.bucket.Create(ctx, size, gaps)
		})
	}
	r, err := p.WriteWith(ctx, d.Path, o)
	if err != nil {
		return nil, err
	}
	end()
	r.Output = d.Name
	return r, d.upload(ctx, t)
}

// stageUpload is the stage of upload.
const stageUpload = "uploading"

// upload moves the file at Path to the store, if there is a store. After an error the file stays.
func (d *Destination) upload(ctx context.Context, t Told) error {
	if d.bucket == nil {
		return nil
	}
	f, err := os.Open(d.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	add, end := t.Begin(stageUpload, "bytes", st.Size())
	defer end()
	if err := d.bucket.PutStream(ctx, counted{f, add}, st.Size()); err != nil {
		return err
	}
	return os.Remove(d.Path)
}

type counted struct {
	io.Reader
	add func(n int64)
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.add(int64(n))
	return n, err
}

// A cachedStore is a remote store with a local directory for its files.
type cachedStore interface {
	remote.Store
	// Dir is the directory on this machine.
	Dir() string
	Cached(o remote.Object) bool
	// Missing is how many bytes of the object Fetch would fetch.
	Missing(o remote.Object) int64
	Fetch(ctx context.Context, objects []remote.Object, o transfer.Options) error
	// Hold keeps PruneCache of any process from removing the files until unlock is called. It waits
	// while it removes them, and calls waiting then.
	Hold(ctx context.Context, waiting func()) (unlock func(), err error)
}

// A place is the file or directory that a remote name leads to.
type place struct {
	cachedStore
	told Told
	name string // for reports
	file string // the file or directory in the store that is meant; "": all of it
	// ask asks for files that List does not have yet. nil: List has all.
	ask func(ctx context.Context, names ...string) (*remote.Refusal, error)
	// forget removes files from the cache that the place no longer has. nil: the cache is by commits.
	forget func(ctx context.Context, gone func(name string) bool) error
	// asked are the names that ask was called with. A file among them that List lacks is not there.
	asked map[string]bool
	// fetched are the files that were not in the cache.
	fetched map[string]bool
}

// openPlace opens the place that a remote name leads to. The ending decides whether it is a file.
func openPlace(ctx context.Context, name string, t Told) (*place, error) {
	l, err := remote.Parse(name)
	if err != nil {
		return nil, err
	}
	client := remote.NewClient()
	client.Log = func(line string) { t.Log("%s", line) }
	if l.Scheme == "hf" {
		set, err := hub.FromEnvironment()
		if err != nil {
			return nil, err
		}
		h, err := hub.Open(ctx, l, set, client)
		if err != nil {
			return nil, err
		}
		return &place{cachedStore: h, told: t, name: h.String(), file: h.File()}, nil
	}
	dir, file := l.SplitFile()
	p := &place{told: t, name: l.String(), file: file}
	var store remote.Store
	switch l.Scheme {
	case "https", "http":
		w := web.Open(dir, client)
		store, p.ask = w, w.Add
	default:
		if store, err = s3.Open(dir, client); err != nil {
			return nil, err
		}
	}
	m, err := mirror.Of(store, dir)
	if err != nil {
		return nil, err
	}
	p.cachedStore, p.forget = m, m.Forget
	if p.ask != nil {
		return p, p.askUsual(ctx)
	}
	return p, nil
}

// askUsual asks for the files that a checkpoint usually has, or for the named file and the small
// files in its directory.
func (p *place) askUsual(ctx context.Context) error {
	names := append([]string{"config.json"}, assets.AssetFiles()...)
	names = append(names, hfquant.ConfigFiles()...)
	switch {
	case !p.isCheckpoint():
		names = p.modelFiles()
	case p.file != "":
		names = append(names, p.file)
	default:
		names = append(names, safetensors.IndexName, safetensors.SingleName)
	}
	p.asked = map[string]bool{}
	for _, name := range names {
		p.asked[name] = true
	}
	refused, err := p.ask(ctx, names...)
	if err != nil {
		return err
	}
	list, err := p.List(ctx)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s: there is no file of a model", p.name)
		if refused != nil {
			err = errors.New(refused.Error())
		}
	}
	return err
}
