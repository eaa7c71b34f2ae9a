// Package images lists the container images that an installation of the gpu-operator chart pulls,
// for mirroring: the operands that the values switch on, the driver for each operating system and
// kernel of the nodes, and Node Feature Discovery.
//
// Settings go in, images come out; names and versions are the chart's (package chart) where the
// settings give none.
//
// The package contacts no registry whether an image exists and keeps no state.
package images
