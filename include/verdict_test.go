//go:build unix

package include_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/testshared"
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
func sealAll(b []byte)   { testshared.Seal(b) }

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

// otherCompanions are changes of one packed header, in all slices. Afterwards companions do not fit
// the weights, or the elements of a plain payload do not fit its tensor. Everything else, including
// the sizes, is correct.
func otherCompanions(t testing.TB, good []byte) []func(b []byte) {
	var list []func(b []byte)
	sameSize := map[packing.Dtype][]packing.Dtype{
		packing.F32: {packing.I32, packing.U32}, packing.BF16: {packing.F16, packing.I16}, packing.F16: {packing.BF16, packing.U16},
		packing.I8: {packing.U8, packing.Bool, packing.F8E4M3}, packing.I64: {packing.F64, packing.C64},
	}
	records := func(b []byte) []byte { return section(b, secPayloads) }
	for i := range len(records(good)) / 96 {
		r := records(good)[96*i:][:96]
		h, err := packing.ParseHeader(r[32:])
		if err != nil {
			t.Fatal(err)
		}
		if le.Uint32(r[20:]) > 0 {
			continue
		}
		size, _ := h.DataSize()
		add := func(edit func(h *packing.Header), more ...func(b []byte)) {
			changed := h
			edit(&changed)
			changed = changed.Canonical()
			n, err := changed.DataSize()
			if err != nil || n > size || n < size && r[24] == 0 || changed.Validate() != nil || changed == h {
				return
			}
			list = append(list, func(b []byte) {
				for all := records(b); len(all) > 0; all = all[96:] {
					if le.Uint32(all[16:]) == le.Uint32(r[16:]) && all[24] == r[24] && all[25] == r[25] {
						changed.Append(all[32:32])
						le.PutUint64(all[8:], packing.HeaderSize+uint64(n))
					}
				}
				for _, f := range more {
					f(b)
				}
			})
		}
		for _, d := range sameSize[h.Dtype] {
			add(func(h *packing.Header) { h.Dtype = d })
		}
		if r[24] != 0 {
			add(func(h *packing.Header) { h.Rows-- })
			add(func(h *packing.Header) { h.Cols-- })
			add(func(h *packing.Header) { h.Rows, h.Cols = h.Cols, h.Rows })
			add(func(h *packing.Header) { h.Rows, h.Cols = 1, h.Rows*h.Cols })
			continue
		}
		for _, group := range []uint64{0, 16, 32, 48} {
			changed := h
			if changed.Group = group; changed.Groups() != h.Groups() {
				add(func(h *packing.Header) { h.Group = group })
			}
		}
		tensor := section(good, secTensors)[48*le.Uint32(r[16:]):]
		switch {
		case h.Layout == packing.LayoutCodes:
			add(func(h *packing.Header) { h.ZeroKind ^= packing.ZeroInt8 })
			for dtype := packing.ScaleBF16; dtype <= packing.ScaleF32; dtype++ {
				add(func(h *packing.Header) { h.ScaleDtype = dtype })
			}
			if tensor[15] == 0 { // not transposed: the same shape as plain
				add(func(h *packing.Header) { *h = packing.PlainHeader(packing.U8, h.Rows, h.Cols) },
					func(b []byte) { section(b, secTensors)[48*le.Uint32(r[16:])+13] = byte(packing.U8) })
			}
		case h.Layout == packing.LayoutPlain && h.Dtype.Bits() == 8 && h.Rows > 0:
			add(func(h *packing.Header) {
				*h = packing.Header{Layout: packing.LayoutCodes, Bits: 8, ScaleDtype: packing.ScaleF32, Rows: h.Rows, Cols: h.Cols}
			})
		}
	}
	return list
}

