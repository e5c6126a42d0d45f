// Package crc32c has the one checksum of the project's files: CRC-32C (Castagnoli), as in RFC 3720.
package crc32c

import "hash/crc32"

var table = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC32C of p.
func Checksum(p []byte) uint32 { return crc32.Checksum(p, table) }

// Update returns the CRC32C of the bytes with checksum crc followed by p.
func Update(crc uint32, p []byte) uint32 { return crc32.Update(crc, table, p) }
