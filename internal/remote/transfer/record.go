package transfer

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strconv"
)

// chunkOf is the size of the chunks of a file of size bytes: an eighth of it, so that all requests have
// work, between 1 and 8 MiB.
func chunkOf(size int64) int64 {
	const unit = 1 << 20
	return min(max((size/Parallel+unit-1)/unit, 1), 8) * unit
}

// chunks is the number of chunks of a file of size bytes.
func chunks(size int64) int {
	c := chunkOf(size)
	return int((size + c - 1) / c)
}

// offset is where chunk i begins.
func (c *Copy) offset(i int) int64 { return int64(i) * chunkOf(c.Object.Size) }

// length is the number of bytes of chunk i.
func (c *Copy) length(i int) int64 {
	return min(chunkOf(c.Object.Size), c.Object.Size-c.offset(i))
}

// head is the first line of the record.
func (c *Copy) head() string {
	o := c.Object
	modified := ""
	if o.Modified != "" {
		modified = fmt.Sprintf(", Last-Modified %q", o.Modified)
	}
	return fmt.Sprintf("gq ranges 2: %d bytes in chunks of %d, ETag %q, SHA-256 %q%s\n", o.Size, chunkOf(o.Size), o.ETag, o.SHA256, modified)
}

// castagnoli is the table of the chunks' sums: most processors have an instruction for it.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// recordLine is the line of chunk i, whose CRC-32C is sum.
func recordLine(i int, sum uint32) string { return fmt.Sprintf("%d %08x\n", i, sum) }

// maxLine is the length of the longest line of a chunk.
const maxLine = 10 + 1 + 8 + 1

// parseRecord reads a record of n chunks that begins with head. sums has the CRC-32C of each chunk that
// is done. whole is the length of the valid part: 0 if it is the record of something else. A line that
// is not valid ends it.
func parseRecord(data []byte, head string, n int) (done []bool, sums []uint32, whole int) {
	rest, ok := bytes.CutPrefix(data, []byte(head))
	if !ok {
		return nil, nil, 0
	}
	done, sums, whole = make([]bool, n), make([]uint32, n), len(head)
	for {
		line, after, found := bytes.Cut(rest, []byte("\n"))
		number, crc, _ := bytes.Cut(line, []byte(" "))
		i, err := strconv.ParseUint(string(number), 10, 31)
		sum, bad := strconv.ParseUint(string(crc), 16, 32)
		if !found || err != nil || bad != nil || len(crc) != 8 || i >= uint64(n) {
			return done, sums, whole
		}
		done[i], sums[i], rest = true, uint32(sum), after
		whole += len(line) + 1
	}
}
