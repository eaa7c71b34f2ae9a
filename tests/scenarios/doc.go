// Package scenarios plays what happens to machines, and looks at the page that comes of it: every
// example of docs/simulator.md, and random histories of GPUs that are lost, unbound, bound and
// partitioned again while they are scraped.
//
// Simulated nodes are played on the clock of a bubble, with the collector and the encoder of the
// exporter and without its server; the test libraries of DCGM and NVML are played in the exporter
// as it is.
package scenarios
