package synth

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/formats/safetensors"
)

// command runs gq synth and returns what it printed and its exit status.
func command(args ...string) (out, errs string, code int) {
	var o, e bytes.Buffer
	app := &cli.App{Name: "gq", Writer: &o, ErrWriter: &e, Commands: []*cli.Command{Command()}}
	code = cmdline.Run(context.Background(), app, append([]string{"gq", "synth"}, args...))
	return o.String(), e.String(), code
}

func TestSynth(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	out, errs, code := command("--preset", "tiny", dir, "--layers", "1", "--tied=false", "--dtype", "F32", "--max-shard-bytes", "200000", "-q")
	if code != 0 || errs != "" || !strings.HasPrefix(out, dir+": 111040 parameters, 444 kB of data") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	c, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, ok := c.Lookup("lm_head.weight"); !ok || len(c.Tensors()) != 1+9+2 || len(c.Files()) != 3 {
		t.Errorf("%d tensors in %d files", len(c.Tensors()), len(c.Files()))
	}
	out, errs, code = command("--preset", "tiny", filepath.Join(t.TempDir(), "j"), "--json", "-q")
	var r gq.SynthReport
	if err := json.Unmarshal([]byte(out), &r); code != 0 || errs != "" || err != nil || filepath.Base(r.Output) != "j" || r.Parameters != 123712 || r.Bytes != 2*r.Parameters {
		t.Errorf("exit %d, %v\n%s%s", code, err, out, errs)
	}
	if _, errs, code := command("--preset", "tiny", dir); code != 1 || !strings.Contains(errs, "holds a checkpoint already") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "wants DIR"},
		{[]string{"a", "b"}, "wants DIR"},
		{[]string{"a"}, "which shape?"},
		{[]string{"a", "--preset", "gpt-5"}, `unknown preset "gpt-5": there are llama-3.1-8b`},
		{[]string{"a", "--preset", ""}, `unknown preset ""`},
		{[]string{"a", "--preset", "tiny", "--dtype", "int8"}, "--dtype int8"},
		{[]string{"a", "--preset", "tiny", "--max-shard-bytes", "-1"}, "negative"},
		{[]string{"a", "--preset", "tiny", "--kv-heads", "3"}, "cannot share"},
		{[]string{"a", "--hidden", "64"}, "intermediate size 0"},
		{[]string{"a", "--preset", "tiny", "--layers", "x"}, "--layers"},
	} {
		_, errs, code := command(tt.args...)
		if code != 2 || !strings.Contains(errs, tt.want) {
			t.Errorf("%v: exit %d: %s", tt.args, code, errs)
		}
	}
}
