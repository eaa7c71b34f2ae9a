// Command release writes the files that accompany the programs of a release: the SBOM of a program or image, the
// provenance statement, the release notes from CHANGELOG.md, and the packed chart. The Makefile and the scripts in
// deployment/ run it. The command itself is not released.
//
// The output depends only on the input and the Go release, so that builds of a commit are identical. The chart is an
// exception: Helm stores the time in the archive, and deployment/release/build.sh packs it again.
package main
