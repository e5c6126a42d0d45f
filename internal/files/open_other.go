//go:build !unix

package files

// openFlags: on these systems os.Stat distinguishes named pipes from files.
const openFlags = 0
