// Package remote reads byte ranges of files that are not on this machine. The package knows nothing
// of models.
//
// A [Store] is a place with files: a revision of a Hugging Face repository (package hub), a
// directory on a web server (package web), or a prefix of an object store (package s3). [Parse]
// reads the names of such places.
//
// Client is the only HTTP client. A Client repeats requests that failed for a passing reason,
// checks that an answer is the requested range, notices a file that changed between two requests,
// and sends credentials to their host only, over TLS only.
//
// No credential is ever printed: a Location prints without its user, password and query, and errors
// name files by their Location.
package remote
