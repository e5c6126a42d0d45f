package safetensors

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"

	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/internal/mmap"
)

// A RemoteFile is a file with weights outside of the checkpoint's directory, read by range.
type RemoteFile struct {
	Name string // without directory, in the index's spelling
	Path string // its name in errors. Default (""): Name in the checkpoint's directory
	Size int64  // in bytes
	// Version identifies the content, as an HTTP server's ETag does.
	Version string
	// ReadAt fills dst with the bytes from off on, or fails. ReadAt repeats requests that failed for a
	// passing reason, and fails if the file has another version now. Several goroutines call ReadAt.
	ReadAt func(ctx context.Context, dst []byte, off int64) error
	// Check, in Checkpoint.Unchanged, compares ReadAt's bytes with a hash. Default (nil): nothing.
	Check func(ctx context.Context) error
	// Unverified: no hash of the file is known. Files reports this.
	Unverified bool
}

// firstHeader is how many bytes of a remote file are read at first: the headers of most files are
// shorter. A header of DeepSeek-V3 has 85 kB. A mixture of 384 experts in 62 files has 350 kB in
// each.
const firstHeader = 256 << 10

func (o *Options) remoteFile(name string) *RemoteFile {
	for i := range o.Remote {
		if o.Remote[i].Name == name {
			return &o.Remote[i]
		}
	}
	return nil
}

func (o *Options) checkRemote() error {
	seen := map[string]bool{}
	for _, f := range o.Remote {
		switch {
		case !plainName(f.Name) || seen[f.Name]:
			return fmt.Errorf("safetensors: the remote file %s has no plain name, or is named twice", quote(f.Name))
		case f.Size < 0 || f.ReadAt == nil:
			return fmt.Errorf("safetensors: the remote file %s has no size or cannot be read", quote(f.Name))
		}
		seen[f.Name] = true
	}
	return nil
}

func (c *Checkpoint) addRemote(f *RemoteFile) error {
	path := f.Path
	if path == "" {
		path = filepath.Join(c.dir, f.Name)
	}
	r, err := mmap.Reserve(path, f.Size)
	if err != nil {
		return err
	}
	if c.remote == nil {
		c.remote = newResident()
		c.restore = memlimit.Outside(ReadAheadBytes)
	}
	c.remote.files[len(c.maps)] = remoteRegion{f, r}
	c.maps, c.stats = append(c.maps, r.File), append(c.stats, nil)
	return nil
}

// Remote reports whether some files are remote: their data are read inside [Checkpoint.Fetch] or
// [ReadAhead.Wait] only.
func (c *Checkpoint) Remote() bool { return c.remote != nil }

// fetchHeaders calls load for each file in order, while the header of the file is present. Headers
// of later files are on their way.
func (c *Checkpoint) fetchHeaders(load func(file int) error) error {
	ahead := c.ReadAhead(c.context, len(c.maps), func(i int, list []Range) []Range {
		return append(list, Range{File: i, Size: firstHeader})
	})
	defer ahead.Close()
	for i := range c.maps {
		if err := ahead.Wait(i); err != nil {
			return err
		}
		release, err := c.fetchHeader(i)
		if err == nil {
			err = load(i)
			release()
		}
		if err != nil {
			return err
		}
		ahead.Done(i)
	}
	return nil
}

// fetchHeader fetches a header beyond its first bytes. The first bytes are present.
func (c *Checkpoint) fetchHeader(file int) (release func(), err error) {
	b, n := c.maps[file].Bytes(), int64(0)
	if _, remote := c.remoteFile(file); remote && len(b) >= headerStart {
		err = c.Guard(func() error { n = int64(min(binary.LittleEndian.Uint64(b), 1<<62)); return nil })
	}
	// Too long: load says so.
	if err != nil || n > min(c.maxHeader, int64(len(b))-headerStart) || headerStart+n <= firstHeader {
		return func() {}, err
	}
	return c.Fetch(c.context, Range{File: file, Size: headerStart + n})
}

func (c *Checkpoint) remoteFile(file int) (remoteRegion, bool) {
	if c.remote == nil {
		return remoteRegion{}, false
	}
	r, ok := c.remote.files[file]
	return r, ok
}

// Context ends what methods without a context fetch of remote files.
func (c *Checkpoint) Context() context.Context { return c.context }

// fetch makes ranges readable until release is called.
func (c *Checkpoint) fetch(ranges []Range) (release func(), err error) {
	return c.Fetch(c.context, ranges...)
}
