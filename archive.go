package gq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lowbit-go/gq/formats/seekable"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/remote"
)

// ArchiveEnding is the ending of an archive's name.
const ArchiveEnding = ".zst"

// ArchiveOptions are the options of Archive and Extract. The zero value is ready to use.
type ArchiveOptions struct {
	// Threads is how many workers run, at most 8. Default (0): GOMAXPROCS, but 6 for a remote archive,
	// as each worker fetches frames. No byte depends on it.
	Threads int
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress
}

// ArchiveReport is the result of Archive and Extract.
type ArchiveReport struct {
	Output       string `json:"output"`
	ContentBytes int64  `json:"content_bytes"` // of the file that is archived or restored
	ArchiveBytes int64  `json:"archive_bytes"`
	Frames       int    `json:"frames"`
	// Verified reports whether the checksums of a .gqf file were checked. Other files have none of
	// their own.
	Verified bool    `json:"verified"`
	Seconds  float64 `json:"seconds"`
}

// Archive compresses the file src for transport: dst is a zstd file of frames that can be decompressed
// one by one (formats/seekable). src may be any file, or the remote name of one, which is copied into the
// cache. Archive refuses a damaged .gqf file. dst, a path or an object of a store, appears when it is
// complete. Default of dst (""): src with the ending .zst, in the working directory if src is remote.
func Archive(ctx context.Context, src, dst string, o ArchiveOptions) (*ArchiveReport, error) {
	if dst == "" {
		base, err := outputBase(src)
		if err != nil {
			return nil, err
		}
		dst = base + ArchiveEnding
	}
	return o.run(ctx, src, dst, "the archive", true, func(from *source, path string) (*ArchiveReport, error) {
		return archive(ctx, from, path, o)
	})
}

// outputBase is the path from which the name of an output follows if the caller names none: src, or for
// a remote name the name of its file, in the working directory.
func outputBase(src string) (string, error) {
	if !remote.IsRemote(src) {
		return src, nil
	}
	l, err := remote.Parse(src)
	if err != nil {
		return "", err
	}
	_, base := l.Split()
	if base == "" || !filepath.IsLocal(base) || strings.ContainsAny(base, `/\:`) {
		return "", optionf("output", "is needed: no name for the output follows from %s", l)
	}
	return base, nil
}

// run finds the source, calls write with it and the path of the output, and brings the file to its store
// if dst is a remote name. whole: the source is read more than once.
func (o *ArchiveOptions) run(ctx context.Context, src, dst, noun string, whole bool, write func(from *source, path string) (*ArchiveReport, error)) (*ArchiveReport, error) {
	start := time.Now()
	if o.Threads < 0 {
		return nil, optionf("threads", "%d: at least 1", o.Threads)
	}
	to, err := newDestination(dst, "", 0)
	if err != nil {
		return nil, err
	}
	if err := checkOutput(remote.Redact(src), to.Name, noun); err != nil {
		return nil, err
	}
	if err := to.open(ctx, false); err != nil {
		return nil, err
	}
	defer to.close()
	if err := atomicfile.Check(to.Path); err != nil {
		return nil, err
	}
	s := stages{to: o.Progress}
	from, err := resolveFile(ctx, src, whole, s)
	if err != nil {
		return nil, err
	}
	defer from.release()
	if err := checkOutput(from.Path, to.Name, noun); err != nil {
		return nil, err
	}
	r, err := write(from, to.Path)
	if err != nil {
		return nil, err
	}
	r.Output = to.Name
	err = to.upload(ctx, s)
	r.Seconds = time.Since(start).Seconds()
	return r, err
}

// checkOutput refuses an output that would replace the source.
func checkOutput(src, dst, noun string) error {
	var s files.Set
	s.Input("the source", src)
	s.Output("output", noun, dst)
	return collisions(&s)
}

