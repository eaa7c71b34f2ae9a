// Package packages tests the packages of deployment/packages and the output of "make release". It installs, upgrades,
// removes and purges the Debian package, and installs, upgrades and erases the RPM, in a minimal Debian system. It runs
// the installed program as the package's user. It checks the files, the digests and the version of a release.
//
// It needs root and the programs of "make cross". Run it with "make packages-test" and "make release".
package packages
