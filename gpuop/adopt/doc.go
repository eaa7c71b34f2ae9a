// Package adopt writes what runs this project's exporter on a cluster of NVIDIA's GPU Operator:
// values that make the operator run it in place of its own, or a patch that runs it safely beside.
//
// What an operator expects of an exporter is a contract: an image as repository, name and tag, port
// 9400 named metrics, GET /health, and settings by DCGM_EXPORTER_* variables. What a client of GPUs
// owes the operator is another: the runtime class, the selector by which it may be evicted, and one
// host engine for two readers of profiling counters.
//
// The package decides no versions of the chart, writes no file and keeps no state.
package adopt