// TestCompanions checks that both readers refuse companions that do not fit.
func TestCompanions(t *testing.T) {
	good := everything(t)
	list := otherCompanions(t, good)
	count := map[string]int{}
	for _, tc := range []toolchain{sanitized, arm64} {
		opened, _ := differ(t, tc, good, false, len(list), func(i int) []byte {
			b := bytes.Clone(good)
			list[i](b)
			sealAll(b)
			_, err := gqf.OpenBytes(b, gqf.Options{})
			for _, rule := range []string{"without a companion", "do not have", "the weights need", "the tensor's are"} {
				if err != nil && strings.Contains(err.Error(), rule) {
					count[rule]++
					return b
				}
			}
			t.Errorf("change %d: %v, want an error of a companion or of elements", i, err)
			return b
		})
		if opened > 0 {
			t.Errorf("%d of %d opened", opened, len(list))
		}
	}
	t.Logf("%d changes: %v", len(list), count)
	if len(count) != 4 {
		t.Error("not all rules were broken")
	}
}

// TestStringSizes moves the start of a string of the maximum length one byte down.
func TestStringSizes(t *testing.T) {
	x := newFixture()
	i := x.tensor(gqf.TensorSpec{Name: "ab", Dtype: packing.U8}, gqf.PayloadSpec{Header: packing.PlainHeader(packing.U8, 1, 1)})
	x.name(gqf.NameSpec{Name: strings.Repeat("z", 65535), Tensor: i, SourceFile: -1})
	x.AddAsset(gqf.AssetSpec{Kind: gqf.AssetFile, Name: strings.Repeat("a", 200)})
	good := x.build(t)
	opened, _ := differ(t, sanitized, good, false, 3, func(i int) []byte {
		b := bytes.Clone(good)
		names := section(b, secNames)
		records := [][]byte{names, names[32:], section(b, secAssets)}
		if i < 2 {
			before, behind := records[i], records[i+1]
			le.PutUint32(before[4:], le.Uint32(before[4:])-1)
			le.PutUint32(behind, le.Uint32(behind)-1)
			le.PutUint32(behind[4:], le.Uint32(behind[4:])+1)
		}
		sealAll(b)
		return b
	})
	if opened != 1 {
		t.Errorf("%d opened, want only the one that is unchanged", opened)
	}
}

// edits describes b to driver.c as the changes of base.
func edits(dst, base, b []byte) []byte {
	type run struct{ from, to int }
	var runs []run
	common := min(len(base), len(b))
	for i := 0; i < len(b); i++ {
		if i < common {
			if n := min(4096, common-i); bytes.Equal(base[i:i+n], b[i:i+n]) {
				i += n - 1
				continue
			}
			if base[i] == b[i] {
				continue
			}
		} else if b[i] == 0 {
			continue
		}
		if n := len(runs); n > 0 && i-runs[n-1].to < 16 {
			runs[n-1].to = i + 1
		} else {
			runs = append(runs, run{i, i + 1})
		}
	}
	dst = le.AppendUint32(dst, uint32(len(b)))
	dst = le.AppendUint32(dst, uint32(len(runs)))
	for _, r := range runs {
		dst = le.AppendUint32(dst, uint32(r.from))
		dst = le.AppendUint32(dst, uint32(r.to-r.from))
		dst = append(dst, b[r.from:r.to]...)
	}
	return dst
}

// class is the number that driver.c gives to a kind of error of the Go reader.
func class(t testing.TB, err error) int {
	if err == nil {
		return 0
	}
	if _, ok := errors.AsType[*gqf.FormatError](err); ok {
		return 1
	}
	if _, ok := errors.AsType[*gqf.ForeignError](err); ok {
		return 1
	}
	if _, ok := errors.AsType[*gqf.UnsupportedError](err); !ok {
		t.Fatal(err)
	}
	return 2
}

// A verdict is a reader's result for a file.
type verdict struct {
	open, verify int    // classes; verify is 0 if open is not
	dump         uint32 // CRC32C of the dump
	zstd         bool   // a compressed asset is damaged after its frame's header, which gqf.h cannot find
	message      string
}

