package gq

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"time"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/model/generate"
)

// Entries of the working directory have these prefixes before the name of the recipe. They keep the
// reports of files, before and after they are measured.
const (
	madePrefix     = "made-"
	measuredPrefix = "measured-"
)

// file makes and measures the file of recipe i, as far as an earlier job has not.
func (s *sweep) file(i int) (*accuracy.SweepFile, error) {
	dir := s.o.Output
	if dir == "" {
		var err error
		if dir, err = s.work.Loose("files"); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(dir, s.o.Recipes[i].Name+".gqf")
	made, found, err := s.made(i, path)
	if err != nil {
		return nil, err
	}
	f, known, err := s.measured(path, made)
	if err != nil {
		return nil, err
	}
	if f.Found = found && known; f.Found {
		s.logf("found %s, made and measured by an earlier sweep", path)
	}
	if f.File = path; s.o.Output == "" {
		f.File = ""
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	}
	return f, nil
}

// made quantizes the file of recipe i, or finds it as an earlier sweep made it: the report without
// figures. Without an output directory the figures of the file are enough.
func (s *sweep) made(i int, path string) (made *accuracy.SweepFile, found bool, err error) {
	recipe, entry := &s.o.Recipes[i], madePrefix+s.o.Recipes[i].Name
	if s.work.GetJSON(entry, s.keys[i], &made) && made != nil {
		_, measured, err := s.figures(made)
		if err != nil || measured != nil && s.o.Output == "" {
			return made, true, err
		}
		size, hash, err := workdir.SHA256(s.ctx, path)
		if s.ctx.Err() != nil {
			return nil, false, s.ctx.Err()
		}
		if err == nil && size == made.FileBytes && hash == made.SHA256 {
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
	made = &accuracy.SweepFile{Name: recipe.Name, Recipe: s.recipes[i], BitsPerWeight: r.BitsPerWeight, AllBitsPerWeight: r.AllBitsPerWeight, QuantizeSeconds: r.Seconds, Warnings: r.Warnings}
	if made.FileBytes, made.SHA256, err = workdir.SHA256(s.ctx, path); err != nil {
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
	store := references{dir: dir, src: s.float, version: s.o.Measure.Version, threads: s.o.Measure.Threads}
	done, err := store.open(s.ctx, s.job.Texts, s.stages)
	s.references = done
	return err
}

// measured adds the figures of the file at path, or finds the figures of an earlier sweep.
func (s *sweep) measured(path string, made *accuracy.SweepFile) (f *accuracy.SweepFile, found bool, err error) {
	key, f, err := s.figures(made)
	if err != nil || f != nil {
		return f, true, err
	}
	if err := s.openReferences(); err != nil {
		return nil, false, err
	}
	err = s.measure(made, readable{path: path}, filepath.Base(path))
	if err != nil {
		return nil, false, err
	}
	return made, false, s.work.PutJSON(measuredPrefix+made.Name, key, made)
}

// given measures a file that exists already.
func (s *sweep) given(name string) (f *accuracy.SweepFile, err error) {
	path := name
	_, release, err := resolveAll(s.ctx, s.stages, &path)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := s.openReferences(); err != nil {
		return nil, err
	}
	in, err := Inspect(s.ctx, path, InspectOptions{})
	if err != nil {
		return nil, err
	}
	f = &accuracy.SweepFile{Name: name, File: path, BitsPerWeight: in.Summary.QuantizedBits, AllBitsPerWeight: in.Summary.Bits}
	return f, withModel(s.ctx, path, s.o.Measure.Threads, s.stages, func(m readable) error {
		if err := m.quantized(name); err != nil {
			return err
		}
		if err := checkAdapters(name, m, s.float, s.merged); err != nil {
			return err
		}
		return s.measure(f, m, name)
	})
}

// measure adds the figures of a model to f. name is the model's name in errors.
func (s *sweep) measure(f *accuracy.SweepFile, m readable, name string) error {
	start := time.Now()
	j := *s.job
	j.File, j.View, j.Imported, j.Name = m.path, m.view, m.imported, name
	r, err := s.o.Measure.run(s.ctx, &j, s.stages)
	if err == nil {
		err = different(r)
	}
	if err != nil {
		return err
	}
	f.FileBytes, f.Choices, f.Gate, f.Warnings = r.FileBytes, r.Choices, r.Gate, append(f.Warnings, r.Notes...)
	if r.NoModel != "" {
		f.Warnings = append(f.Warnings, "the model was not run: "+r.NoModel)
	} else if f.DecodeTokensPerSecond, err = s.speed(m, name); err != nil {
		return err
	}
	for _, t := range r.Scored() {
		if s.o.Measure.Reference == "" {
			t.Text.Reference = "" // in the working directory, which is removed
		}
		f.Texts = append(f.Texts, *t)
	}
	f.MeasureSeconds = time.Since(start).Seconds()
	return nil
}

// timedTokens is how many tokens are decoded to measure the speed.
const timedTokens = 33

// speed has a model write a text, and returns the tokens per second after the first token.
func (s *sweep) speed(m readable, name string) (float64, error) {
	g, err := generate.Open(m.path, generate.OpenOptions{View: m.view, Threads: s.o.Measure.Threads, Activations: s.o.Measure.Activations, Name: name})
	if err != nil {
		return 0, err
	}
	defer g.Close()
	r, err := g.Run(s.ctx, generate.Options{PromptIDs: []int32{0}, MaxTokens: timedTokens, IgnoreEOS: true})
	if err != nil {
		return 0, err
	}
	return r.DecodeTokensPerSecond, nil
}

// figures returns the report of a file with its stored figures, nil if there are
// none, and their key: it hashes everything that the figures depend on.
func (s *sweep) figures(made *accuracy.SweepFile) (key string, f *accuracy.SweepFile, err error) {
	m := &s.o.Measure
	// 3: the version of the entry.
	parts := []any{"figures", 3, accuracy.ReportSchema, made.SHA256, m.MinTokens, m.MaxQuestions, m.Activations, m.ActivationShare, m.Gate}
	for _, t := range s.job.Texts {
		parts = append(parts, t.Name, sha256.Sum256(t.Data), t.Tokens, t.Options)
	}
	for _, c := range s.job.Choices {
		parts = append(parts, c.Name, sha256.Sum256(c.Data))
	}
	if s.job.Gate != nil {
		raw, err := files.Read(m.Gate, files.MaxYAML)
		if err != nil {
			return "", nil, err
		}
		parts = append(parts, sha256.Sum256(raw))
	}
	if key, err = workdir.Key(parts...); err != nil || !s.work.GetJSON(measuredPrefix+made.Name, key, &f) {
		return key, nil, err
	}
	return key, f, nil
}
