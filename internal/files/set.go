package files

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/lowbit-go/gq/internal/remote"
)

// A Set holds the files that a job reads and writes. Check, called before any work, keeps the job
// from destroying an input, or an output with another.
type Set struct {
	inputs, outputs []member
}

type member struct {
	option string // the output's option: "save-recipe"
	noun   string // "the checkpoint"
	path   string
	tree   bool // the directory and its whole content belong to the job
	// shard returns the path of the shard with name's numbers, or "" if name is no shard's. Nil for a
	// path that is written undivided.
	shard func(name string) string
}

// Input adds files that the job reads. noun is the user's name for the files, with an article. The
// name of a missing file is protected too. Empty paths are skipped.
func (s *Set) Input(noun string, paths ...string) {
	for _, path := range paths {
		if path != "" {
			s.inputs = append(s.inputs, member{noun: noun, path: path})
		}
	}
}

// Output adds files that the job writes, like Input. option is the option with the files' name.
func (s *Set) Output(option, noun string, paths ...string) {
	for _, path := range paths {
		if path != "" {
			s.outputs = append(s.outputs, member{option: option, noun: noun, path: path})
		}
	}
}

// OutputTree adds a directory that the job makes, and removes with its content. option is the
// option from which its name follows.
func (s *Set) OutputTree(option, noun, path string) {
	s.outputs = append(s.outputs, member{option: option, noun: noun, path: path, tree: true})
}

// OutputShards adds all files into which a job may divide an output: how many there will be is not
// known yet. shard returns the path of the shard that has the numbers in name, the name of any
// file, or "" if name is not like a shard's name.
func (s *Set) OutputShards(option, noun string, shard func(name string) string) {
	s.outputs = append(s.outputs, member{option: option, noun: noun, shard: shard})
}

// A CollisionError reports an output of a job that leads to the same file as another path of the
// job, or to a file that is no model.
type CollisionError struct {
	Option, Path     string // of the output
	Other, OtherPath string // the other file
	Input            bool   // the other file is an input
	Tree             bool   // either is a directory that contains the other
	Lost             bool   // Other is the kind of the file that the output would replace
}

func (e *CollisionError) Error() string {
	other := e.Other
	if e.OtherPath != e.Path {
		other += " (" + e.OtherPath + ")"
	}
	switch {
	case e.Lost:
		return fmt.Sprintf("%s: there is %s, no model, which would be lost: choose another path, or remove it", e.Path, e.Other)
	case e.Tree:
		return fmt.Sprintf("%s: the job works in a directory that it removes, and %s lies in it: choose another path", e.Path, other)
	case e.Input:
		return fmt.Sprintf("%s is an input of this job: %s; choose another path", e.Path, other)
	}
	return fmt.Sprintf("%s is another output of this job: %s; choose another path", e.Path, other)
}

// A StreamError reports an output that names standard output.
type StreamError struct{ Option string }

func (e *StreamError) Error() string {
	return "-: the file is written in no fixed order and appears only when it is complete, so it cannot go to standard output: name a file (./- for a file called -)"
}

// Check returns a *CollisionError if an output is an input or another output, by whatever name, or
// a *StreamError if an output is "-". It does not report paths that lead nowhere.
func (s *Set) Check() error {
	inputs := make([]place, len(s.inputs))
	for i, in := range s.inputs {
		inputs[i] = locate(in.path)
	}
	outputs := make([]place, len(s.outputs))
	for i, out := range s.outputs {
		if out.path == "-" {
			return &StreamError{out.option}
		}
		if out.shard == nil {
			outputs[i] = locate(out.path)
		}
		for j, in := range s.inputs {
			if e := collide(out, in, outputs[i], inputs[j]); e != nil {
				e.Input = true
				return e
			}
		}
		for j, other := range s.outputs[:i] {
			if e := collide(out, other, outputs[i], outputs[j]); e != nil {
				return e
			}
		}
	}
	return nil
}

