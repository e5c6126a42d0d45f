// Package testremote is a server on loopback like the Hugging Face Hub, for tests. Files in Git LFS are
// served by a second server on another port, like the hub's content network: the hub redirects to it
// with a signed address. Both serve ranges of bytes, and files of a directory can also be served as
// they are, by a plain web server.
//
// A schedule of faults says what goes wrong with the n-th request. The log has all requests with their
// headers, so that a test can show that no token goes where it does not belong.
package testremote
