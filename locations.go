package gq

import (
	"context"
	"errors"
	"os"

	"github.com/lowbit-go/gq/internal/job/location"
)

// told tells a package below of the stages.
func (s stages) told() location.Told { return location.Told{Begin: s.begin, Log: s.logf} }

func resolveSource(ctx context.Context, name string, whole bool, s stages) (*location.Source, error) {
	return location.Resolve(ctx, name, whole, s.told())
}

// resolveAll resolves several names, "" to itself: it replaces each name by the path, and returns
// the names for reports. Everything is on this machine until the caller calls release.
func resolveAll(ctx context.Context, s stages, names ...*string) (reported []string, release func(), err error) {
	var sources []*location.Source
	release = func() {
		for _, from := range sources {
			from.Release()
		}
	}
	for _, name := range names {
		from := &location.Source{}
		if *name != "" {
			if from, err = resolveSource(ctx, *name, true, s); err != nil {
				release()
				return nil, nil, err
			}
		}
		sources = append(sources, from)
		reported = append(reported, from.Name)
		*name = from.Path
	}
	return reported, release, nil
}

// newDestination returns the destination of an output of format f. split is the greatest size of a
// shard; 0: none.
func newDestination(name string, f format, split int64) (*location.Destination, error) {
	d, err := location.NewDestination(name, f.isDirectory() || split > 0)
	return d, optionOf(err)
}

func optionOf(err error) error {
	if e, ok := errors.AsType[*location.OptionError](err); ok {
		return &OptionError{e.Option, e.Err}
	}
	return err
}

func isDirectory(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}
