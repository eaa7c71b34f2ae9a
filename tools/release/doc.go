// Command release writes what a release has beside its programs: the manual and the shell
// completions, from the table of settings; the list of what is in a program or an image (SBOM),
// from what the Go toolchain recorded and the packages' entries; the provenance statement; the
// notes, from CHANGELOG.md. The Makefile and deployment/ run it; it is in no release itself.
//
// Everything that it writes follows from its input alone: two builds of a commit are the same.
package main
