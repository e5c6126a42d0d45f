package gq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lowbit-go/gq/internal/job/location"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/hub"
	"github.com/lowbit-go/gq/internal/remote/mirror"
	"github.com/lowbit-go/gq/internal/remote/transfer"
)

// PullOptions are the options of Pull. The zero value is ready to use.
type PullOptions struct {
	// Revision is the branch, tag or commit of a repository, unless its name states it. Default (""):
	// main.
	Revision string
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress
}

// PullReport describes a model in the cache.
type PullReport struct {
	// Name is the model with its commit, without credentials: every job takes it.
	Name  string       `json:"name"`
	Path  string       `json:"path"` // of the file or directory in the cache
	Files []PulledFile `json:"files"`
	Bytes int64        `json:"bytes"` // of all files
	// FetchedBytes counts the bytes that were not in the cache.
	FetchedBytes int64   `json:"fetched_bytes"`
	Seconds      float64 `json:"seconds"`
}

// PulledFile is a file in the cache.
type PulledFile struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256,omitempty"` // as the place states it, and checked
	Cached bool   `json:"cached"`           // it was in the cache before
}

// Pull copies a model into a cache: the files with weights that jobs read, config.json, tokenizer,
// chat template and model card. Names are hf://org/model[@revision][/file], or org/model alone,
// https://..., s3://bucket/prefix and gs://bucket/prefix. All jobs take these names except the
// short form, and use the files in the cache. A repository of the Hugging Face Hub goes into its
// own cache (HF_HOME). A download that was ended goes on where it was.
func Pull(ctx context.Context, name string, o PullOptions) (*PullReport, error) {
	start := time.Now()
	name, err := location.WithRevision(name, o.Revision)
	if err != nil {
		return nil, optionOf(err)
	}
	f, err := location.Fetch(ctx, name, stages{to: o.Progress}.told())
	if err != nil {
		return nil, err
	}
	r := &PullReport{Name: f.Name, Path: f.Path, Files: []PulledFile{}}
	for _, o := range f.Files {
		r.Files = append(r.Files, PulledFile{Name: o.Name, Bytes: o.Size, SHA256: o.SHA256, Cached: !f.Fetched[o.Name]})
		if r.Bytes += o.Size; f.Fetched[o.Name] {
			r.FetchedBytes += o.Size
		}
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// CacheReport lists the models in the caches: repositories in the cache of the Hugging Face Hub,
// and copies of other remote places.
type CacheReport struct {
	Dir     string            `json:"dir"` // of the Hugging Face cache
	Models  []hub.CachedModel `json:"models"`
	Sources []mirror.Copy     `json:"sources"`
}

// ListCache lists the models in the caches.
func ListCache() (*CacheReport, error) {
	set, err := hub.FromEnvironment()
	if err != nil {
		return nil, err
	}
	r := &CacheReport{Dir: set.Cache, Models: []hub.CachedModel{}, Sources: []mirror.Copy{}}
	models, err := hub.Scan(set.Cache)
	if err != nil {
		return nil, err
	}
	sources, err := mirror.Scan()
	r.Models, r.Sources = append(r.Models, models...), append(r.Sources, sources...)
	return r, err
}

// PruneReport says what PruneCache removed.
type PruneReport struct {
	RemovedBytes int64 `json:"removed_bytes"`
	// InUse are models that running jobs use: nothing of them was removed.
	InUse []string `json:"in_use"`
}

// PruneCache removes from the Hugging Face cache what no branch or tag needs: commits that none of
// them was at when it was last asked for, and downloads that were ended. With names it removes all
// that the caches have of these. Models that a running job uses stay, and the report has their
// names; with names they are an error.
func PruneCache(names ...string) (*PruneReport, error) {
	c, err := ListCache()
	if err != nil {
		return nil, err
	}
	r := &PruneReport{InUse: []string{}}
	unknown := map[string]bool{}
	for i, name := range names {
		names[i] = strings.TrimSuffix(strings.TrimPrefix(remote.Redact(name), "hf://"), "/")
		unknown[names[i]] = true
	}
	for i := range c.Models {
		m := &c.Models[i]
		if len(names) > 0 && !slices.Contains(names, m.Repo) {
			continue
		}
		delete(unknown, m.Repo)
		n, err := m.Prune(len(names) > 0)
		if r.RemovedBytes += n; errors.Is(err, transfer.ErrInUse) {
			r.InUse = append(r.InUse, m.Repo)
		} else if err != nil {
			return r, err
		}
	}
	for i := range c.Sources {
		s := &c.Sources[i]
		location := strings.TrimSuffix(s.Location, "/")
		if !slices.Contains(names, location) {
			continue
		}
		delete(unknown, location)
		err := s.Remove()
		if errors.Is(err, transfer.ErrInUse) {
			r.InUse = append(r.InUse, location)
			continue
		}
		if err != nil {
			return r, err
		}
		r.RemovedBytes += s.Bytes
	}
	for _, name := range names {
		if unknown[name] {
			return r, optionf("", "%s is not in the caches: gq pull --list shows what is", name)
		}
	}
	if len(names) > 0 && len(r.InUse) > 0 {
		return r, fmt.Errorf("%s: %w", r.InUse[0], transfer.ErrInUse)
	}
	return r, nil
}
