package safetensors

import (
	"crypto/sha256"
	"fmt"
	"hash"
)

// Stamps tells the checkpoint apart from others without reading all of it. There is one stamp a file: its name, size and time
// of change as they were when it was opened, the hash of its header, and the hash of samples of its data. The samples tell
// fine-tuned models from their base models when an archive gave the files the same times.
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

// sample hashes blocks spread evenly over a file.
func (c *Checkpoint) sample(file int) string {
	data := c.maps[file].Bytes()
	h := sha256.New()
	// Unchanged reports files that are shorter now.
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
