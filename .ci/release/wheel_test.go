package main

import "testing"

func TestPythonVersion(t *testing.T) {
	for version, want := range map[string]string{
		"0.1.0": "0.1.0", "1.20.3-alpha.1": "1.20.3a1", "1.2.3-beta.10": "1.2.3b10", "1.2.3-rc.4": "1.2.3rc4",
		"1.2": "", "v1.2.3": "", "1.2.3-rc": "", "1.2.3-preview.1": "", "1.2.3+build": "",
	} {
		if got, err := pythonVersion(version); got != want || (err == nil) == (want == "") {
			t.Errorf("%s: %q, %v; want %q", version, got, err, want)
		}
	}
}
