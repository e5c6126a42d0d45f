//go:build unix

package include_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

var le = binary.LittleEndian

// Offsets in docs/FORMAT.md that mutations change.
const (
	headerSize  = 256
	secTensors  = 0
	secPayloads = 1
	secNames    = 2
	secDims     = 3
	secStrings  = 4
	secAssets   = 5
	secChecks   = 7
)

var recordSizes = [8]int{48, 96, 32, 8, 1, 48, 1, 4}

// section returns the bytes of a section; nil if the header places it outside the file.
func section(b []byte, sec int) []byte { return testshared.Section(b, sec) }

func sealFront(b []byte) { testshared.SealFront(b) }

func sealAll(b []byte) { testshared.Seal(b) }

// edges returns a number at a limit, or a number near old.
func edges(r *rand.Rand, old uint64) uint64 {
	switch r.IntN(3) {
	case 0:
		return old + uint64(r.IntN(9)) - 4
	case 1:
		return old + uint64(r.IntN(5)-2)*[]uint64{8, 16, 32, 64, 4096, 65536}[r.IntN(6)]
	}
	return []uint64{0, 1, 2, 4, 16, 32, 48, 64, 255, 256, 65535, 65536, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 61, 1 << 62, 1<<62 + 1, 1 << 63, 1<<64 - 1}[r.IntN(20)]
}

// mutate damages a copy of a file in a way that seed decides.
func mutate(good []byte, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 9))
	b := bytes.Clone(good)
	front := int(le.Uint64(b[32+24*secChecks:])) + 64 // the end of the directory, before the gap
	if seed%11 == 0 {                                 // truncated or extended
		n := max(0, len(b)+[]int{-r.IntN(len(b)), -64, -1, 1, 64, r.IntN(300)}[r.IntN(6)])
		if r.IntN(4) == 0 {
			n = r.IntN(headerSize + 10)
		}
		b = append(bytes.Clone(b[:min(n, len(b))]), make([]byte, max(0, n-len(b)))...)
		if n >= headerSize && r.IntN(2) == 0 { // and the header knows
			le.PutUint64(b[16:], uint64(n))
			le.PutUint64(b[232:], uint64(n)-le.Uint64(b[224:]))
		}
	}
	for range 1 + r.IntN(3)*r.IntN(2) {
		if len(b) <= headerSize {
			break
		}
		at := r.IntN(min(front, len(b)))
		if r.IntN(8) == 0 {
			at = r.IntN(len(b))
		}
		switch r.IntN(6) {
		case 0:
			b[at] ^= 1 << r.IntN(8)
		case 1:
			b[at] = byte(edges(r, uint64(b[at])))
		case 2: // a number of 4 or 8 bytes in its place
			at &^= 3
			word := make([]byte, 8)
			copy(word, b[at:])
			if r.IntN(2) == 0 {
				le.PutUint32(word, uint32(edges(r, uint64(le.Uint32(word)))))
			} else {
				le.PutUint64(word, edges(r, le.Uint64(word)))
			}
			copy(b[at:], word)
		case 3: // a run of bytes moved
			copy(b[at:min(at+r.IntN(100), len(b))], b[r.IntN(len(b)):])
		case 4: // two records exchanged
			sec := []int{secTensors, secPayloads, secNames, secDims, secAssets}[r.IntN(5)]
			size, records := recordSizes[sec], section(b, sec)
			if n := len(records) / size; n > 0 {
				x, y := records[r.IntN(n)*size:][:size], records[r.IntN(n)*size:][:size]
				saved := bytes.Clone(x)
				copy(x, y)
				copy(y, saved)
			}
		case 5: // a field of a record
			sec := []int{secTensors, secPayloads, secPayloads, secNames, secDims, secStrings, secAssets}[r.IntN(7)]
			size, records := recordSizes[sec], section(b, sec)
			if n := len(records) / size; n > 0 {
				field := records[r.IntN(n)*size:][:size]
				field = field[r.IntN(size):]
				switch width := 1 << r.IntN(4); {
				case width == 4 && len(field) >= 4:
					le.PutUint32(field, uint32(edges(r, uint64(le.Uint32(field)))))
				case width == 8 && len(field) >= 8:
					le.PutUint64(field, edges(r, le.Uint64(field)))
				default:
					field[0] = byte(edges(r, uint64(field[0])))
				}
			}
		}
	}
	switch r.IntN(8) {
	case 0:
	case 1:
		sealFront(b)
	default:
		sealAll(b)
	}
	return b
}

