package location

import (
	"context"
	"errors"
	"fmt"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/hub"
	"github.com/lowbit-go/gq/internal/remote/mirror"
	"github.com/lowbit-go/gq/internal/remote/s3"
	"github.com/lowbit-go/gq/internal/remote/transfer"
	"github.com/lowbit-go/gq/internal/remote/web"
)

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
