package hub

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/hubpath"
)

func TestParseName(t *testing.T) {
	commit := strings.Repeat("0a", 20)
	for _, c := range []struct {
		in   string
		want Name
		out  string // "": as in
	}{
		{"org/model", Name{"org/model", "main", ""}, ""},
		{"gpt2", Name{"gpt2", "main", ""}, ""},
		{"_org/_model_", Name{"_org/_model_", "main", ""}, ""},
		{"org/model@main", Name{"org/model", "main", ""}, "org/model"},
		{"org/model/", Name{"org/model", "main", ""}, "org/model"},
		{"org/model/a/b.gguf", Name{"org/model", "main", "a/b.gguf"}, ""},
		{"org/model@v1.0/a b.gguf", Name{"org/model", "v1.0", "a b.gguf"}, ""},
		{"org/model@refs/pr/3", Name{"org/model", "refs/pr/3", ""}, ""},
		{"org/model@refs/pr/3/x/y", Name{"org/model", "refs/pr/3", "x/y"}, ""},
		{"org/model@a%2Fb/x", Name{"org/model", "a/b", "x"}, ""},
		{"org/model@" + commit, Name{"org/model", commit, ""}, ""},
	} {
		n, err := ParseName(c.in)
		if err != nil || n != c.want {
			t.Errorf("%s: %+v, %v", c.in, n, err)
		}
		if c.out == "" {
			c.out = c.in
		}
		if n.String() != c.out {
			t.Errorf("%s prints as %s", c.in, n)
		}
	}
	for _, s := range []string{
		"", "/", "a//b", "org/model@", "org/model@..", "org/model@a%2F..%2F..%2Fb", "org/model/../x", "org/mo--del", "org/model.git",
		"datasets/org/model", "-a/b", "r-/o", "r/-o", ".a/b", "org/model.", "org/mo del", "org/model/c:x", `org/model/a\b`, "org/model/... /x", "org/model@a\x00", "../../x", "org/model@%zz",
	} {
		if n, err := ParseName(s); err == nil {
			t.Errorf("%q is %+v", s, n)
		}
	}
}

func FuzzParseName(f *testing.F) {
	for _, s := range []string{"org/model@refs/pr/1/a", "gpt2", "org/model@a%2Fb/x y.gguf"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseName(s)
		if err != nil {
			return
		}
		for _, path := range []string{n.Revision, n.File} {
			if path != "" && !filepath.IsLocal(filepath.FromSlash(path)) {
				t.Errorf("%q: %q leads out of the cache", s, path)
			}
		}
		if repo, ok := hubpath.Repo(hubpath.Folder(n.Repo)); !ok || repo != n.Repo {
			t.Errorf("%q: the directory of %s is the directory of %s", s, n.Repo, repo)
		}
		if again, err := ParseName(n.String()); err != nil || again != n {
			t.Errorf("%q is %+v, which prints as %q, which is %+v, %v", s, n, n, again, err)
		}
	})
}

func TestParseTree(t *testing.T) {
	oid := strings.Repeat("ab", 20)
	sum := strings.Repeat("cd", 32)
	list, _, err := parseTree([]byte(`[{"type":"directory","path":"x","size":0,"oid":"1"},{"type":"file","path":"x/a.json","size":5,"oid":"` + oid + `","new":[1]},
		{"type":"file","path":"m.safetensors","size":134,"oid":"` + oid + `","lfs":{"oid":"` + sum + `","size":1000,"pointerSize":134}}]`))
	if err != nil || len(list) != 2 || list[0].ETag != oid || list[0].SHA256 != "" || list[1].Size != 1000 || list[1].SHA256 != sum || list[1].ETag != sum {
		t.Errorf("%+v, %v", list, err)
	}
	for _, s := range []string{
		"", "{}", "null x", `[{"type":"file","path":"../a","size":1,"oid":"` + oid + `"}]`, `[{"type":"file","path":"/a","size":1,"oid":"` + oid + `"}]`,
		`[{"type":"file","path":"a","size":-1,"oid":"` + oid + `"}]`, `[{"type":"file","path":"a","size":99999999999999999,"oid":"` + oid + `"}]`,
		`[{"type":"file","path":"a","size":1,"oid":"../../x"}]`, `[{"type":"file","path":"a","size":1,"oid":"` + oid + `","lfs":{"oid":"` + oid + `","size":1}}]`,
		`[{"type":"file","path":"a\u0000","size":1,"oid":"` + oid + `"}]`,
	} {
		if list, _, err := parseTree([]byte(s)); err == nil {
			t.Errorf("%s: %+v", s, list)
		}
	}
}

