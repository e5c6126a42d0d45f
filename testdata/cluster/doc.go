// Package cluster tests gq with what a cluster has: an S3 server, and the manifests of
// docs/cluster. It is a module of its own, so that nobody who uses gq gets its dependencies. See
// README.md.
package cluster
