// Package material finds test data outside the repository: recordings, and files of other projects. They are in a
// folder next to the repository on development machines.
//
// A test requests a path. If it does not exist, the test is skipped with a reason that programs can parse. If
// REQUIRE_SHARED_MATERIAL is 1, the test fails instead. If SKIPPED_CHECKS names a file, each skip appends a line with
// the reason and the test. "make test" prints the number of these lines.
package material
