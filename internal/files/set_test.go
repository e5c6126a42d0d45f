package files

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSet(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put(t, at("input"), "x")
	put(t, at("other"), "x")
	for _, d := range []string{"sub", "out.gqf.work"} {
		if err := os.Mkdir(at(d), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	put(t, at("out.gqf.work/text"), "x")
	if err := os.Link(at("input"), at("hard")); err != nil {
		t.Skip("no hard links here:", err)
	}
	for name, target := range map[string]string{"soft": "input", "away": "sub", "sub/up": ".."} {
		if err := os.Symlink(target, at(name)); err != nil {
			t.Skip("no symbolic links here:", err)
		}
	}
	t.Chdir(dir)
	for _, c := range []struct {
		inputs, outputs string // separated by blanks
		want            string // part of the error; "" for none
	}{
		{"input", "new", ""},
		{"input", "other", ""},
		{"input other", "new newer", ""},
		{"input", "input", "input is an input of this job: the input; choose another path"},
		{"input", "./input", "is an input of this job: the input (input)"},
		{"input", "sub/../input", "is an input"},
		{"input", at("input"), "is an input"},
		{"input", "hard", "is an input"},
		{"input", "soft", "is an input"},
		{"soft", "hard", "is an input"},
		{"input", "sub/up/input", "is an input"},
		{"other input", "new soft", "soft is an input"},
		{"missing", "missing", "is an input"},
		{"sub/missing", "away/missing", "is an input"},
		{"missing", "MISSING", "is an input"},
		{"missing", "sub/missing", ""},
		{"nowhere/missing", "nowhere/Missing", "is an input"},
		{"nowhere/missing", "elsewhere/missing", ""},
		{"caf\u00e9", "cafe\u0301", "is an input"},
		{"", "new new", "new is another output of this job: output 0; choose another path"},
		{"", "new New", "is another output"},
		{"", "sub/new away/new", "is another output"},
		{"", "other soft hard", "is another output"},
		{"", "new -", "-: the file is written in no fixed order"},
		{"", "new ./-", ""},
		{"out.gqf.work/text", "out.gqf", "out.gqf.work: the job works in a directory that it removes, and the input (out.gqf.work/text) lies in it"},
		{"", "out.gqf sub/up/out.gqf.work/new", "works in a directory that it removes, and output 1 (sub/up/out.gqf.work/new) lies"},
		{"", "out.gqf out.gqf.work", "is another output"},
		{"input", "out.gqf.workshop", ""},
		{"s3://bucket/a", "s3://bucket/a", "s3://bucket/a is an input of this job"},
		{"s3://bucket/a", "S3://bucket/a/", "S3://bucket/a/ is an input of this job: the input (s3://bucket/a)"},
		{"s3://bucket/a", "s3://bucket/A s3://bucket/b s3://other/a gs://bucket/a a", ""},
		{"input", "s3://bucket/input", ""},
		{"", "s3://bucket/a s3://bucket/a", "s3://bucket/a is another output"},
	} {
		var s Set
		s.Input("the input", strings.Fields(c.inputs)...)
		for i, out := range strings.Fields(c.outputs) {
			s.Output("out", "output "+string(rune('0'+i)), out)
			if out == "out.gqf" {
				s.OutputTree("out", "the working directory", out+".work")
			}
		}
		err := s.Check()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q to %q: %v", c.inputs, c.outputs, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q to %q: %v, want %q", c.inputs, c.outputs, err, c.want)
		}
		if _, ok := errors.AsType[*CollisionError](err); err != nil && !ok && !strings.Contains(c.outputs, "-") {
			t.Errorf("%q to %q: the error is a %T", c.inputs, c.outputs, err)
		}
	}
}

func TestSetShards(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	put(t, "out-00001", "x")
	if err := os.Mkdir("sub", 0o777); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ input, output, want string }{
		{"input", "report", ""},
		{"input", "out", ""},
		{"input", "sub/out-00002", ""},
		{"input", "sub/x-00002", ""},
		{"input", "out-00002", "out-00002 is another output of this job: a shard; choose another path"},
		{"input", "sub/../out-00001", "sub/../out-00001 is another output of this job: a shard (out-00001); choose another path"},
		{"input", "OUT-00002", "OUT-00002 is another output of this job: a shard (out-00002)"},
		{"out-00001", "report", "out-00001 is an input of this job: the input; choose another path"},
		{"out-00003", "report", "out-00003 is an input of this job: the input; choose another path"},
	} {
		for _, first := range []bool{false, true} {
			var s Set
			s.Input("the input", c.input)
			if first {
				s.Output("report", "a report", c.output)
			}
			s.OutputShards("out", "a shard", func(name string) string {
				i := strings.LastIndexByte(name, '-')
				if i < 0 {
					return ""
				}
				return "out" + name[i:]
			})
			if !first {
				s.Output("report", "a report", c.output)
			}
			want := c.want
			if first && strings.Contains(want, "another output") {
				want = "is another output of this job: a report" // the later output is reported
			}
			err := s.Check()
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s to %s, report first: %v: %v, want %q", c.input, c.output, first, err, want)
			}
		}
	}
}
