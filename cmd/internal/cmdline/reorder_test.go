package cmdline

import (
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func testFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "bits", Value: 4},
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}},
		&cli.StringSliceFlag{Name: "rule"},
		&cli.BoolFlag{Name: "json", Aliases: []string{"j"}},
		&cli.DurationFlag{Name: "wait"},
	}
}

func TestReorder(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", ""},
		{"dir", "-- dir"},
		{"--bits 8 dir", "--bits 8 -- dir"},
		{"dir --bits 8", "--bits 8 -- dir"},
		{"dir --bits=8 more", "--bits=8 -- dir more"},
		{"-bits 8 dir -o out", "-bits 8 -o out -- dir"},
		{"dir --json more -j", "--json -j -- dir more"},
		{"a --rule x --rule y b", "--rule x --rule y -- a b"},
		{"a --rule --json b", "--rule --json -- a b"},
		{"a -o=x b", "-o=x -- a b"},
		{"- --bits 8", "--bits 8 -- -"},
		{"a -- --bits 8", "-- a --bits 8"},
		{"--json -- --bits -- x", "--json -- --bits -- x"},
		{"a --unknown b", "--unknown -- a b"},
		{"a --unknown=1 b --bits 8", "--unknown=1 --bits 8 -- a b"},
		{"a --help", "--help -- a"},
		{"a --bits", "--bits"},
		{"a --json --wait 1s", "--json --wait 1s -- a"},
	} {
		sorted, _, _ := reorder(testFlags(), strings.Fields(c.args))
		if got := strings.Join(sorted, " "); got != c.want {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
	}
	if got, _, _ := reorder(testFlags(), []string{"a", "--output", "", "b c"}); strings.Join(got, "|") != "--output||--|a|b c" {
		t.Errorf("empty value: %q", got)
	}
}

func TestSortArgs(t *testing.T) {
	app := &cli.App{
		Name:  "gq",
		Flags: []cli.Flag{&cli.StringFlag{Name: "log"}, &cli.BoolFlag{Name: "loud"}},
		Commands: []*cli.Command{
			{Name: "quantize", Aliases: []string{"q"}, Flags: testFlags()},
			{Name: "bench", Flags: testFlags(), Subcommands: []*cli.Command{{Name: "copy", Flags: testFlags()}}},
		},
	}
	for _, c := range []struct{ args, want, path string }{
		{"gq", "gq", "gq"},
		{"gq --version", "gq --version", "gq"},
		{"gq quantize dir --bits 8", "gq quantize --bits 8 -- dir", "gq quantize"},
		{"gq q dir --bits 8", "gq q --bits 8 -- dir", "gq quantize"},
		{"gq --log quantize quantize dir -j", "gq --log quantize quantize -j -- dir", "gq quantize"},
		{"gq --log=x --loud quantize dir -j", "gq --log=x --loud quantize -j -- dir", "gq quantize"},
		{"gq nonsense dir -j", "gq nonsense dir -j", "gq"},
		{"gq -- quantize dir -j", "gq -- quantize dir -j", "gq"},
		{"gq bench --bits 3 copy dir -j", "gq bench --bits 3 copy -j -- dir", "gq bench copy"},
		{"gq bench dir -j", "gq bench dir -j", "gq bench"},
		{"gq --log", "gq --log", "gq"},
	} {
		args := strings.Fields(c.args)
		r := parseRequest(app, args)
		if got := strings.Join(r.args, " "); got != c.want || r.path != c.path {
			t.Errorf("%q: %q, path %q, want %q, path %q", c.args, got, r.path, c.want, c.path)
		}
		if strings.Join(args, " ") != c.args {
			t.Errorf("%q: the arguments themselves were changed to %q", c.args, args)
		}
	}
}
