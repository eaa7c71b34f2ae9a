// Package packages tests the packages of deployment/packages and the output of "make release". It installs, upgrades,
// removes and purges the Debian package in a minimal Debian system, and runs the program as the package's user. It
// reads the RPM with rpm. It compares the parts of a release with each other and with the changelog.
//
// It needs root and the programs of "make cross". Run it with "make packages-test" and "make release".
package packages
