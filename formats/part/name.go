package part

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Path is the path of part index of so many, of the file at path.
func Path(path string, index, of int) string {
	return fmt.Sprintf("%s.part-%d-of-%d", path, index, of)
}

// SharedPath is the path of the file that all parts of the file at path write to until it is merged.
func SharedPath(path string) string { return path + ".partial" }

// Output is the path of the file that the part at path belongs to, if path is the path of a part.
func Output(path string) (output string, ok bool) {
	i := strings.LastIndex(path, ".part-")
	if i < 0 || !name.MatchString(path[i:]) {
		return "", false
	}
	return path[:i], true
}

// name is what Path adds.
var name = regexp.MustCompile(`^\.part-(0|[1-9]\d{0,5})-of-([1-9]\d{0,5})$`)

// List finds the parts of the file at path: for each number of parts, which of them are there.
func List(path string) (map[int][]bool, error) {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return Sort(base, names), nil
}

// Sort finds the parts of the file called base among names, as List does.
func Sort(base string, names []string) map[int][]bool {
	found := map[int][]bool{}
	for _, n := range names {
		suffix, ok := strings.CutPrefix(n, base)
		m := name.FindStringSubmatch(suffix)
		if !ok || m == nil {
			continue
		}
		index, _ := strconv.Atoi(m[1])
		of, _ := strconv.Atoi(m[2])
		if of > MaxParts || index >= of {
			continue
		}
		if found[of] == nil {
			found[of] = make([]bool, of)
		}
		found[of][index] = true
	}
	return found
}
