// Package images tests the images of deployment/docker. It builds both images for both architectures, with a fake DCGM
// package that contains the project's test library, and runs them as documented: with a simulated node, and with the
// test libraries of DCGM and NVML.
//
// The tests with the build tag images need root, buildah, podman, runc and the programs of "make cross". Run them with
// "make image-test".
package images
