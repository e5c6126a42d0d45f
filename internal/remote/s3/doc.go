// Package s3 reads and writes objects of S3 and of stores that speak its protocol: Google Cloud Storage
// with HMAC keys, Cloudflare R2, MinIO, Ceph.
//
//	b, err := s3.Open(location, client)       // s3://BUCKET/PREFIX or gs://BUCKET/PREFIX
//	b.List, b.ReadAt                          // a remote.Store
//	w, err := b.Create(ctx, size, nil)        // an object that appears when it is complete
//	w.WriteAt(p, off)                         // from any number of goroutines, in any order
//	w.Commit()                                // or w.Abort()
//
// Requests are signed, and answers parsed, by minio-go. Failed requests are repeated by package remote,
// so that all kinds of stores have the same rules.
//
// # Writing
//
// An object is uploaded in parts. PartSize chooses their size by the size of the object: S3 has at most
// 10,000 parts of 5 MiB to 5 GiB each. Package pieces assembles them: a part is sent as soon as all of its
// bytes are written, the part with the front of the file last.
//
// The object appears when its upload is completed. Until then the bucket keeps the former object. A
// failure aborts the upload. The end of the process by any means leaves an unfinished upload behind,
// which is invisible but is paid for; the next Create for the same object aborts it. Hence two
// processes must not write one object at the same time, unless they share one Upload.
package s3