func archive(ctx context.Context, from *source, dst string, o ArchiveOptions) (*ArchiveReport, error) {
	src := from.Path
	in, before, err := files.Open(src)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if err := seekable.CheckSize(before.Size()); err != nil {
		return nil, fmt.Errorf("%s: %w", from.Name, err)
	}
	r := &ArchiveReport{Output: dst, ContentBytes: before.Size(), Frames: seekable.Frames(before.Size())}
	if r.Verified, err = o.verify(ctx, src, from.Name); err != nil {
		return nil, err
	}
	out, err := atomicfile.Create(dst)
	if err != nil {
		return nil, err
	}
	defer out.Abort()
	add, end := stages{to: o.Progress}.begin("archiving", "bytes", r.ContentBytes)
	defer end()
	r.ArchiveBytes, err = seekable.Compress(ctx, io.NewOffsetWriter(out, 0), in, r.ContentBytes, seekable.Options{Threads: o.Threads, Progress: add})
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = changed(from.Name)
		}
		return nil, err
	}
	if after, err := os.Stat(src); err != nil || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return nil, changed(from.Name)
	}
	return r, out.Commit()
}

// changed is the error for a file that another program has changed.
func changed(file string) error {
	return fmt.Errorf("%s was changed while it was read: run the job again", file)
}

// Extract restores the file that was archived. All checksums are checked before it appears at dst: the
// archive's, and the .gqf file's own. src may be a remote name: the archive is then streamed, unless it is
// in the cache. Default of dst (""): src without its ending .zst, in the working directory if src is
// remote.
func Extract(ctx context.Context, src, dst string, o ArchiveOptions) (*ArchiveReport, error) {
	if dst == "" {
		base, err := outputBase(src)
		if err != nil {
			return nil, err
		}
		name, ok := strings.CutSuffix(base, ArchiveEnding)
		if !ok || filepath.Base(base) == ArchiveEnding {
			return nil, optionf("output", "is needed: the archive's name %s does not end in %s", filepath.Base(base), ArchiveEnding)
		}
		dst = name
	}
	return o.run(ctx, src, dst, "the extracted file", false, func(from *source, path string) (*ArchiveReport, error) {
		return extract(ctx, from, path, o)
	})
}

// streamedFrames is how many frames of a remote archive are fetched at once.
const streamedFrames = 6

func extract(ctx context.Context, from *source, dst string, o ArchiveOptions) (*ArchiveReport, error) {
	in, err := from.openFile(ctx)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	a, err := seekable.Open(in, in.Size, from.Name)
	if err != nil {
		return nil, err
	}
	r := &ArchiveReport{Output: dst, ContentBytes: a.Size(), ArchiveBytes: in.Size, Frames: a.Frames()}
	threads := o.Threads
	if from.streams() && threads == 0 {
		threads = streamedFrames
	}
	out, err := createFor(dst, a.Size())
	if err != nil {
		return nil, err
	}
	defer out.Abort()
	add, end := stages{to: o.Progress}.begin("extracting", "bytes", r.ContentBytes)
	err = a.Decompress(ctx, out, seekable.Options{Threads: threads, Progress: add})
	end()
	if err != nil {
		return nil, err
	}
	if r.Verified, err = o.verify(ctx, out.Temp(), dst); err != nil {
		return nil, fmt.Errorf("%s: the archive is intact, its content is not: %w", from.Name, err)
	}
	return r, out.Commit()
}

// createFor begins a file of size bytes at path, if there is room for it.
func createFor(path string, size int64) (*atomicfile.File, error) {
	if err := atomicfile.Check(path); err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	free, err := atomicfile.FreeSpace(dir)
	if err != nil {
		return nil, err
	}
	if free < size {
		return nil, fmt.Errorf("%s: the file needs %d bytes, %s has %d free: free some space or choose another place with -o", path, size, dir, free)
	}
	out, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	if err := out.Truncate(size); err != nil {
		out.Abort()
		return nil, err
	}
	return out, nil
}

// verify checks the checksums of the file at path, which errors call name, if it is a .gqf file.
func (o ArchiveOptions) verify(ctx context.Context, path, name string) (bool, error) {
	if kind, err := files.KindOf(path); err != nil || kind != files.GQF {
		return false, err
	}
	r, err := Verify(ctx, path, VerifyOptions{Fast: true, Threads: o.Threads, Progress: o.Progress})
	if err != nil {
		return false, err
	}
	if !r.OK() {
		return false, fmt.Errorf("%s is damaged: %s; gq verify lists all damage", name, r.Damage[0])
	}
	return true, nil
}
