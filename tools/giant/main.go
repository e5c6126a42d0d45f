// Command giant writes a mixture of experts in its published shapes: config.json, the index, and
// files whose headers are complete and whose data are holes, so that a terabyte takes a few
// megabytes of disk. Weights are zeros, but for those that -data asks for.
//
//	go run -C tools ./giant -model deepseek-v3 /tmp/giant
package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/test/testgiant"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("giant: ")
	names := slices.Sorted(maps.Keys(testgiant.Published))
	model := flag.String("model", names[0], "`name` of the model: "+strings.Join(names, ", "))
	data := flag.Int64("data", 0, "write the first `bytes` of each file's data, as pseudo-random weights")
	layers := flag.Int64("layers", 0, "another `number` of layers than the model has")
	flag.Parse()
	shape, ok := testgiant.Published[*model]
	if flag.NArg() != 1 || !ok {
		log.Fatalf("want one argument, the directory of the checkpoint, and a model of %s", strings.Join(names, ", "))
	}
	if err := write(flag.Arg(0), shape(*layers), *data); err != nil {
		log.Fatal(err)
	}
}

func write(dir string, m *testgiant.Model, data int64) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	total := int64(0)
	for _, f := range m.Files {
		total += f.Size
		if err := writeFile(filepath.Join(dir, f.Name), f, data); err != nil {
			return err
		}
	}
	fmt.Printf("%d files of %d bytes, %d parameters\n", len(m.Files), total, m.Parameters)
	err := os.WriteFile(filepath.Join(dir, safetensors.IndexName), m.Index, 0o666)
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "config.json"), m.Config, 0o666))
}

// writeFile writes the header and data bytes behind it. The rest of the file is a hole.
func writeFile(path string, f *testgiant.File, data int64) error {
	length := make([]byte, 8)
	if _, err := f.ReadAt(length, 0); err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	n := min(f.Size, int64(len(length))+int64(binary.LittleEndian.Uint64(length))+data)
	if _, err := io.Copy(out, io.NewSectionReader(f, 0, n)); err != nil {
		return errors.Join(err, out.Close())
	}
	return errors.Join(out.Truncate(f.Size), out.Close())
}
