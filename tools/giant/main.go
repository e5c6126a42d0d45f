// Command giant writes a mixture of experts in its published shapes: config.json, the index, and
// files whose headers are complete and whose data are holes, so that a terabyte takes a few
// megabytes of disk. Weights are zeros, but for those that -data asks for.
//
//	go run -C tools ./giant -model deepseek-v3 /tmp/giant
//
// With -shared, all data are weights: blocks of one file of this size, shared by all files. Reading
// a shared block reads the disk, since the page cache knows files and not blocks. The file system
// has to share blocks, as XFS and Btrfs do. Mount one with "losetup --direct-io=on", else the page
// cache keeps the image's blocks.
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
	shared := flag.Int64("shared", 0, "share `bytes` of pseudo-random weights among all files")
	layers := flag.Int64("layers", 0, "another `number` of layers than the model has")
	flag.Parse()
	shape, ok := testgiant.Published[*model]
	if flag.NArg() != 1 || !ok {
		log.Fatalf("want one argument, the directory of the checkpoint, and a model of %s", strings.Join(names, ", "))
	}
	if err := write(flag.Arg(0), shape(*layers), *data, *shared); err != nil {
		log.Fatal(err)
	}
}

func write(dir string, m *testgiant.Model, data, shared int64) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	pool, err := os.Create(filepath.Join(dir, "weights"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if shared > 0 {
		shared = min(shared, m.Files[0].Size) / testgiant.Block * testgiant.Block
		from := m.Files[0].Size - shared // behind the header
		if _, err := io.Copy(pool, io.NewSectionReader(m.Files[0], from, shared)); err != nil {
			return err
		}
	}
	total := int64(0)
	for _, f := range m.Files {
		total += f.Size
		if err := writeFile(filepath.Join(dir, f.Name), f, data, pool, shared); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	if err := os.Remove(pool.Name()); err != nil {
		return err
	}
	fmt.Printf("%d files of %d bytes, %d parameters\n", len(m.Files), total, m.Parameters)
	err = os.WriteFile(filepath.Join(dir, safetensors.IndexName), m.Index, 0o666)
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "config.json"), m.Config, 0o666))
}

// writeFile writes the header and data bytes behind it. The rest of the file is a hole, or with
// shared > 0 the blocks of pool, over and over.
func writeFile(path string, f *testgiant.File, data int64, pool *os.File, shared int64) error {
	length := make([]byte, 8)
	if _, err := f.ReadAt(length, 0); err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	at := min(f.Size, int64(len(length))+int64(binary.LittleEndian.Uint64(length))+data)
	if _, err := io.Copy(out, io.NewSectionReader(f, 0, at)); err != nil {
		return err
	}
	for shared > 0 && f.Size-at >= testgiant.Block {
		n := min(shared, (f.Size-at)/testgiant.Block*testgiant.Block)
		if err := share(out, pool, n, at); err != nil {
			return fmt.Errorf("sharing %d bytes at offset %d: %w; -shared needs a file system that shares blocks, such as XFS", n, at, err)
		}
		at += n
	}
	if shared > 0 {
		if _, err := io.Copy(io.NewOffsetWriter(out, at), io.NewSectionReader(f, at, f.Size-at)); err != nil {
			return err
		}
	}
	return errors.Join(out.Truncate(f.Size), out.Close())
}
