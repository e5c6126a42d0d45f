package gq

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"time"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/workdir"
)

// Entries of the working directory have these prefixes before the name of the recipe.
const (
	madePrefix     = "made-"
	measuredPrefix = "measured-"
)

type madeFile struct {
	SHA256           string   `json:"sha256"`
	Bytes            int64    `json:"bytes"`
	BitsPerWeight    float64  `json:"bits_per_weight"`
	AllBitsPerWeight float64  `json:"all_bits_per_weight"`
	SourceBytes      int64    `json:"source_bytes"`
	Seconds          float64  `json:"seconds"`
	Warnings         []string `json:"warnings"`
}

type measuredFile struct {
	Report  *accuracy.Report `json:"report"`
	Seconds float64          `json:"seconds"`
}

// file makes and measures the file of recipe i, as far as an earlier job has not.
func (s *sweep) file(i int, to *accuracy.SweepReport) (*accuracy.SweepFile, error) {
	path, err := s.output(i)
	if err != nil {
		return nil, err
	}
	made, found, err := s.made(i, path)
	if err != nil {
		return nil, err
	}
	measured, known, err := s.measured(i, path, made)
	if err != nil {
		return nil, err
	}
	r := &accuracy.SweepFile{Name: s.o.Recipes[i].Name, Recipe: s.recipes[i], Found: found && known}
	if r.Found {
		s.logf("found %s, made and measured by an earlier sweep", path)
	}
	if s.o.Output == "" {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	} else {
		r.File = path
	}
	to.SourceBytes = made.SourceBytes
	r.FileBytes, r.SHA256, r.BitsPerWeight, r.AllBitsPerWeight = made.Bytes, made.SHA256, made.BitsPerWeight, made.AllBitsPerWeight
	r.QuantizeSeconds, r.MeasureSeconds = made.Seconds, measured.Seconds
	r.Warnings = append(append(r.Warnings, made.Warnings...), measured.Report.Notes...)
	for _, t := range measured.Report.Scored() {
		if s.o.Measure.Reference == "" {
			t.Text.Reference = "" // in the working directory, which is removed
		}
		r.Texts = append(r.Texts, *t)
	}
	r.Choices, r.Gate = measured.Report.Choices, measured.Report.Gate
	return r, nil
}

// made quantizes the file of recipe i, or finds it as an earlier sweep made it. Without an output
// directory the figures of the file are enough.
func (s *sweep) made(i int, path string) (made *madeFile, found bool, err error) {
	recipe, entry := &s.o.Recipes[i], madePrefix+s.o.Recipes[i].Name
	if s.work.GetJSON(entry, s.keys[i], &made) && made != nil {
		_, measured, err := s.figures(i, made)
		if err != nil || measured != nil && s.o.Output == "" {
			return made, true, err
		}
		size, hash, err := workdir.SHA256(s.ctx, path)
		if s.ctx.Err() != nil {
			return nil, false, s.ctx.Err()
		}
		if err == nil && size == made.Bytes && hash == made.SHA256 {
			return made, true, nil
		}
	}
	// a model that cannot be run is an error before the work
	if err := s.openReferences(); err != nil {
		return nil, false, err
	}
	r, err := quantize(s.ctx, s.src, path, task{shared: s.work, o: QuantizeOptions{
		Recipe: recipe.Recipe, RecipeFile: recipe.File, Threads: s.o.Measure.Threads, Progress: s.o.Measure.Progress,
	}})
	if err != nil {
		return nil, false, err
	}
	made = &madeFile{BitsPerWeight: r.BitsPerWeight, AllBitsPerWeight: r.AllBitsPerWeight, SourceBytes: r.SourceBytes, Seconds: r.Seconds, Warnings: r.Warnings}
	if made.Bytes, made.SHA256, err = workdir.SHA256(s.ctx, path); err != nil {
		return nil, false, err
	}
	return made, false, s.work.PutJSON(entry, s.keys[i], made)
}

// openReferences runs the float model on the texts, unless its predictions are kept already.
func (s *sweep) openReferences() error {
	if s.references != nil {
		return nil
	}
	dir := s.o.Measure.Reference
	if dir == "" {
		var err error
		if dir, err = s.work.Loose("references"); err != nil {
			return err
		}
	}
	store := references{dir: dir, src: s.src, version: s.o.Measure.Version, threads: s.o.Measure.Threads}
	done, err := store.open(s.ctx, s.job.Texts, s.stages)
	s.references = done
	return err
}

// measured measures the file of recipe i, or finds its figures as an earlier sweep measured them.
func (s *sweep) measured(i int, path string, made *madeFile) (measured *measuredFile, found bool, err error) {
	key, measured, err := s.figures(i, made)
	if err != nil || measured != nil {
		return measured, true, err
	}
	if err := s.openReferences(); err != nil {
		return nil, false, err
	}
	start := time.Now()
	j := *s.job
	j.File, j.Name = path, filepath.Base(path)
	r, err := s.o.Measure.run(s.ctx, &j, s.stages)
	if err != nil {
		return nil, false, err
	}
	if r.NoModel != "" {
		r.Notes = append(r.Notes, "the model was not run: "+r.NoModel)
	}
	if err := different(r); err != nil {
		return nil, false, err
	}
	r.Tensors, r.Parity = nil, nil // the gate has seen them
	measured = &measuredFile{r, time.Since(start).Seconds()}
	return measured, false, s.work.PutJSON(measuredPrefix+s.o.Recipes[i].Name, key, measured)
}

// figures returns the stored figures of the file of recipe i, nil if there are none, and their key:
// it hashes everything that the figures depend on.
func (s *sweep) figures(i int, made *madeFile) (key string, measured *measuredFile, err error) {
	m := &s.o.Measure
	parts := []any{"figures", accuracy.ReportSchema, made.SHA256, m.MinTokens, m.MaxQuestions, m.Activations, m.ActivationShare}
	for _, t := range s.job.Texts {
		parts = append(parts, t.Name, sha256.Sum256(t.Data), t.Tokens, t.Options)
	}
	for _, c := range s.job.Choices {
		parts = append(parts, c.Name, sha256.Sum256(c.Data))
	}
	parts = append(parts, m.Gate)
	if s.job.Gate != nil {
		raw, err := files.Read(m.Gate, files.MaxYAML)
		if err != nil {
			return "", nil, err
		}
		parts = append(parts, sha256.Sum256(raw))
	}
	if key, err = workdir.Key(parts...); err != nil {
		return "", nil, err
	}
	if !s.work.GetJSON(measuredPrefix+s.o.Recipes[i].Name, key, &measured) || measured == nil || measured.Report == nil {
		return key, nil, nil
	}
	return key, measured, nil
}