func FuzzParseTree(f *testing.F) {
	f.Add([]byte(`[{"type":"file","path":"a","size":1,"oid":"0123456789012345678901234567890123456789"}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, _, err := parseTree(b)
		if err != nil {
			return
		}
		for _, o := range list {
			if !filepath.IsLocal(filepath.FromSlash(o.Name)) || strings.ContainsAny(o.ETag, "/\\.") || o.Size < 0 || o.Size > maxSize {
				t.Errorf("%+v", o)
			}
		}
	})
}

func TestNextCursor(t *testing.T) {
	for link, want := range map[string]string{
		`<https://huggingface.co/api/models/a/b/tree/main?cursor=x%3D%3D&recursive=true>; rel="next"`: "x==",
		`<https://h/?cursor=1>; rel="prev", <https://h/?cursor=2>; rel="next"`:                        "2",
		``: "", `<>; rel="next"`: "", `<%zz>; rel="next"`: "",
	} {
		if got := nextCursor(link); got != want {
			t.Errorf("%s: %q", link, got)
		}
	}
}

func TestToken(t *testing.T) {
	set := Settings{TokenFile: filepath.Join(t.TempDir(), "token")}
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_DISABLE_IMPLICIT_TOKEN"} {
		t.Setenv(name, "")
	}
	check := func(want, from string) {
		t.Helper()
		if token, where := set.Token(); token != want || where != from {
			t.Errorf("%q of %s, want %q of %s", token, where, want, from)
		}
	}
	check("", "")
	write(t, set.TokenFile, "hf_file\r\n")
	check("hf_file", set.TokenFile)
	t.Setenv("HF_TOKEN", " hf_variable\n")
	check("hf_variable", "HF_TOKEN")
	t.Setenv("HF_TOKEN", "hf_\u00fc")
	check("hf_file", set.TokenFile)
	t.Setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
	check("", "")
}

func TestSettings(t *testing.T) {
	for _, name := range []string{"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN_PATH", "XDG_CACHE_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", "/home/x")
	t.Setenv("USERPROFILE", "/home/x")
	check := func(cache, token, endpoint string, offline bool) {
		t.Helper()
		s, err := FromEnvironment()
		if err != nil || filepath.ToSlash(s.Cache) != cache || filepath.ToSlash(s.TokenFile) != token || s.Endpoint.String() != endpoint || s.Offline != offline {
			t.Errorf("%+v, %v", s, err)
		}
	}
	check("/home/x/.cache/huggingface/hub", "/home/x/.cache/huggingface/token", "https://huggingface.co", false)
	t.Setenv("XDG_CACHE_HOME", "/xdg")
	check("/xdg/huggingface/hub", "/xdg/huggingface/token", "https://huggingface.co", false)
	t.Setenv("HF_HOME", "~/hf")
	t.Setenv("HF_ENDPOINT", "http://mirror:80/path/")
	t.Setenv("HF_HUB_OFFLINE", "yes")
	check("/home/x/hf/hub", "/home/x/hf/token", "http://mirror:80/path", true)
	t.Setenv("HF_HUB_CACHE", "$HF_HOME/c")
	check("/home/x/hf/c", "/home/x/hf/token", "http://mirror:80/path", true)
	t.Setenv("HF_ENDPOINT", "https://user:secret@/x?y")
	if _, err := FromEnvironment(); err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}
