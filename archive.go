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
)

// ArchiveEnding is the ending of an archive's name.
const ArchiveEnding = ".zst"

// ArchiveOptions are the options of Archive and Extract. The zero value is ready to use.
type ArchiveOptions struct {
	// Threads is how many workers run, at most 8. Default (0): GOMAXPROCS. No byte depends on it.
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
// one by one (formats/seekable). src may be any file. Archive refuses a damaged .gqf file. dst
// appears when it is complete. Default of dst (""): src with the ending .zst.
func Archive(ctx context.Context, src, dst string, o ArchiveOptions) (*ArchiveReport, error) {
	if dst == "" {
		dst = src + ArchiveEnding
	}
	return o.writeTo(ctx, dst, func(path string) (*ArchiveReport, error) { return archive(ctx, src, path, o) })
}

// writeTo calls write with the path of the output, and brings the file to its store if dst is a remote name.
func (o *ArchiveOptions) writeTo(ctx context.Context, dst string, write func(path string) (*ArchiveReport, error)) (*ArchiveReport, error) {
	to, err := newDestination(dst, "", 0)
	if err != nil {
		return nil, err
	}
	if err := to.open(ctx, false); err != nil {
		return nil, err
	}
	defer to.close()
	r, err := write(to.Path)
	if err != nil {
		return nil, err
	}
	r.Output = to.Name
	return r, to.upload(ctx, stages{to: o.Progress})
}

func archive(ctx context.Context, src, dst string, o ArchiveOptions) (*ArchiveReport, error) {
	if err := o.check(src, dst, "the archive"); err != nil {
		return nil, err
	}
	start := time.Now()
	in, before, err := files.Open(src)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if err := seekable.CheckSize(before.Size()); err != nil {
		return nil, fmt.Errorf("%s: %w", src, err)
	}
	r := &ArchiveReport{Output: dst, ContentBytes: before.Size(), Frames: seekable.Frames(before.Size())}
	if r.Verified, err = o.verify(ctx, src, src); err != nil {
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
			err = changed(src)
		}
		return nil, err
	}
	if after, err := os.Stat(src); err != nil || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return nil, changed(src)
	}
	if err := out.Commit(); err != nil {
		return nil, err
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// changed is the error for a file that another program has changed.
func changed(file string) error {
	return fmt.Errorf("%s was changed while it was read: run the job again", file)
}

// Extract restores the file that was archived. All checksums are checked before it appears at dst: the
// archive's, and the .gqf file's own. Default of dst (""): src without its ending .zst.
func Extract(ctx context.Context, src, dst string, o ArchiveOptions) (*ArchiveReport, error) {
	if dst == "" {
		name, ok := strings.CutSuffix(src, ArchiveEnding)
		if !ok || filepath.Base(src) == ArchiveEnding {
			return nil, optionf("output", "the archive's name %s does not end in %s: name the file to write", filepath.Base(src), ArchiveEnding)
		}
		dst = name
	}
	return o.writeTo(ctx, dst, func(path string) (*ArchiveReport, error) { return extract(ctx, src, path, o) })
}

func extract(ctx context.Context, src, dst string, o ArchiveOptions) (*ArchiveReport, error) {
	if err := o.check(src, dst, "the extracted file"); err != nil {
		return nil, err
	}
	start := time.Now()
	in, st, err := files.Open(src)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	a, err := seekable.Open(in, st.Size(), src)
	if err != nil {
		return nil, err
	}
	r := &ArchiveReport{Output: dst, ContentBytes: a.Size(), ArchiveBytes: st.Size(), Frames: a.Frames()}
	out, err := createFor(dst, a.Size())
	if err != nil {
		return nil, err
	}
	defer out.Abort()
	add, end := stages{to: o.Progress}.begin("extracting", "bytes", r.ContentBytes)
	err = a.Decompress(ctx, out, seekable.Options{Threads: o.Threads, Progress: add})
	end()
	if err != nil {
		return nil, err
	}
	if r.Verified, err = o.verify(ctx, out.Temp(), dst); err != nil {
		return nil, fmt.Errorf("%s: the archive is intact, its content is not: %w", src, err)
	}
	if err := out.Commit(); err != nil {
		return nil, err
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
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

func (o ArchiveOptions) check(src, dst, noun string) error {
	if o.Threads < 0 {
		return optionf("threads", "%d: at least 1", o.Threads)
	}
	var s files.Set
	s.Input("the source", src)
	s.Output("output", noun, dst)
	return collisions(&s)
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
