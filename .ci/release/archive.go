package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// file is one entry of an archive.
type file struct {
	name string // in the archive, below its directory
	path string // on this machine
	mode fs.FileMode
}

// epoch is the time of every entry, so that archives do not depend on when they were made. It is
// the earliest that the zip format can state.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// writeTarGz writes files into a new archive at path, all below the directory dir.
func writeTarGz(path, dir string, files []file) error {
	return create(path, func(w io.Writer) error {
		zw := gzip.NewWriter(w)
		tw := tar.NewWriter(zw)
		for _, f := range files {
			data, err := os.ReadFile(f.path)
			if err != nil {
				return err
			}
			h := &tar.Header{Name: dir + "/" + f.name, Mode: int64(f.mode), Size: int64(len(data)), ModTime: epoch, Format: tar.FormatUSTAR}
			if err := tw.WriteHeader(h); err != nil {
				return err
			}
			if _, err := tw.Write(data); err != nil {
				return err
			}
		}
		return errors.Join(tw.Close(), zw.Close())
	})
}

// writeZip is writeTarGz for Windows.
func writeZip(path, dir string, files []file) error {
	return create(path, func(w io.Writer) error {
		zw := zip.NewWriter(w)
		for _, f := range files {
			data, err := os.ReadFile(f.path)
			if err != nil {
				return err
			}
			h := &zip.FileHeader{Name: dir + "/" + f.name, Method: zip.Deflate, Modified: epoch}
			h.SetMode(f.mode)
			entry, err := zw.CreateHeader(h)
			if err != nil {
				return err
			}
			if _, err := entry.Write(data); err != nil {
				return err
			}
		}
		return zw.Close()
	})
}

// create makes a file whose content write gives.
func create(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
