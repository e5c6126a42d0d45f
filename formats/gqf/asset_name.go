package gqf

import (
	"fmt"
	"strings"
)

// checkAssetName returns what is wrong with the name of an asset, or "".
func checkAssetName(kind AssetKind, name string) string {
	switch kind {
	case AssetRecipe:
		return checkFixedName("recipe", name, RecipeName)
	case AssetProvenance:
		return checkFixedName("provenance", name, ProvenanceName)
	case AssetFold:
		return checkFixedName("fold record", name, FoldName)
	case AssetConfig, AssetFile:
		if !isPlainFileName(name) {
			return fmt.Sprintf("%q is not a plain file name: want 1 to %d printable ASCII characters other than %s, no dot or space at the end, and no name that Windows reserves", name, maxAssetName, notInNames)
		}
		return ""
	case 0:
		return fmt.Sprintf("asset %q has kind 0, which does not exist", name)
	}
	return "" // a kind of a newer version
}

func checkFixedName(what, name, want string) string {
	if name != want {
		return fmt.Sprintf("the %s is called %q, want %q", what, name, want)
	}
	return ""
}

// notInNames are the characters that Windows does not allow in file names or that some system uses
// to separate directories.
const notInNames = `" * / : < > ? \ |`

// isPlainFileName reports whether name is a valid file name in any directory of any system: gq
// dequantize writes these assets as files. Names are ASCII because systems disagree on which other
// names are equal.
func isPlainFileName(name string) bool {
	if name == "" || len(name) > maxAssetName {
		return false
	}
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' || c != ' ' && strings.IndexByte(notInNames, c) >= 0 {
			return false
		}
	}
	// Windows drops trailing dots and spaces. This also refuses "." and "..".
	if last := name[len(name)-1]; last == '.' || last == ' ' {
		return false
	}
	return !isReservedName(name)
}

// isReservedName reports whether Windows takes name for a device, with any extension: NUL.json is
// NUL.
func isReservedName(name string) bool {
	stem, _, _ := strings.Cut(name, ".")
	stem = foldName(strings.TrimRight(stem, " "))
	switch stem {
	case "con", "prn", "aux", "nul", "conin$", "conout$":
		return true
	}
	port := strings.TrimPrefix(strings.TrimPrefix(stem, "com"), "lpt")
	return len(stem) == 4 && len(port) == 1 && port[0] >= '0' && port[0] <= '9'
}

// foldName returns name in lower case: two names in one directory must differ in more than case.
// File names are ASCII; other names keep letters beyond ASCII as they are.
func foldName(name string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, name)
}
