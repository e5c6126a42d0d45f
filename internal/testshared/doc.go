// Package testshared finds the test material that lies outside the repository and
// reads compressed fixtures that lie in it. Only tests import it.
//
// The models, texts and vectors that may not be copied into the project are in a
// directory "shared" beside the module's root. A developer who lacks it sees the
// tests that need it skipped; where the environment variable CI is set, a missing
// directory is a failure, so no test is skipped there unnoticed.
package testshared
