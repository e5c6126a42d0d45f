package safetensors

import (
	"crypto/sha256"
	"fmt"
	"hash"
)

// Stamps identifies the checkpoint without reading all of it. Each file has one stamp: its name,
// its size and modification time at opening, the hash of its header, and the hash of samples of its
// data. The samples distinguish a fine-tuned model from its base model if an archive gave their
// files the same times.
func (c *Checkpoint) Stamps() []string {
	var list []string
	for i, f := range c.files {
		list = append(list, fmt.Sprintf("%s %d %d %x %s", f.Name, c.stats[i].Size(), c.stats[i].ModTime().UnixNano(), f.HeaderSHA256, c.sample(i)))
	}
	return list
}

const (
	samples     = 64
	sampleBytes = 1 << 12
)

// sample hashes blocks that are spread evenly over a file.
func (c *Checkpoint) sample(file int) string {
	data := c.maps[file].Bytes()
	h := sha256.New()
	// Unchanged reports a file that has become shorter.
	if err := c.Guard(func() error { return writeSamples(h, data) }); err != nil {
		return "truncated"
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func writeSamples(h hash.Hash, data []byte) error {
	if len(data) <= samples*sampleBytes {
		h.Write(data)
		return nil
	}
	for i := range samples {
		at := int(int64(len(data)-sampleBytes) * int64(i) / (samples - 1))
		h.Write(data[at:][:sampleBytes])
	}
	return nil
}
