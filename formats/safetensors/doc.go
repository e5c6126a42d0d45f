// Package safetensors reads and writes checkpoints in the safetensors format
// (https://github.com/huggingface/safetensors): one file, or several with an index.
//
//	c, err := safetensors.Open(dir, safetensors.Options{})
//	if err != nil { ... }
//	defer c.Close()
//	for _, t := range c.Tensors() {
//		rows, cols := t.Matrix()
//		row := make([]float32, cols)
//		for r := range int(rows) {
//			if err := c.ReadRows(row, t, r, 1); err != nil { ... }
//		}
//	}
//	err = c.Unchanged() // before anything that was made of the data is published
//
// # The file
//
// 8 bytes give the length N of the header as a little-endian integer. N bytes of
// JSON follow: an object that maps each tensor's name to its dtype, shape (row-major)
// and data_offsets, the bytes [begin, end) it occupies, counted from the end of the
// header; the key __metadata__, if there, maps strings to strings. The rest of the
// file is data. The tensors cover it without overlaps and holes.
//
// The reader takes nothing else. A file from a stranger gives a [FormatError] with
// file name and byte offset, never a panic, and no allocation beyond a small multiple
// of its header, which [Options] limits. What is well formed but beyond this package
// is an [UnsupportedError]; a tensor of a dtype that nobody here knows is listed and
// fails only when its data are asked for.
//
// # Lifetime
//
// The files are mapped, and only their headers are read by [Open]. [Checkpoint.Bytes]
// returns views of the map: valid until [Checkpoint.Close], never to be written to.
// Tensors, names and metadata are copies and stay valid.
//
// If a file gets shorter while it is mapped, reading a view is a memory fault, which
// kills the program unless it happens inside [Checkpoint.Guard]; [Checkpoint.ReadRows]
// guards itself. Up to the end of its last page a shortened file reads as zeros
// instead; [Checkpoint.Unchanged] notices that.
//
// # Where to start reading
//
// checkpoint.go opens and holds a checkpoint, header.go checks one file's header with
// the JSON scanner of scan.go, index.go does shards, rows.go and fp8.go turn stored
// values into float32, writer.go writes.
package safetensors
