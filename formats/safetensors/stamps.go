package safetensors

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"strconv"
)

// Stamps identifies the checkpoint without reading all of the data. A file's stamp is its name, its
// size and modification time at opening (of a remote file its version), the hash of its header, and
// the hash of samples of its data. The samples distinguish a fine-tuned model from its base model
// if an archive gave their files the same times.
func (c *Checkpoint) Stamps() []string {
	var list []string
	for i, f := range c.files {
		state := ""
		if r, ok := c.remoteFile(i); ok {
			state = r.Version
		} else {
			state = strconv.FormatInt(c.stats[i].ModTime().UnixNano(), 10)
		}
		list = append(list, fmt.Sprintf("%s %d %s %x %s", f.Name, f.Size, state, f.HeaderSHA256, c.sample(i)))
	}
	return list
}

// SampleDigest is the SHA-256 of samples of the data of all files, the same for copies on different
// machines, local and remote. SampleDigest takes fewer samples of each file than Stamps, because
// each may be a request: 64 divided among the files, and at least 8 of a file.
func (c *Checkpoint) SampleDigest() (digest [sha256.Size]byte, err error) {
	h := sha256.New()
	n := max(8, samples/max(1, len(c.files)))
	for i := range c.files {
		if err := c.hashSamples(h, i, n); err != nil {
			return digest, err
		}
	}
	h.Sum(digest[:0])
	return digest, nil
}

const (
	samples     = 64
	sampleBytes = 1 << 12
)

// sample hashes blocks that are spread evenly over a file.
func (c *Checkpoint) sample(file int) string {
	h := sha256.New()
	if c.hashSamples(h, file, samples) != nil {
		return "unreadable" // Unchanged reports a file that has become shorter
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// hashSamples adds n samples of a file to a hash.
func (c *Checkpoint) hashSamples(h hash.Hash, file, n int) error {
	data := c.maps[file].Bytes()
	places := sampled(file, int64(len(data)), n)
	release, err := c.fetch(places)
	if err != nil {
		return err
	}
	defer release()
	return c.Guard(func() error {
		for _, r := range places {
			h.Write(data[r.Offset:][:r.Size])
		}
		return nil
	})
}

// sampled are the places of n samples in a file of size bytes: all of a small file.
func sampled(file int, size int64, n int) (list []Range) {
	if size <= samples*sampleBytes {
		return []Range{{File: file, Size: size}}
	}
	for i := range int64(n) {
		list = append(list, Range{File: file, Offset: (size - sampleBytes) * i / int64(n-1), Size: sampleBytes})
	}
	return list
}
