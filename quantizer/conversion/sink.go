package conversion

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/quantizer"
)

// A Sink takes a file that is not in the file system. Each byte is written once, from several goroutines.
// Unlike a file it cannot be read before Commit.
type Sink interface {
	io.WriterAt
	// Commit makes the file appear.
	Commit() error
	// Abort leaves the former output in place. It does nothing after Commit.
	Abort()
}

// CanStream reports whether WriteTo can write the output: a .gqf file. Other outputs are read back before
// they appear.
func (p *Plan) CanStream() bool {
	_, ok := p.out.(*gqfOutput)
	return ok
}

// WriteTo writes the .gqf file to the sink that create returns for a file of size bytes, in which gaps
// are not written and read as zeros. name is the name of the file in the report. c is as
// WriteOptions.Codes. Data come in the order of the file but for the workers' differences; the front
// comes last.
func (p *Plan) WriteTo(ctx context.Context, name string, o WriteOptions, create func(size int64, gaps iter.Seq2[int64, int64]) (Sink, error)) (*Report, error) {
	start := time.Now()
	var set files.Set
	p.in.listFiles(&set)
	set.Output("output", p.out.noun(), name)
	if err := set.Check(); err != nil {
		return nil, quantizer.Requestf("%w", err)
	}
	j, err := p.newJob(ctx, o.Codes)
	if err != nil {
		return nil, err
	}
	j.reuse = o.Reuse
	t, ok := j.target.(*gqfTarget)
	if !ok {
		return nil, quantizer.Requestf("%s cannot be written to %s at once: write it to a file first", p.out.noun(), name)
	}
	sink, err := create(j.size, t.image.Gaps())
	if err != nil {
		return nil, err
	}
	defer sink.Abort()
	t.stream = t.image.NewStream(sink)
	j.out = []io.WriterAt{t.stream}
	if err := j.fill(ctx); err != nil {
		return nil, err
	}
	if err := sink.Commit(); err != nil {
		return nil, err
	}
	return j.report(name, time.Since(start)), nil
}
