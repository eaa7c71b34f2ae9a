// Command release writes the files that accompany the programs of a release: the SBOM of a program or image, the
// provenance statement, the release notes from CHANGELOG.md, and the packed chart. The Makefile and the scripts in
// deployment/ run it. It is not part of a release.
//
// Its output depends only on its input, so two builds of a commit are identical.
package main
