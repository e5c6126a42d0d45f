package gq

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/hub"
	"github.com/lowbit-go/gq/internal/remote/mirror"
	"github.com/lowbit-go/gq/internal/remote/s3"
	"github.com/lowbit-go/gq/internal/remote/transfer"
	"github.com/lowbit-go/gq/internal/remote/web"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// A cachedStore is a remote store whose files a local directory keeps.
type cachedStore interface {
	remote.Store
	// Dir is the directory on this machine.
	Dir() string
	Cached(o remote.Object) bool
	// Missing is how many bytes of the object Fetch would fetch.
	Missing(o remote.Object) int64
	Fetch(ctx context.Context, objects []remote.Object, o transfer.Options) error
	// Hold keeps PruneCache, in any process, from removing the files until unlock is called. It waits
	// while PruneCache removes them, and calls waiting then.
	Hold(ctx context.Context, waiting func()) (unlock func(), err error)
}

// A place is the file or directory that a remote name leads to.
type place struct {
	cachedStore
	name string // for reports
	file string // the file or directory in the store that is meant; "": all of it
	// alone: file is one file, of whatever kind, and no other file is wanted.
	alone bool
	// ask asks for files that List does not have yet. nil: List has all.
	ask func(ctx context.Context, names ...string) (*remote.Refusal, error)
	// forget removes files from the cache that the place no longer has. nil: the cache is by commits.
	forget func(ctx context.Context, gone func(name string) bool) error
	// asked are the names that ask was called with. A file among them that List lacks is not there.
	asked map[string]bool
	// fetched are the files that were not in the cache.
	fetched map[string]bool
}

// openPlace opens the place that a remote name leads to. alone: the name must be one of a file, of
// whatever kind; otherwise its ending decides whether it is.
func openPlace(ctx context.Context, name string, alone bool, s stages) (*place, error) {
	l, err := remote.Parse(name)
	if err != nil {
		return nil, err
	}
	client := remote.NewClient()
	client.Log = func(line string) { s.logf("%s", line) }
	if l.Scheme == "hf" {
		set, err := hub.FromEnvironment()
		if err != nil {
			return nil, err
		}
		h, err := hub.Open(ctx, l, set, client)
		if err != nil {
			return nil, err
		}
		p := &place{cachedStore: h, name: h.String(), file: h.File(), alone: alone}
		return p, p.checkAlone()
	}
	dir, file := l.SplitFile()
	if alone {
		dir, file = l.Split()
	}
	p := &place{name: l.String(), file: file, alone: alone}
	if err := p.checkAlone(); err != nil {
		return nil, err
	}
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

// checkAlone refuses a directory where one file is wanted.
func (p *place) checkAlone() error {
	if p.alone && p.file == "" {
		return fmt.Errorf("%s: the job takes one file: name it: %s/FILE", p.name, strings.TrimRight(p.name, "/"))
	}
	return nil
}

// askUsual asks for the files that a checkpoint usually has, or for the named file and the small ones
// beside it.
func (p *place) askUsual(ctx context.Context) error {
	names := append([]string{"config.json"}, conversion.AssetFiles()...)
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
