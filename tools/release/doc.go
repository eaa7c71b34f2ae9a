// Command release writes the files of a release beside its programs: the list of the parts of a
// program or an image (SBOM), from the Go toolchain's records and the packages' entries; the
// provenance statement; the notes, from CHANGELOG.md; the packed chart. The Makefile and
// deployment/ run it; it is in no release itself.
//
// Everything that it writes follows from its input alone: two builds of a commit are the same.
package main
