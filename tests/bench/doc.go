// Package bench measures the exporter: whole cycles from the source to the published page, the encoding of a page, and
// the CPU time of attribution. The sources are the simulator and the test libraries of DCGM and NVML.
// docs/performance.md has the results.
package bench
