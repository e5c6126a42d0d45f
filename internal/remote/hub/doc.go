// Package hub reads repositories of the Hugging Face Hub and keeps their files in the cache of the
// Python library huggingface_hub, in its layout:
//
//	models--ORG--NAME/blobs/ETAG               contents, by SHA-256 (Git LFS) or Git's hash
//	models--ORG--NAME/refs/REVISION            the last known commit of a branch or tag
//	models--ORG--NAME/snapshots/COMMIT/FILE    relative symbolic links to blobs
//	.locks/models--ORG--NAME/ETAG.lock         locked while a blob is downloaded
//
// Incomplete blobs have names of their own (package transfer), because several places are written
// at once and the Python library takes the length of its incomplete files for their progress. Locks
// exclude the Python library on Unix, where both use flock.
package hub
