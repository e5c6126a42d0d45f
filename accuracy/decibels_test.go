package accuracy

import (
	"encoding/json"
	"testing"
)

func TestDecibels(t *testing.T) {
	for _, tt := range []struct {
		signal, noise float64
		text, json    string
	}{
		{100, 1, "20.00 dB", "20"}, {1, 0, "exact", "null"}, {0, 0, "exact", "null"}, {0, 1, "-300.00 dB", "-300"}, {1, 2, "-3.01 dB", "-3.010299956639812"},
	} {
		d := Ratio(tt.signal, tt.noise)
		b, err := json.Marshal(d)
		if err != nil || string(b) != tt.json || d.String() != tt.text {
			t.Errorf("%v/%v: %s, %s, %v", tt.signal, tt.noise, d, b, err)
		}
		var back struct{ D Decibels }
		if err := json.Unmarshal([]byte(`{"D": `+tt.json+`}`), &back); err != nil || back.D != d && tt.json != "null" {
			t.Errorf("%s reads as %v: %v", tt.json, back.D, err)
		}
	}
}
