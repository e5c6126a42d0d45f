// Package safetensors reads and writes checkpoints in the safetensors format
// (https://github.com/huggingface/safetensors): a file, or several with an index.
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
//	err = c.Unchanged() // before publishing any result
//
// # The file
//
// The first 8 bytes are the length N of the header as a little-endian integer. N bytes of JSON
// follow: an object that maps each tensor's name to its dtype, shape (row-major) and data_offsets,
// the bytes [begin, end) of the tensor, counted from the end of the header. The optional key
// __metadata__ maps strings to strings. The rest of the file is data. The tensors cover the data
// without overlaps and gaps.
//
// The reader accepts nothing else. A malformed file gives a [FormatError] with file name and byte
// offset, never a panic, and no allocation beyond a small multiple of its header. [Options] limit
// the header. A well-formed file that this package cannot read gives an [UnsupportedError]. A
// tensor of an unknown dtype is listed and fails only when its data are read.
//
// # Lifetime
//
// [Open] maps the files and reads only their headers. [Checkpoint.Bytes] returns views of the map.
// Views are read-only and valid until [Checkpoint.Close]. Tensors, names and metadata are copies
// and stay valid.
//
// If a mapped file becomes shorter, reading a view is a memory fault. The fault kills the program
// unless a [Checkpoint.Guard] surrounds the reading; [Checkpoint.ReadRows] guards itself. Up to the
// end of its last page a shortened file reads as zeros instead: [Checkpoint.Unchanged] detects
// this.
//
// # Where to start reading
//
// checkpoint.go opens a checkpoint, header.go checks the header of a file, index.go reads shards,
// weights.go converts stored values to float32, writer.go writes.
package safetensors
