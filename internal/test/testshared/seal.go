package testshared

import (
	"encoding/binary"

	"github.com/lowbit-go/gq/internal/crc32c"
)

// Sections of the directory of a .gqf file, and the sizes of their records, see docs/FORMAT.md,
// chapter 3.
const (
	SecTensors   = 0
	SecPayloads  = 1
	SecNames     = 2
	SecDims      = 3
	SecStrings   = 4
	SecAssets    = 5
	SecAssetData = 6
	SecChecksums = 7
)

var recordSizes = [8]int{48, 96, 32, 8, 1, 48, 1, 4}

// Section returns the bytes of a section of the .gqf file b, or nil for a section outside of the
// file.
func Section(b []byte, sec int) []byte {
	le := binary.LittleEndian
	off, size := le.Uint64(b[32+24*sec:]), le.Uint64(b[32+24*sec+8:])
	if off > uint64(len(b)) || size > uint64(len(b))-off {
		return nil
	}
	return b[off:][:size]
}

// Record returns the bytes of record i of a section.
func Record(b []byte, sec, i int) []byte {
	return Section(b, sec)[i*recordSizes[sec]:][:recordSizes[sec]]
}

// SealFront recomputes the checksums of the sections and the header of the .gqf file b.
func SealFront(b []byte) {
	if len(b) < 256 {
		return
	}
	for sec := range 8 {
		if s := Section(b, sec); s != nil {
			binary.LittleEndian.PutUint32(b[32+24*sec+20:], crc32c.Checksum(s))
		}
	}
	binary.LittleEndian.PutUint32(b[252:], crc32c.Checksum(b[:252]))
}

// Seal recomputes all checksums of the .gqf file b, and copies the packed headers to the data
// region, so that only the later checks can find a change.
func Seal(b []byte) {
	if len(b) < 256 {
		return
	}
	le := binary.LittleEndian
	records := Section(b, SecPayloads)
	for ; len(records) >= 96; records = records[96:] {
		packed := records[32:96]
		le.PutUint32(packed[60:], crc32c.Checksum(packed[:60]))
		if off := le.Uint64(records); off >= le.Uint64(b[224:]) && off < uint64(len(b)) {
			copy(b[off:], packed)
		}
	}
	if data, sums := le.Uint64(b[224:]), Section(b, SecChecksums); data <= uint64(len(b)) {
		block := 1 << min(b[28], 30)
		for rest := b[data:]; len(rest) > 0 && len(sums) >= 4; sums = sums[4:] {
			n := min(block, len(rest))
			le.PutUint32(sums, crc32c.Checksum(rest[:n]))
			rest = rest[n:]
		}
	}
	SealFront(b)
}
