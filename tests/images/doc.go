// Package images tests the images of deployment/docker. It builds both images for both architectures, with a fake DCGM
// package that contains the project's test library, and runs them as documented: with a simulated node, and with the
// test libraries of DCGM and NVML.
//
// It needs root, buildah, podman, runc and the programs of "make cross". Run it with "make image-test".
package images
