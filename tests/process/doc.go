// Package process runs the built program as its users do: a process of its own, with signals and exit
// codes, over the simulator or with the test libraries of DCGM and NVML in the place of NVIDIA's. The
// page at / is looked at in a headless Chromium.
package process
