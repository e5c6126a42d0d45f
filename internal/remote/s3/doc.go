// Package s3 reads and writes objects of S3 and of stores with its protocol: Google Cloud Storage
// with HMAC keys, Cloudflare R2, MinIO, Ceph.
//
//	b, err := s3.Open(location, client)       // s3://BUCKET/PREFIX or gs://BUCKET/PREFIX
//	b.List, b.ReadAt                          // a remote.Store
//	w, err := b.Create(ctx, size, nil)        // an object that appears when complete
//	w.WriteAt(p, off)                         // from any number of goroutines, in any order
//	w.Commit()                                // or w.Abort()
//
// minio-go signs requests and parses answers. Package remote repeats failed requests, so that all
// kinds of stores have the same rules.
//
// # Writing
//
// An object is uploaded in parts. PartSize chooses their size by the size of the object: S3 has at
// most 10,000 parts of 5 MiB to 5 GiB each. Package pieces assembles the parts: a part is sent as
// soon as all of its bytes are written, the part with the front of the file last.
//
// The object appears when its upload is completed. Until then the bucket keeps the former object. A
// failure aborts the upload. The end of the process by any means leaves an unfinished upload
// behind, invisible but paid for; the next Create for the same object aborts such uploads. Hence
// two processes must not write the same object at the same time, unless both share the Upload.
package s3
