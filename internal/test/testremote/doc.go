// Package testremote is a server on loopback like the Hugging Face Hub, for tests. A second server
// on another port, like the hub's content network, serves files in Git LFS: the hub redirects there
// with a signed address. Both serve ranges of bytes. Files of a directory can also be served by a
// plain web server.
//
// A schedule of faults says what goes wrong with the n-th request. The log has all requests with
// their headers, so that a test can show that no token goes to a wrong place.
package testremote
