package gqf

import (
	"encoding/binary"

	"github.com/lowbit-go/gq/internal/crc32c"
)

// The version of the format that this package writes, and the newest that this package reads. A
// writer stamps the lowest version that can express the file, and a reader refuses newer versions.
// Additions to the format therefore never break files without the additions. docs/FORMAT.md has the
// policy.
//
// Major 1: the first.
//
//	Minor 0: tensors with payloads of the layouts plain, lowbit, codes, KleidiAI's
//	(17 to 21) and TorchAO's (33 to 35), companions of codes and torchao-embedding,
//	variants that may name CPU features, slices, names, links to biases, assets
//	(stored or zstd), CRC32C of every byte.
const (
	versionMajor = 1
	versionMinor = 0
)

// Sizes and alignments of version 1, in bytes. docs/FORMAT.md is the specification. Only the
// records and decode functions below know the offsets of fields.
const (
	headerSize    = 256
	tensorSize    = 48
	payloadSize   = 96
	nameSize      = 32
	dimSize       = 8
	assetSize     = 48
	sumSize       = 4
	align         = 64      // of sections, assets and payloads
	dataAlign     = 1 << 16 // of the data region: the largest page size on Arm
	blockLog2     = 20      // of the checksum blocks that this package writes
	minBlockLog2  = 12
	maxBlockLog2  = 30
	maxNameBytes  = 1<<16 - 1
	maxAssetName  = 200
	maxAssets     = 1024
	maxAssetBytes = 128 << 20 // of all assets, raw, and of all assets, stored
	maxDims       = 8
	maxVariants   = 8
	noSource      = 0xFFFFFFFF
	flagTransp    = 1 // of a tensor
	flagCheckpt   = 1 // of a name
	flagAbsorbed  = 2 // of a name
	headerCRCOff  = headerSize - 4
	maxZstdWindow = 32 << 20 // of an asset's frame
)

// magic starts every file. As in PNG, the first byte is not ASCII; line ends reveal text mode.
const magic = "\x89GQF\r\n\x1a\n"

// The front sections, in their order in the header and in the file.
const (
	secTensors = iota
	secPayloads
	secNames
	secDims
	secStrings
	secAssets
	secAssetData
	secChecksums
	numSections
)

var sectionNames = [numSections]string{"tensors", "payloads", "names", "dims", "strings", "assets", "asset data", "checksums"}

// recordSizes has the size of a section's record, or 0 for a section of bytes, with count 0.
var recordSizes = [numSections]int64{tensorSize, payloadSize, nameSize, dimSize, 0, assetSize, 0, sumSize}

var le = binary.LittleEndian

type section struct {
	off, length uint64
	count, crc  uint32
}

type header struct {
	major, minor     uint32
	fileSize         uint64
	headerSize       uint32
	blockLog2        uint32
	sections         [numSections]section
	dataOff, dataLen uint64
}

// encode writes the fields of a header or a record, in their order, to the start of b.
func encode(b []byte, fields any) {
	if _, err := binary.Encode(b, le, fields); err != nil {
		panic(err) // b is shorter than a record
	}
}

func (h *header) encode() []byte {
	b := make([]byte, headerSize)
	encode(b[copy(b, magic):], h)
	le.PutUint32(b[headerCRCOff:], crc32c.Checksum(b[:headerCRCOff]))
	return b
}

func decodeHeader(b []byte) header {
	h := header{
		major:      le.Uint32(b[8:]),
		minor:      le.Uint32(b[12:]),
		fileSize:   le.Uint64(b[16:]),
		headerSize: le.Uint32(b[24:]),
		blockLog2:  le.Uint32(b[28:]),
		dataOff:    le.Uint64(b[224:]),
		dataLen:    le.Uint64(b[232:]),
	}
	for i := range h.sections {
		e := b[32+24*i:]
		h.sections[i] = section{le.Uint64(e), le.Uint64(e[8:]), le.Uint32(e[16:]), le.Uint32(e[20:])}
	}
	return h
}

type tensorRecord struct {
	// index of the canonical name; number of names, without absorbed names
	name, names              uint32
	dimsFirst                uint32
	ndim, dtype, role, flags uint8
	payloadFirst, payloads   uint32
	slices                   uint32
	mapping, algorithm       uint8
	_                        [tensorBias - tensorReserved]byte
	bias                     uint32 // 1 + the index of the bias tensor; 0: none
	_                        [tensorSize - tensorReserved2]byte
}

func decodeTensor(b []byte) tensorRecord {
	_ = b[tensorSize-1]
	return tensorRecord{
		name: le.Uint32(b), names: le.Uint32(b[4:]),
		dimsFirst: le.Uint32(b[8:]),
		ndim:      b[12], dtype: b[13], role: b[14], flags: b[15],
		payloadFirst: le.Uint32(b[16:]), payloads: le.Uint32(b[20:]),
		slices:  le.Uint32(b[24:]),
		mapping: b[28], algorithm: b[29],
		bias: le.Uint32(b[tensorBias:]),
	}
}

// Offsets in a tensor record of its two runs of reserved bytes and of the bias between the runs.
const (
	tensorReserved  = 30
	tensorBias      = 32
	tensorReserved2 = 36
)

type payloadRecord struct {
	off, length   uint64 // of packed header and data
	tensor, slice uint32
	kind, variant uint8
	_             [payloadCPU - payloadReserved]byte
	cpu           uint32 // CPUFeatures
	// the rest of the record is a copy of the packed header
}

func decodePayload(b []byte) payloadRecord {
	_ = b[payloadHeader-1]
	return payloadRecord{
		off: le.Uint64(b), length: le.Uint64(b[8:]), tensor: le.Uint32(b[16:]), slice: le.Uint32(b[20:]),
		kind: b[24], variant: b[25], cpu: le.Uint32(b[payloadCPU:]),
	}
}

// Offsets in a payload record of its reserved bytes, its CPU features and its packed header.
const (
	payloadReserved = 26
	payloadCPU      = 28
	payloadHeader   = 32
)

type nameRecord struct {
	strOff, strLen uint32 // in the strings section
	tensor         uint32
	sourceFile     uint32
	sourceCRC      uint32
	flags          uint8
	_              [3]byte
	sourceBytes    uint64
}

func decodeName(b []byte) nameRecord {
	_ = b[nameSize-1]
	return nameRecord{
		strOff: le.Uint32(b), strLen: le.Uint32(b[4:]), tensor: le.Uint32(b[8:]), sourceFile: le.Uint32(b[12:]),
		sourceCRC: le.Uint32(b[16:]), flags: b[20], sourceBytes: le.Uint64(b[24:]),
	}
}

type assetRecord struct {
	strOff, strLen      uint32 // in the strings section
	off, stored, rawLen uint64
	rawCRC              uint32
	kind, codec         uint8
	_                   [assetSize - assetReserved]byte
}

func decodeAsset(b []byte) assetRecord {
	_ = b[assetSize-1]
	return assetRecord{
		strOff: le.Uint32(b), strLen: le.Uint32(b[4:]), off: le.Uint64(b[8:]), stored: le.Uint64(b[16:]),
		rawLen: le.Uint64(b[24:]), rawCRC: le.Uint32(b[32:]), kind: b[36], codec: b[37],
	}
}

// assetReserved is the offset in an asset record of its reserved bytes.
const assetReserved = 38

func alignUp(n, a uint64) uint64 { return (n + a - 1) &^ (a - 1) }
