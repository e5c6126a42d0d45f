package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// heldBytes is the most memory for bytes of all [Hashed] of a source that came before their turn.
const heldBytes = 32 << 20

// grain is the unit of ranges. Its hash is kept: bytes that are read again must be the same.
const grain = 64 << 10

var seed = maphash.MakeSeed()

// A Hashed computes the SHA-256 of an object while its ranges are read, in about their order.
// Several goroutines may call methods. Ranges begin and end at multiples of 64 KiB, or at the end
// of the object.
type Hashed struct {
	store  Store
	object Object
	room   *atomic.Int64 // shared by the objects of a source

	mu   sync.Mutex
	seen []uint32 // a hash of each grain; 0: not read
	sum  hash.Hash
	at   int64            // the bytes before are hashed
	held map[int64][]byte // bytes behind at, by offset
}

func HashObjects(s Store, objects []Object) (list []*Hashed) {
	room := &atomic.Int64{}
	room.Store(heldBytes)
	for _, o := range objects {
		list = append(list, &Hashed{store: s, object: o, room: room, sum: sha256.New(), seen: make([]uint32, (o.Size+grain-1)/grain), held: map[int64][]byte{}})
	}
	return list
}

func (h *Hashed) ReadAt(ctx context.Context, dst []byte, off int64) error {
	err := h.store.ReadAt(ctx, h.object, dst, off)
	if err != nil || h.object.SHA256 == "" {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := int64(0); i < int64(len(dst)); i += grain {
		s := uint32(maphash.Bytes(seed, dst[i:min(i+grain, int64(len(dst)))])) | 1
		if was := &h.seen[(off+i)/grain]; *was == 0 {
			*was = s
		} else if *was != s {
			return fmt.Errorf("bytes %d to %d differ in two readings: they were changed on their way: run the command again", off+i, off+i+grain)
		}
	}
	h.add(dst, off)
	return nil
}

// add hashes the bytes from off on, or holds early bytes until their turn.
func (h *Hashed) add(p []byte, off int64) {
	if n := int64(len(p)); off > h.at {
		if h.held[off] == nil && h.room.Add(-n) >= 0 {
			h.held[off] = slices.Clone(p)
		} else {
			h.room.Add(n)
		}
		return
	}
	h.take(p, off)
	for _, off := range slices.Sorted(maps.Keys(h.held)) {
		if off > h.at {
			break
		}
		h.take(h.held[off], off)
		h.room.Add(int64(len(h.held[off])))
		delete(h.held, off)
	}
}

func (h *Hashed) take(p []byte, off int64) {
	if skip := h.at - off; skip < int64(len(p)) {
		h.sum.Write(p[skip:])
		h.at = off + int64(len(p))
	}
}

// Check compares the hash with the store's, after reading bytes that nobody read, or that were not
// held.
func (h *Hashed) Check(ctx context.Context) error {
	if h.object.SHA256 == "" {
		return nil
	}
	for h.at < h.object.Size {
		b := make([]byte, min(h.object.Size-h.at, 4<<20))
		if err := h.ReadAt(ctx, b, h.at); err != nil {
			return err
		}
	}
	if found := hex.EncodeToString(h.sum.Sum(nil)); found != h.object.SHA256 {
		return fmt.Errorf("%v: %s: its SHA-256 is %s, expected %s: bytes were changed on their way, or the list of files is wrong: run the command again", h.store, h.object.Name, found, h.object.SHA256)
	}
	return nil
}
