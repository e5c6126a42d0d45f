package cpu

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, name := range Names {
		if err := Check(name); (err == nil) != slices.Contains(Supported(), name) {
			t.Errorf("Check(%q) = %v on a CPU with %v", name, err, Supported())
		}
	}
	for _, name := range []string{"avx3", ""} {
		if err := Check(name); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}

func TestUpTo(t *testing.T) {
	all := Supported()
	for i, name := range all {
		if got, err := UpTo(name); err != nil || !slices.Equal(got, all[:i+1]) {
			t.Errorf("UpTo(%q) = %v, %v, want %v", name, got, err, all[:i+1])
		}
	}
	if _, err := UpTo("avx3"); err == nil || strings.Contains(err.Error(), "GQ_CPU") {
		t.Errorf("UpTo of an unknown name: %v", err)
	}
	defer Restrict(Restrict(""))
	for name, want := range map[string][]string{"": all, Generic: {Generic}, all[len(all)-1]: all} {
		Restrict(name)
		if got, err := UpTo(""); err != nil || !slices.Equal(got, want) {
			t.Errorf("restricted to %q: %v, %v, want %v", name, got, err, want)
		}
		if got, err := UpTo(all[len(all)-1]); err != nil || !slices.Equal(got, all) {
			t.Errorf("restricted to %q, a name goes before: %v, %v", name, got, err)
		}
	}
	Restrict("avx3")
	if _, err := UpTo(""); err == nil || !strings.HasPrefix(err.Error(), `GQ_CPU: unknown instruction set "avx3"`) {
		t.Errorf("GQ_CPU of an unknown name: %v", err)
	}
}

// TestFamily chooses among implementations as if this CPU had them all.
func TestFamily(t *testing.T) {
	was := supported
	defer func() {
		supported = was
		families = families[:len(families)-1]
		Restrict(restriction)
	}()
	supported = []string{Generic, NEON, DotProd, I8MM}
	defer Restrict(Restrict(""))
	f := NewFamily("test", 1)
	if f.Chosen() != 1 {
		t.Errorf("%d is chosen without a choice", f.Chosen())
	}
	f.Register(DotProd, 3)
	f.Register(NEON, 2)
	f.Register(AVX2, 9)
	var names []string
	for _, i := range f.All() {
		names = append(names, i.Feature)
	}
	if want := []string{Generic, NEON, DotProd, AVX2}; !slices.Equal(names, want) {
		t.Errorf("All: %v, want %v", names, want)
	}
	for name, want := range map[string]int{"": 3, Generic: 1, NEON: 2, DotProd: 3, I8MM: 3, AVX2: 1, "avx3": 1} {
		Restrict(name)
		if got := f.Chosen(); got != want {
			t.Errorf("restricted to %q: %d, want %d", name, got, want)
		}
		if list, err := UpTo(""); err == nil && f.For(list).Code != want {
			t.Errorf("For(%v): %d, want %d", list, f.For(list).Code, want)
		}
	}
	for _, feature := range []string{NEON, "avx3"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was registered again, or is unknown", feature)
				}
			}()
			f.Register(feature, 4)
		}()
	}
}

// TestRegisters checks that only functions for AVX-512 have its registers: avo gives them to others
// that need more than 16, without listing AVX-512 among what these functions require.
func TestRegisters(t *testing.T) {
	root := os.DirFS("../..")
	wide := regexp.MustCompile(`\b([XY](1[6-9]|2\d|3[01])|Z\d+|K[0-7])\b`)
	functions := 0
	err := fs.WalkDir(root, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_amd64.s") {
			return err
		}
		data, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		name, avx512 := "", false
		for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
			line := lines.Text()
			switch {
			case strings.HasPrefix(line, "// func"):
				avx512 = false
			case strings.HasPrefix(line, "// Requires:"):
				avx512 = strings.Contains(line, "AVX512")
			case strings.HasPrefix(line, "TEXT"):
				name = strings.Fields(line)[1]
				functions++
			case !avx512 && wide.MatchString(line):
				t.Errorf("%s: %s is not for AVX-512: %s", path, name, line)
				avx512 = true // once a function
			}
		}
		return nil
	})
	if err != nil || functions < 100 {
		t.Errorf("%d functions, %v", functions, err)
	}
}