// structural are changes that break one or few rules, which random changes seldom do. Each is
// applied to a copy of a file, whose checksums are then corrected.
func structural(good []byte) []func(b []byte) {
	var list []func(b []byte)
	add := func(change func(b []byte)) { list = append(list, change) }
	record := func(b []byte, sec, i int) []byte { return section(b, sec)[i*recordSizes[sec]:] }
	count := func(sec int) int { return len(section(good, sec)) / recordSizes[sec] }
	for i := range count(secPayloads) {
		for value := range byte(6) {
			for _, field := range []int{20, 24, 25} { // slice, kind, variant
				add(func(b []byte) { record(b, secPayloads, i)[field] = value })
			}
		}
		for field := range 12 { // the packed header's version to dtype
			for _, value := range []byte{0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 18, 20, 21, 22, 23, 33, 34, 35, 36} {
				add(func(b []byte) { record(b, secPayloads, i)[32+4+field] = value })
			}
		}
		// A plain payload of the same size replaces a payload.
		add(func(b []byte) {
			h := record(b, secPayloads, i)[32:]
			copy(h, packing.PlainHeader(packing.U8, 1, le.Uint64(h[40:])).Append(nil))
		})
	}
	for i := range count(secNames) {
		for tensor := range count(secTensors) + 1 {
			add(func(b []byte) { record(b, secNames, i)[8] = byte(tensor) })
			add(func(b []byte) { // and the numbers of names are right
				n := record(b, secNames, i)
				old := record(b, secTensors, int(n[8]))
				n[8] = byte(tensor)
				if n[20]&2 == 0 && tensor < count(secTensors) {
					old[4]--
					record(b, secTensors, tensor)[4]++
				}
			})
		}
		for flags := range byte(5) {
			add(func(b []byte) { record(b, secNames, i)[20] = flags })
			add(func(b []byte) {
				n := record(b, secNames, i)
				n[20] = flags
				le.PutUint32(n[12:], 0xFFFFFFFF)
				le.PutUint32(n[16:], 0)
				le.PutUint64(n[24:], 0)
			})
		}
	}
	for i := range count(secTensors) {
		for field := range 48 {
			for _, value := range []byte{0, 1, 2, 3, 5, 10, 22, 23} {
				add(func(b []byte) { record(b, secTensors, i)[field] = value })
			}
		}
	}
	for i := range count(secAssets) {
		for kind := range byte(6) {
			for codec := range byte(3) {
				add(func(b []byte) { a := record(b, secAssets, i); a[36], a[37] = kind, codec })
			}
		}
	}
	// Strings that the rules of UTF-8, names and file names forbid or just allow, in many places.
	forbidden := []string{"\x00", "\x1f", " ", "~", "\x7f", "/", "\\", ":", "*", "?", "\"", "<", ">", "|", ".", "A.TXT", "nul.", "CoM7", "\x80", "\xc0\x80", "\xc3\xa9", "\xed\xa0\x80", "\xed\x9f\xbf",
		"\xf4\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xe0\x9f\xbf", "\xef\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xff"}
	for i := 0; i < len(section(good, secStrings)); i += 3 {
		for _, value := range forbidden {
			add(func(b []byte) { copy(section(b, secStrings)[i:], value) })
		}
	}
	for _, version := range [][2]uint32{{0, 0}, {0, 1}, {1, 1}, {2, 0}, {1 << 31, 0}} {
		add(func(b []byte) { le.PutUint32(b[8:], version[0]); le.PutUint32(b[12:], version[1]) })
	}
	for log := range byte(33) {
		add(func(b []byte) { b[28] = log })
	}
	return list
}

// consistent are changes of several fields that break one rule and keep all others.
func consistent(good []byte) []func(b []byte) {
	record := func(b []byte, sec, i int) []byte { return section(b, sec)[i*recordSizes[sec]:] }
	last := func(sec int) int { return len(section(good, sec))/recordSizes[sec] - 1 }
	list := []func(b []byte){
		func(b []byte) { // the checksums are 64 bytes after their place
			sums := bytes.Clone(section(b, secChecks))
			clear(section(b, secChecks))
			le.PutUint64(b[32+24*secChecks:], le.Uint64(b[32+24*secChecks:])+64)
			copy(section(b, secChecks), sums)
		},
		func(b []byte) { // the first name is empty, the second one is longer
			first, second := record(b, secNames, 0), record(b, secNames, 1)
			le.PutUint32(second, 0)
			le.PutUint32(second[4:], le.Uint32(first[4:])+le.Uint32(second[4:]))
			le.PutUint32(first[4:], 0)
		},
		func(b []byte) { // the last asset begins in the one before and ends in its place
			a := record(b, secAssets, last(secAssets))
			le.PutUint64(a[8:], le.Uint64(a[8:])-64)
			le.PutUint64(a[16:], le.Uint64(a[16:])+64)
		},
		func(b []byte) { // 1 x 9 x 40 becomes 9 x 40, and a dimension is left
			record(b, secTensors, last(secTensors))[12]--
			copy(record(b, secDims, last(secDims)-2), section(b, secDims)[8*(last(secDims)-1):])
		},
		func(b []byte) { b[len(b)-1] = 1 }, // in the gap after the last payload
		func(b []byte) { // a variant of a newer layout, with a companion of another one
			record(b, secPayloads, 2)[32+6], record(b, secPayloads, 3)[32+6] = 99, 98
		},
		func(b []byte) { // a variant of a newer layout, with a companion whose header is damaged
			record(b, secPayloads, 2)[32+6], record(b, secPayloads, 3)[32+7] = 99, byte(packing.FlagBias)
		},
	}
	for code := range byte(12) {
		// Mappings and algorithms, some of them reserved, some unlisted.
		list = append(list, func(b []byte) {
			record(b, secTensors, 1)[28], record(b, secTensors, 1)[29] = code, code
		})
	}
	for i := range last(secNames) + 1 {
		list = append(list, func(b []byte) { // an absorbed name becomes another name of its tensor
			record(b, secNames, i)[20] = 1
		})
	}
	for i := range last(secPayloads) + 1 {
		list = append(list, func(b []byte) { // codes in the place of a companion
			h := packing.Header{Layout: packing.LayoutCodes, Bits: 8, ScaleDtype: packing.ScaleF32, Rows: 1, Cols: max(1, le.Uint64(record(b, secPayloads, i)[72:]))}
			copy(record(b, secPayloads, i)[32:], append(h.Append(nil)[:60], 0, 0, 0, 0))
		})
	}
	return list
}
