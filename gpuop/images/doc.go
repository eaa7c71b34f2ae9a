// Package images lists the container images that an installation pulls, for mirroring. The images are those of enabled
// operands, of the driver for each operating system and kernel, and of Node Feature Discovery. Names and versions are
// the user's or the chart's. Only Check contacts registries.
package images
