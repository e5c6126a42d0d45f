// Package testshared finds the test material that lies outside the repository and reads compressed
// fixtures that lie in it. Only tests import it.
//
// The models, texts and vectors that may not be copied into the project are in a directory "shared"
// beside the module's root. Without it, the tests that need it are skipped; if the environment
// variable CI is set, they fail, so that CI skips no test unnoticed.
package testshared