// CheckReplaced returns a *CollisionError if a model would replace a file of another kind, such as
// a text named by mistake. A file with the ending of a model may be damaged.
func (s *Set) CheckReplaced() error {
	for _, out := range s.outputs {
		k, err := KindOf(out.path)
		known := slices.Contains([]Kind{Empty, GQF, GGUF}, k) || slices.Contains([]string{".gqf", ".gguf"}, strings.ToLower(filepath.Ext(out.path)))
		if out.option == "output" && err == nil && !known {
			return &CollisionError{Option: out.option, Path: out.path, Other: k.String(), OtherPath: out.path, Lost: true}
		}
	}
	return nil
}

func collide(out, other member, at, there place) *CollisionError {
	out, at = out.beside(there, at)
	other, there = other.beside(at, there)
	switch {
	case at.same(there):
		return &CollisionError{Option: out.option, Path: out.path, Other: other.noun, OtherPath: other.path}
	case out.tree && there.within(at):
		return &CollisionError{Option: out.option, Path: out.path, Other: other.noun, OtherPath: other.path, Tree: true}
	case other.tree && at.within(there):
		return &CollisionError{Option: out.option, Path: other.path, Other: out.noun, OtherPath: out.path, Tree: true}
	}
	return nil
}

// beside returns m and its place at. If m stands for shards, beside returns the only shard that the
// file at place p can be, and its place.
func (m member) beside(p, at place) (member, place) {
	if m.shard == nil || p.path == "" && p.remote == "" {
		return m, at
	}
	if m.path = m.shard(filepath.Base(p.path + p.remote)); m.path == "" {
		return m, place{}
	}
	return m, locate(m.path)
}

// A place is the file or directory to which a path leads, or the object of a store.
type place struct {
	remote string      // the name of the object, without a slash at the end; "": a path
	file   fs.FileInfo // nil: no such file
	dir    fs.FileInfo // of the directory; nil: no such directory
	path   string      // absolute, with symbolic links resolved as far as possible
}

func locate(path string) (p place) {
	if l, err := remote.Parse(path); err == nil {
		return place{remote: strings.TrimRight(l.String(), "/")}
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return p
	}
	if resolved, err := filepath.EvalSymlinks(full); err == nil {
		full = resolved
	} else if dir, err := filepath.EvalSymlinks(filepath.Dir(full)); err == nil {
		full = filepath.Join(dir, filepath.Base(full))
	}
	p.path = full
	p.file = stat(full)
	p.dir = stat(filepath.Dir(full))
	return p
}

// stat returns the file info of path, or nil if the path does not exist or cannot be reached.
func stat(path string) fs.FileInfo {
	st, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return st
}

// same reports whether two paths lead to the same file, or would on a file system that ignores
// differences in case or in the composition of characters.
func (p place) same(q place) bool {
	if p.remote != "" || q.remote != "" {
		return p.remote == q.remote // stores distinguish upper and lower case
	}
	if p.file != nil && q.file != nil {
		return os.SameFile(p.file, q.file)
	}
	if p.path == "" || q.path == "" {
		return false
	}
	if !sameName(filepath.Base(p.path), filepath.Base(q.path)) {
		return false
	}
	if p.dir != nil && q.dir != nil {
		return os.SameFile(p.dir, q.dir)
	}
	return sameName(filepath.Dir(p.path), filepath.Dir(q.path))
}

func sameName(a, b string) bool {
	return strings.EqualFold(norm.NFC.String(a), norm.NFC.String(b))
}

func (p place) within(q place) bool {
	if q.remote != "" {
		return strings.HasPrefix(p.remote, q.remote+"/")
	}
	if q.file == nil || p.path == "" {
		return false
	}
	for dir := filepath.Dir(p.path); ; dir = filepath.Dir(dir) {
		if st := stat(dir); st != nil && os.SameFile(st, q.file) {
			return true
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
}
