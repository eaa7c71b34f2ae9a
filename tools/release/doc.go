// Command release writes the files that accompany the programs of a release: the SBOM of a program or image, the
// provenance statement, the release notes from CHANGELOG.md, and the packed chart. The Makefile and the scripts in
// deployment/ run it. The command itself is not released.
//
// The output depends only on the input, so two builds of a commit are identical.
package main