func goVerdict(t testing.TB, b []byte) verdict {
	f, err := gqf.OpenBytes(b, gqf.Options{})
	if err != nil {
		return verdict{open: class(t, err), message: err.Error()}
	}
	v := verdict{dump: crc([]byte(dump(f)))}
	r, err := f.Verify(context.Background(), gqf.VerifyOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Damage {
		if v.message += d.String() + "; "; strings.Contains(d.Message, "cannot be decompressed") || strings.Contains(d.Message, "has checksum") {
			v.zstd = true
		}
	}
	if !r.OK() {
		v.verify = 1
	}
	return v
}

// differ compares the verdicts of another reader and of Go's on files: file(i) is good after one or
// several changes. It returns how many files were opened, and how many of them verified.
func differ(t *testing.T, other reader, good []byte, several bool, n int, file func(i int) []byte) (opened, verified int) {
	t.Helper()
	run := other.driver(t)
	path := filepath.Join(t.TempDir(), "good.gqf")
	if err := os.WriteFile(path, good, 0o666); err != nil {
		t.Fatal(err)
	}
	want := make([]verdict, n)
	var input []byte
	for i := range n {
		b := file(i)
		want[i] = goVerdict(t, b)
		input = edits(input, good, b)
	}
	out, err := run(input, "mutants", path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) != n {
		t.Fatalf("%d verdicts for %d files: %s", len(lines), n, lines[len(lines)-1])
	}
	wrong := 0
	for i, line := range lines {
		var got verdict
		if _, err := fmt.Sscanf(line, "%d %d %x", &got.open, &got.verify, &got.dump); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		w := want[i]
		if w.open == 0 {
			opened++
			if w.verify == 0 {
				verified++
			}
		}
		// gqf.h cannot find damage in a compressed asset.
		if w.zstd {
			got.verify, got.dump = w.verify, w.dump
		}
		// If several rules are broken, readers may report different ones.
		if several && got.open > 0 && w.open > 0 {
			got.open = w.open
		}
		if got.open != w.open || got.verify != w.verify || got.dump != w.dump {
			if wrong++; wrong < 10 {
				t.Errorf("file %d: the other reader says %s; Go says %d %d %08x %s", i, line, w.open, w.verify, w.dump, w.message)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d verdicts differ", wrong, n)
	}
	return opened, verified
}

// TestMutations compares both readers on thousands of damaged files. The sanitized program reads most
// of them; the others hold the compilers' code to the same verdicts.
func TestMutations(t *testing.T) {
	good := everything(t)
	changes := structural(good)
	for _, test := range []struct {
		toolchain
		random int // changes
		share  int // one in this many structural changes is tested
	}{{sanitized, 3000, 4}, {optimized, 1000, 11}, {arm64, 500, 61}, {arm64CRC, 200, 97}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			opened, verified := differ(t, test.toolchain, good, true, test.random, func(i int) []byte { return mutate(good, uint64(i)) })
			t.Logf("%d of %d random changes could be opened, %d verified", opened, test.random, verified)
			if opened < test.random/20 || verified < test.random/100 {
				t.Error("too few to test what comes behind opening")
			}
			few := consistent(good)
			for i := 0; i < len(changes); i += test.share {
				few = append(few, changes[i])
			}
			n := len(few)
			opened, verified = differ(t, test.toolchain, good, false, n, func(i int) []byte {
				b := bytes.Clone(good)
				few[i](b)
				sealAll(b)
				return b
			})
			t.Logf("%d of %d structural changes could be opened, %d verified", opened, n, verified)
		})
	}
}

// TestQuantizedMutations does the same with quantized models, which are larger.
func TestQuantizedMutations(t *testing.T) {
	for _, s := range quantized(t) {
		good, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		opened, _ := differ(t, sanitized, good, true, 100, func(i int) []byte { return mutate(good, uint64(i)) })
		t.Logf("%s: %d of 100 could be opened", s.name, opened)
	}
}

// TestNameCounts has more tensors with several names than gqf.h counts at once.
func TestNameCounts(t *testing.T) {
	const tensors = 5000
	x := newFixture()
	for i := range tensors {
		name := fmt.Sprintf("%05d", i*7919%100003) // names and tensors have different orders
		x.tensor(gqf.TensorSpec{Name: name, Shape: []int64{1}, Dtype: packing.U8}, gqf.PayloadSpec{Header: packing.PlainHeader(packing.U8, 1, 1)})
		for k := range []int{0, 1, 0, 3}[i%4] {
			x.name(gqf.NameSpec{Name: fmt.Sprintf("%d %05d", k, i*104729%99991), Tensor: i, SourceFile: -1})
		}
	}
	good := x.build(t)
	r := rand.New(rand.NewPCG(1, 2))
	opened, _ := differ(t, optimized, good, false, 50, func(i int) []byte {
		b := bytes.Clone(good)
		records := section(b, secTensors)
		tensor := func() []byte { return records[r.IntN(tensors)*48:] }
		switch i % 5 {
		case 0: // nothing
		case 1: // one too many
			tensor()[4]++
		case 2: // the total is right
			tensor()[4]++
			if a := tensor(); a[4] > 0 {
				a[4]--
			}
		case 3: // names go to other tensors
			names := section(b, secNames)
			a, c := names[r.IntN(len(names)/32)*32:], names[r.IntN(len(names)/32)*32:]
			a[8], a[9], c[8], c[9] = c[8], c[9], a[8], a[9]
		case 4: // an absorbed name does not count
			names := section(b, secNames)
			names[r.IntN(len(names)/32)*32+20] = 3
		}
		sealAll(b)
		return b
	})
	if opened < 10 {
		t.Errorf("%d opened", opened)
	}
}

// onlyBits has the layouts with a single width of codes, and this width.
var onlyBits = map[packing.Layout]uint8{
	packing.LayoutQSI4CXP: 4, packing.LayoutQSI4C32PF16: 4, packing.LayoutQSI8CXP: 8,
	packing.LayoutQAI4C32P: 4, packing.LayoutQSU2CXP: 2, packing.LayoutTorchAOKleidiAI: 4,
}

// randomHeader returns 64 bytes in which most fields of a packed header are valid.
func randomHeader(r *rand.Rand) []byte {
	pick := func(list ...uint64) uint64 { return list[r.IntN(len(list))] }
	l := packing.Layouts[r.IntN(len(packing.Layouts))]
	h := packing.Header{Layout: l, Rows: 1 + r.Uint64N(300), Cols: pick(1, 2, 4, 16) * (1 + r.Uint64N(100))}
	if l == packing.LayoutPlain {
		h.Dtype = packing.Dtype(r.IntN(24))
		h.Rows, h.Cols = h.Rows-1, h.Cols-1
	} else {
		h = layout(l, h.Rows, h.Cols, 0, uint8(pick(1, 2, 3, 4, 4, 4, 5, 6, 7, 8, 8)))
		if bits, ok := onlyBits[l]; ok && r.IntN(4) > 0 {
			h.Bits = bits
		}
		if tiles := l.Tiles(); len(tiles) > 0 {
			h.Tile = tiles[r.IntN(len(tiles))]
		}
		if r.IntN(2) == 0 {
			h.Cols = 32 * (1 + r.Uint64N(60))
		}
		h.Group = pick(0, 0, 0, 16, 32, 32, 48, 64, 96, h.Cols)
		if r.IntN(4) == 0 {
			h.ScaleDtype = packing.ScaleDtype(1 + r.IntN(3))
		}
		if r.IntN(4) == 0 {
			h.ZeroKind = packing.ZeroKind(r.IntN(4))
		}
		if r.IntN(3) == 0 {
			h.Flags = packing.Flags(r.IntN(8))
		}
		h.Flags &^= packing.FlagQSI4C32P
		if r.IntN(4) > 0 {
			h = h.Canonical()
		}
		if r.IntN(8) == 0 {
			h.Grid = packing.GridHalfStep
		}
	}
	if r.IntN(6) == 0 {
		h.Rows = edges(r, h.Rows)
	}
	if r.IntN(6) == 0 {
		h.Cols = edges(r, h.Cols)
	}
	if r.IntN(12) == 0 {
		h.Group = edges(r, h.Group)
	}
	var size uint64
	if n, err := h.DataSize(); err == nil {
		size = uint64(n)
	}
	if r.IntN(10) == 0 {
		size = edges(r, size)
	}
	b := rawHeader(h, size)
	if r.IntN(6) == 0 {
		b[r.IntN(60)] = byte(edges(r, 4))
		le.PutUint32(b[60:], crc(b[:60]))
	}
	if r.IntN(50) == 0 {
		b[r.IntN(64)] ^= 1 << r.IntN(8)
	}
	return b
}

// rawHeader is h, valid or not, as 64 bytes.
func rawHeader(h packing.Header, size uint64) []byte {
	b := []byte{'G', 'Q', 'P', 'K', 1, 0, byte(h.Layout), byte(h.Flags), h.Bits, byte(h.Grid), byte(h.ScaleDtype), byte(h.ZeroKind), h.Tile.NR, h.Tile.KR, h.Tile.SR, byte(h.Dtype)}
	for _, v := range []uint64{h.Rows, h.Cols, h.Group, size} {
		b = le.AppendUint64(b, v)
	}
	b = append(b, make([]byte, 12)...)
	return le.AppendUint32(b, crc(b))
}

// TestPackedHeaders compares gqf_packed_read with packing.ParseHeader: the fields that each layout
// allows, and the sizes of data.
func TestPackedHeaders(t *testing.T) {
	for _, test := range []struct {
		toolchain
		n int
	}{{sanitized, 20_000}, {cxx, 5000}, {arm64, 5000}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			run := test.compile(t, driver)
			r := rand.New(rand.NewPCG(3, 4))
			var input []byte
			var want []string
			valid := map[packing.Layout]int{}
			for i := range test.n {
				b := randomHeader(r)
				if i < 8*9 { // TorchAO's sums of int32: just short enough, and not
					h := packing.Header{Layout: packing.LayoutTorchAOLinear, Bits: uint8(1 + i/9), ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: 9}
					h.Group = 1<<(31-i/9) - 16 + 16*uint64(i%3)
					h.Cols = h.Group * uint64(1+i/3%3)
					if i/3%3 == 0 {
						h.Group = 0
					}
					size, err := h.DataSize()
					if err != nil {
						t.Fatal(err)
					}
					b = rawHeader(h, uint64(size))
				}
				input = append(input, b...)
				h, err := packing.ParseHeader(b)
				if err == nil {
					want = append(want, "0"+dumpHeader(h))
					valid[h.Layout]++
				} else if _, ok := errors.AsType[*packing.UnsupportedError](err); ok {
					want = append(want, "2")
				} else {
					want = append(want, "1")
				}
			}
			out, err := run(input, "headers")
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
			if len(got) != len(want) {
				t.Fatalf("%d lines for %d headers", len(got), len(want))
			}
			wrong := 0
			for i := range got {
				if got[i] != want[i] {
					if wrong++; wrong < 10 {
						t.Errorf("% x: C says %s, Go %s", input[64*i:64*i+64], got[i], want[i])
					}
				}
			}
			t.Logf("valid of %d: %v", test.n, valid)
			for _, l := range packing.Layouts {
				if valid[l] < test.n/400 {
					t.Errorf("%d valid headers of %s", valid[l], l)
				}
			}
		})
	}
}
