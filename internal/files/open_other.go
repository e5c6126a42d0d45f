//go:build !unix

package files

// openFlags: named pipes have names of their own, which os.Stat tells from files.
const openFlags = 0
