package mmap

import (
	"bytes"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testmapped"
)

// TestRelease releases a part and all of a file that was read.
func TestRelease(t *testing.T) {
	const size = 4 << 20
	path, content := write(t, size)
	f := open1(t, path)
	if !bytes.Equal(f.Bytes(), content) {
		t.Fatal("wrong content")
	}
	want := func(what string, least, most int64) {
		t.Helper()
		if got := testmapped.Resident(t, path); got < least || got > most+Granule {
			t.Errorf("%s: %d bytes are in memory, want %d to %d", what, got, least, most)
		}
	}
	want("read", size, size)
	f.Release(-1, 5)
	f.Release(size, 5)
	f.Release(5, 0)
	f.Need(-1, 5)
	f.Need(5, 1<<62)
	want("nothing released", size, size)
	f.Release(1<<20+5, 1<<20-5)            // from a granule's begin
	want("a part released", 0, size-1<<20) // of a huge page, all of it goes
	if !bytes.Equal(f.Bytes(), content) {
		t.Error("wrong content after Release")
	}
	want("read again", size, size)
	f.Release(3<<20, 1<<62)
	want("the end released", 0, size-1<<20)
	f.Release(0, size)
	f.Need(0, size) // brings bytes to the system's cache only
	want("all released", 0, 0)

	r, err := Reserve("x", Granule)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := r.Fill(0, Granule)
	if err != nil {
		t.Fatal(err)
	}
	copy(b, content)
	if r.Release(0, Granule); !bytes.Equal(b, content[:Granule]) {
		t.Error("bytes of a Region were lost")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	f.Release(0, size) // after Close: nothing
}
