package accuracy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadReport checks that reports with a missing figure, which would be read as 0, are refused.
func TestReadReport(t *testing.T) {
	r := gateReport()
	r.Activations = "int8"
	whole, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "report.json")
	read := func(b []byte) error {
		t.Helper()
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := ReadReport(path)
		return err
	}
	if err := read(whole); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{`"mean":0.0612,`, ``, "model.kl.mean is missing"},
		{`"mean":0.0612,`, `"mean":null,`, "model.kl.mean is missing"},
		{`"same_top1":0.85,`, ``, "model.same_top1 is missing"},
		{`"sqnr_db":44,`, ``, "tensors[0].sqnr_db is missing"},
		{`"file_bytes":1000,`, ``, "file_bytes is missing"},
		{`"totals":{`, `"totals":null,"other":{`, "totals is missing"},
	} {
		changed := strings.Replace(string(whole), c.from, c.to, 1)
		if changed == string(whole) {
			t.Fatalf("the report has no %s", c.from)
		}
		if err := read([]byte(changed)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s as %q: error %v, want one with %q", c.from, c.to, err, c.want)
		}
	}
}
