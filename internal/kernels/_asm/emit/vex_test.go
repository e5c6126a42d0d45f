package emit

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestVEX compares encodings with an assembler's.
func TestVEX(t *testing.T) {
	vectors, err := os.ReadFile("testdata/vpdpbusd.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(vectors)), "\n")[1:]
	for _, line := range lines {
		var acts, codes, sum byte
		var want string
		if _, err := fmt.Sscan(line, &acts, &codes, &sum, &want); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		code := vpdpbusd(acts, codes, sum)
		if got := hex.EncodeToString(code[:]); got != want {
			t.Errorf("VPDPBUSD Y%d, Y%d, Y%d: %s, want %s", acts, codes, sum, got, want)
		}
	}
	if len(lines) != 64 {
		t.Errorf("%d vectors, want 64", len(lines))
	}
}

// TestEncodeVEX replaces instructions in their lines, and leaves everything else.
func TestEncodeVEX(t *testing.T) {
	const source = "\tVPXOR        Y9, Y9, Y9\n\tVPDPBUSD_VEX Y10, Y8, Y9\n\tVPDPBUSD     Y10, Y8, Y9\n"
	const want = "\tVPXOR        Y9, Y9, Y9\n\tLONG $0x503d42c4; BYTE $0xca // VPDPBUSD Y10, Y8, Y9\n\tVPDPBUSD     Y10, Y8, Y9\n"
	if got := string(encodeVEX([]byte(source))); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestNeeds512 finds the code that CPUs without AVX-512 cannot run.
func TestNeeds512(t *testing.T) {
	for line, want := range map[string]bool{
		"\tVPADDD Y1, Y15, Y9":                  false,
		"\tVPADDD Y1, Y16, Y9":                  true,
		"\tVMOVDQU X31, (AX)":                   true,
		"\tVPXORD Z0, Z0, Z20":                  true,
		"// Requires: AVX, AVX2, AVXVNNI, MMX+": false,
		"// Requires: AVX, AVX2, AVX512VL":      true,
	} {
		if got := needs512.MatchString(line); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}
