package cluster

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOutputs: the object is the file that the same command writes on this machine.
func TestOutputs(t *testing.T) {
	s := newStore(t)
	quantize := []string{"quantize", model, "--bits", "4", "--group", "32", "-q"}
	text, gate := filepath.Join(root, "testdata", "text", "lighthouse.txt"), write(t, "gate.yaml", "version: 1\nmodel:\n  mean_kl: {max: 10}\n")
	for _, c := range []struct {
		name string
		args []string
	}{
		{"streamed.gqf", quantize},
		{"layouts.gqf", with(quantize, "--layout", "lowbit,codes")},
		{"gated.gqf", with(quantize, "--gate", gate, "--text", text, "--max-tokens", "700", "--min-tokens", "100")},
		{"model.gguf", with(quantize, "--target", "gguf")},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := local(t, c.name, c.args...)
			out, err := s.run(with(c.args, "-o", "s3://bucket/dir/"+c.name)...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := s.get("dir/" + c.name); !bytes.Equal(got, want) {
				t.Errorf("the object has %d bytes, and is not the file of %d bytes", len(got), len(want))
			}
		})
	}
	if list := s.uploads(); len(list) > 0 {
		t.Errorf("%d uploads are left", len(list))
	}
}

// TestSources: a checkpoint and a .gqf file in the store are inputs as if they were on this
// machine.
func TestSources(t *testing.T) {
	s := newStore(t)
	entries, err := os.ReadDir(model)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(model, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		s.put("models/books/"+e.Name(), b)
	}
	want := local(t, "model.gqf", "quantize", model, "-q")
	home := t.TempDir()
	for _, output := range []string{filepath.Join(home, "model.gqf"), "s3://bucket/out/model.gqf"} {
		if out, err := s.run("quantize", "s3://bucket/models/books", "-q", "-o", output); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	file, err := os.ReadFile(filepath.Join(home, "model.gqf"))
	if err != nil || !bytes.Equal(s.get("out/model.gqf"), file) {
		t.Errorf("%v: the object is not the file", err)
	}
	// Its provenance names another source: the rest is as in the file of the local checkpoint.
	if len(file) != len(want) {
		t.Errorf("%d bytes, expected %d", len(file), len(want))
	}
	if out, err := s.run("verify", "s3://bucket/out/model.gqf"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := s.run("repack", "s3://bucket/out/model.gqf", "--layout", "codes", "-q", "-o", "s3://bucket/out/codes.gqf"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !bytes.Equal(s.get("out/codes.gqf"), local(t, "codes.gqf", "repack", filepath.Join(home, "model.gqf"), "--layout", "codes", "-q")) {
		t.Error("the repacked object is not the repacked file")
	}
	for _, output := range []string{"s3://bucket/models/books/config.json", "s3://bucket/models/books/model.safetensors"} {
		if out, err := s.run("quantize", "s3://bucket/models/books", "-q", "-o", output); err == nil || !strings.Contains(out, "is an input of this job") {
			t.Errorf("%s: %v\n%s", output, err, out)
		}
	}
	if s.get("models/books/config.json") == nil {
		t.Error("an input is gone")
	}
}

func with(args []string, more ...string) []string { return append(slices.Clone(args), more...) }

// write writes a file of the test and returns its path.
func write(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestChangedOnTheWay: a store that takes other bytes than were sent, and does not check their MD5,
// gets no object.
func TestChangedOnTheWay(t *testing.T) {
	s := newStore(t)
	s.setFault(func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("partNumber") == "" || r.Method != http.MethodPut {
			return false
		}
		body, _ := io.ReadAll(r.Body)
		body[len(body)/2] ^= 1
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.Header.Del("Content-Md5")
		s.forward(w, r)
		return true
	})
	out, err := s.run("quantize", model, "-q", "-o", "s3://bucket/model.gqf")
	if err == nil || !strings.Contains(out, "part 1: ") || !strings.Contains(out, "the store has bytes with MD5 ") {
		t.Errorf("%v\n%s", err, out)
	}
	if s.get("model.gqf") != nil || len(s.uploads()) > 0 {
		t.Error("the object or its upload is there")
	}
}

func TestRefused(t *testing.T) {
	s := newStore(t)
	for _, c := range []struct{ output, want string }{
		{"s3://bucket", "name the object, not the prefix that it is to have: s3://bucket/model.gqf"},
		{"s3://bucket/dir/", "name the object, not the prefix that it is to have: s3://bucket/dir/model.gqf"},
		{"s3://nowhere/model.gqf", "there is no bucket \"nowhere\""},
		{"az://bucket/model.gqf", "az:// is not supported for outputs: outputs go to paths, s3:// and gs://"},
		{"https://host/model.gqf", "outputs go to paths, s3:// and gs://"},
		{"s3://user:" + secretKey + "@bucket/model.gqf", "credentials come from the environment"},
	} {
		out, err := s.run("quantize", model, "-q", "-o", c.output)
		if err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v, expected %q:\n%s", c.output, err, c.want, out)
		}
	}
}
