// Package images holds the images of deployment/docker against what they promise: it builds both
// for both architectures, with a stand-in package for DCGM's that brings the project's test
// library, and runs them as docs/install.md says, over a simulated node and over the test
// libraries of DCGM and NVML.
//
// It needs root, buildah, podman, runc and the programs of "make cross"; "make image-test" runs it.
package images
