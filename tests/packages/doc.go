// Package packages holds what deployment/packages and "make release" make against those who take
// it: dpkg in a minimal Debian, where the package is installed, upgraded, removed and purged, and
// the program runs as the package's user; rpm, which reads the other; and the parts of a release
// against each other and against the changelog.
//
// It needs root and the programs of "make cross"; "make packages-test" and "make release-test" run
// it.
package packages
