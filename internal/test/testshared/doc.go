// Package testshared finds the test material outside the repository and reads compressed fixtures
// inside. Only tests import testshared.
//
// The models, texts and vectors that may not be copied into the project are in a directory "shared"
// next to the module's root. Without that directory, tests that need it are skipped; if the
// environment variable CI is set, such tests fail, so that CI skips no test unnoticed.
package testshared
