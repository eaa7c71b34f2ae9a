// Package material finds what tests need from outside the repository: recordings and files of other
// projects that lie beside it where the project is developed.
//
// A test requests a path. Where there is nothing, the test is skipped with a typed reason, or fails
// if REQUIRE_SHARED_MATERIAL is 1. If SKIPPED_CHECKS names a file, each skip appends a line with
// its reason and its test to it: "make test" prints their number, so that a run says what the
// absence costs.
package material
