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

// Sizes and alignments of version 1, in bytes. docs/FORMAT.md is the specification. Only the encode
// and decode functions below know the offsets of fields.
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

func (h *header) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	le.PutUint32(b[8:], h.major)
	le.PutUint32(b[12:], h.minor)
	le.PutUint64(b[16:], h.fileSize)
	le.PutUint32(b[24:], h.headerSize)
	le.PutUint32(b[28:], h.blockLog2)
	for i, s := range h.sections {
		e := b[32+24*i:]
		le.PutUint64(e, s.off)
		le.PutUint64(e[8:], s.length)
		le.PutUint32(e[16:], s.count)
		le.PutUint32(e[20:], s.crc)
	}
	le.PutUint64(b[224:], h.dataOff)
	le.PutUint64(b[232:], h.dataLen)
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
	bias                     uint32 // 1 + the index of the bias tensor; 0: none
}

func (r *tensorRecord) encode(b []byte) {
	le.PutUint32(b, r.name)
	le.PutUint32(b[4:], r.names)
	le.PutUint32(b[8:], r.dimsFirst)
	b[12], b[13], b[14], b[15] = r.ndim, r.dtype, r.role, r.flags
	le.PutUint32(b[16:], r.payloadFirst)
	le.PutUint32(b[20:], r.payloads)
	le.PutUint32(b[24:], r.slices)
	b[28], b[29] = r.mapping, r.algorithm
	le.PutUint32(b[tensorBias:], r.bias)
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
	cpu           uint32 // CPUFeatures
	// the rest of the record is a copy of the packed header
}

func (r *payloadRecord) encode(b []byte) {
	le.PutUint64(b, r.off)
	le.PutUint64(b[8:], r.length)
	le.PutUint32(b[16:], r.tensor)
	le.PutUint32(b[20:], r.slice)
	b[24], b[25] = r.kind, r.variant
	le.PutUint32(b[payloadCPU:], r.cpu)
}

func decodePayload(b []byte) payloadRecord {
	_ = b[payloadHeader-1]
	return payloadRecord{le.Uint64(b), le.Uint64(b[8:]), le.Uint32(b[16:]), le.Uint32(b[20:]), b[24], b[25], le.Uint32(b[payloadCPU:])}
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
	sourceBytes    uint64
}

func (r *nameRecord) encode(b []byte) {
	le.PutUint32(b, r.strOff)
	le.PutUint32(b[4:], r.strLen)
	le.PutUint32(b[8:], r.tensor)
	le.PutUint32(b[12:], r.sourceFile)
	le.PutUint32(b[16:], r.sourceCRC)
	b[20] = r.flags
	le.PutUint64(b[24:], r.sourceBytes)
}

func decodeName(b []byte) nameRecord {
	_ = b[nameSize-1]
	return nameRecord{le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[16:]), b[20], le.Uint64(b[24:])}
}

type assetRecord struct {
	strOff, strLen      uint32 // in the strings section
	off, stored, rawLen uint64
	rawCRC              uint32
	kind, codec         uint8
}

func (r *assetRecord) encode(b []byte) {
	le.PutUint32(b, r.strOff)
	le.PutUint32(b[4:], r.strLen)
	le.PutUint64(b[8:], r.off)
	le.PutUint64(b[16:], r.stored)
	le.PutUint64(b[24:], r.rawLen)
	le.PutUint32(b[32:], r.rawCRC)
	b[36], b[37] = r.kind, r.codec
}

func decodeAsset(b []byte) assetRecord {
	_ = b[assetSize-1]
	return assetRecord{le.Uint32(b), le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint32(b[32:]), b[36], b[37]}
}

// assetReserved is the offset in an asset record of its reserved bytes.
const assetReserved = 38

func alignUp(n, a uint64) uint64 { return (n + a - 1) &^ (a - 1) }
